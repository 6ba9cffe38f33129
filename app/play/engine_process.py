"""An engine's process: send commands, read answers within a time limit."""

import os
import select
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress
from time import perf_counter
from weakref import finalize

from flyball.app.core.sizes import size_text
from flyball.app.engine.guard import GuardedCommand, command_environment
from flyball.app.play.engine_protocols import EngineFault, Exchange

_MOST_BYTES = 1 << 24
"""Most bytes of one answer. An engine that writes more is faulty: it would fill the memory."""


class EngineProcess:
    """A started engine process, killed when this object or our process ends.

    See ``GuardedCommand``.

    Args:
        command: the program and its arguments.
        folder: the working directory.
        answer_seconds: longest wait for an answer.
    """

    def __init__(self, command: Sequence[str], folder: str, answer_seconds: float) -> None:
        self._running = GuardedCommand(command, folder, command_environment(), with_stdin=True)
        self._seconds = answer_seconds
        self._read: deque[str] = deque()  # lines received after the last answer
        self._rest = b""  # the beginning of the next line
        self.end = finalize(self, self._running.end)
        """Kill the process; return how it ended, or None when called again."""

    def exchange(self, exchange: Exchange) -> str:
        """Write commands, and return the content of the answer. ``EngineFault``: the caller must end the process."""
        assert self._running.stdin is not None
        with suppress(BrokenPipeError):  # the process ended: reading from it shows how
            self._running.stdin.write("".join(f"{command}\n" for command in exchange.commands).encode())
            self._running.stdin.flush()
        lines = []
        for line in self._lines(exchange.commands[-1]):
            lines.append(line)
            if line.split()[0] in exchange.last:
                return exchange.read(lines)
        ended = self.end()
        raise EngineFault(f"it {ended.description if ended else 'has ended'}")

    def _lines(self, command: str) -> Iterator[str]:
        """Iterate over non-empty lines until the process ends. Raises ``EngineFault`` for late or too large answers."""
        source, deadline, read = self._running.stdout.fileno(), perf_counter() + self._seconds, 0
        while True:
            while self._read:
                yield self._read.popleft()
            left = deadline - perf_counter()  # checked here too, because an engine may write without a pause
            if left <= 0 or not select.select([source], [], [], left)[0]:
                raise EngineFault(f"it did not answer {command!r} within {self._seconds:g} s")
            data = os.read(source, 1 << 16)
            if not data:
                return
            *whole, self._rest = (self._rest + data).split(b"\n")
            self._read.extend(text for line in whole if (text := line.decode(errors="replace").strip()))
            read += len(data)
            if read > _MOST_BYTES:
                raise EngineFault(f"it wrote {size_text(read)} and no answer to {command!r}")
