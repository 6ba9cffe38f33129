"""The supervisor of child processes, and notifications to systemd.

The supervisor keeps child processes running, and ends them in order.

Each child has a session of its own, so Ctrl-C in the terminal reaches the supervisor alone. Each child's stdin is a
pipe from the supervisor. When the supervisor ends, even killed, the pipe closes and the child exits
(``end_with_stdin``).
"""

import asyncio
import os
import signal
import socket
import threading
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Literal

from app.core import Clock

MAX_BYTES = 1 << 20
LAST_BYTES = 8192


class StderrFile:
    """A file of bounded length for a child's stderr.

    The file is emptied, not replaced, because processes hold it open.

    Args:
        path: the file; ``NAME.1`` keeps the end of its content from before it was last emptied.
        max_bytes: length beyond which ``bound`` empties the file; also the most that ``NAME.1`` keeps.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._began_at = 0

    def open(self) -> IO[bytes]:
        """Open the file for a process that starts now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("ab")
        self.bound()
        self._began_at = file.seek(0, os.SEEK_END)
        return file

    def bound(self) -> None:
        """Empty the file when it is too long.

        Text that is written at this moment is lost.
        """
        if self._path.stat().st_size > self._max_bytes:
            with suppress(OSError):  # even on a full disk the file must be emptied
                self._path.with_name(f"{self._path.name}.1").write_bytes(self._end(self._max_bytes))
            os.truncate(self._path, 0)
            self._began_at = 0

    def last_line(self) -> str:
        """Return the last line that the latest process wrote.

        An empty string if it wrote none.
        """
        lines = [line.strip() for line in self._end(LAST_BYTES, self._began_at).decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def _end(self, count: int, after: int = 0) -> bytes:
        with self._path.open("rb") as file:
            file.seek(max(after, file.seek(0, os.SEEK_END) - count))
            return file.read()


HOPELESS = frozenset({2, 4})
"""Exit codes after which a restart cannot help: wrong usage, unknown name."""

BOUND_SECONDS = 30.0
"""Time between checks of the length of a running process's stderr file."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running.

    Attributes:
        name: unique.
        argv: the command.
        errors: file of bounded length that the process's stderr is appended to.
        env: variables added to the supervisor's own.
        fds: open files that the process inherits.
        vital: whether the others have to stop when it is hopeless, and how it ends matters.
    """

    name: str
    argv: tuple[str, ...]
    errors: Path
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    vital: bool = True


@dataclass(frozen=True, slots=True)
class ChildReport:
    """A change of a child process.

    Attributes:
        name: the child.
        what: started, failed (will be restarted), hopeless (will not be restarted), stopped (on request), or killed
            (too slow to stop, or hurried).
        pid: the process id.
        reason: why the process ended, in one line; empty when it started or stopped in order.
        delay: seconds until the restart; ``None`` without one.
    """

    name: str
    what: Literal["started", "failed", "hopeless", "stopped", "killed"]
    pid: int
    reason: str = ""
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait before a restart, in seconds.

    The wait doubles with each failure in a row. A stable run resets it.
    """

    first: float = 0.5
    most: float = 30.0
    stable: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the wait after ``failures`` failures in a row.

        ``failures`` is at least 1.
        """
        return float(min(self.most, self.first * 2 ** min(failures - 1, 32)))

    def count(self, failures: int, uptime: float) -> int:
        """Return the number of failures in a row after one more.

        The count starts again at 1 if the process ran for at least ``stable`` seconds.
        """
        return 1 if uptime >= self.stable else failures + 1


class Supervisor:
    """Runs children until asked to stop, or a vital one is hopeless.

    Args:
        specs: the children in order of starting.
        needed: how many of the first ones the others need; they are stopped last.
        clock: measures uptimes.
        report: called with every change of a process.
        drain_seconds: longest time for children to stop; then they are killed.
        backoff: waits between starts.
    """

    def __init__(
        self,
        specs: Sequence[ChildSpec],
        clock: Clock,
        report: Callable[[ChildReport], None],
        *,
        needed: int = 1,
        drain_seconds: float = 15.0,
        backoff: Backoff | None = None,
    ) -> None:
        self._children = [_Child(spec, clock, report, backoff or Backoff()) for spec in specs]
        self._needed, self._drain_seconds = needed, drain_seconds

    async def run(self, stop: asyncio.Event, hurry: asyncio.Event) -> bool:
        """Run until ``stop`` is set, then end all children.

        ``hurry`` kills the children at once. Returns whether all vital children ended in order.
        """
        async with asyncio.TaskGroup() as group:
            for child in self._children:
                group.create_task(child.keep(stop))
            hurrier = group.create_task(self._hurry(hurry))
            await stop.wait()
            await self._end(self._children[self._needed :])
            await self._end(self._children[: self._needed])
            hurrier.cancel()
        return all(child.fine for child in self._children if child.vital)

    def cut_short(self) -> list[str]:
        """Return the names of vital children that were ended while starting.

        Whether these children can run is unknown.
        """
        return [child.name for child in self._children if child.vital and child.cut_short]

    async def _end(self, children: Sequence["_Child"]) -> None:
        for child in children:
            child.leave()
        with suppress(TimeoutError):
            async with asyncio.timeout(self._drain_seconds):
                for child in children:
                    await child.gone.wait()
        for child in children:
            child.kill()

    async def _hurry(self, hurry: asyncio.Event) -> None:
        await hurry.wait()
        for child in self._children:
            child.leave()
            child.kill()


class _Child:
    def __init__(self, spec: ChildSpec, clock: Clock, report: Callable[[ChildReport], None], backoff: Backoff) -> None:
        self._spec, self._clock, self._report, self._backoff = spec, clock, report, backoff
        self._errors = StderrFile(spec.errors)
        self._process: Process | None = None
        self._leaving = asyncio.Event()
        self._killed = False
        self.name, self.vital = spec.name, spec.vital
        self.gone = asyncio.Event()
        self.fine = False
        self.cut_short = False

    async def keep(self, stop: asyncio.Event) -> None:
        """Start the process, and restart it whenever it ends.

        Returns after a stop or a hopeless exit.
        """
        failures = 0
        while not self._leaving.is_set():
            began = self._clock.monotonic()
            process = await self._start()
            code = await self._wait(process)
            failures = self._backoff.count(failures, self._clock.monotonic() - began)
            if self._leaving.is_set():
                orderly = code in (0, -signal.SIGTERM)
                reason = "" if orderly else self._reason(code)
                self._report(ChildReport(self.name, "killed" if self._killed else "stopped", process.pid, reason))
                self.fine = orderly and not self._killed
                self.cut_short = self.fine and code != 0  # the process did not handle SIGTERM yet
            elif code in HOPELESS:
                self._report(ChildReport(self.name, "hopeless", process.pid, self._reason(code)))
                if self.vital:
                    stop.set()
                break
            else:
                delay = self._backoff.delay(failures)
                self._report(ChildReport(self.name, "failed", process.pid, self._reason(code), delay))
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), delay)
        self.gone.set()

    async def _start(self) -> Process:
        with self._errors.open() as stderr:
            process = self._process = await asyncio.create_subprocess_exec(
                *self._spec.argv,
                stdin=PIPE,
                stdout=DEVNULL,
                stderr=stderr,
                env={**os.environ, **self._spec.env},
                pass_fds=self._spec.fds,
                start_new_session=True,
            )
        self._report(ChildReport(self.name, "started", process.pid))
        if self._leaving.is_set():  # the request came while the process was starting
            self.leave()
        return process

    async def _wait(self, process: Process) -> int:
        """Wait for the process's exit code.

        The stderr file is kept short until then.
        """
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(BOUND_SECONDS):
                    return await process.wait()
            self._errors.bound()

    def _reason(self, code: int) -> str:
        how = f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
        last = self._errors.last_line()
        return f"{last} ({how})" if last else how

    def leave(self) -> None:
        """Send SIGTERM to the process if it runs, and prevent restarts."""
        self._leaving.set()
        if process := self._running():
            with suppress(ProcessLookupError):
                process.terminate()

    def kill(self) -> None:
        """Kill a running process, and the descendants in its process group."""
        if process := self._running():
            self._killed = True
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _running(self) -> Process | None:
        return self._process if self._process and self._process.returncode is None else None


def end_with_stdin() -> None:
    """Exit at once when stdin closes; supervised programs call it."""

    def watch() -> None:
        while os.read(0, 1):  # not through sys.stdin: its lock, held here, would abort an orderly exit
            pass
        os._exit(1)  # sys.exit would end this thread only

    threading.Thread(target=watch, name="end-with-stdin", daemon=True).start()


class Notifier:
    """Sends states to systemd's socket ``NOTIFY_SOCKET`` (sd_notify(3)); without one, does nothing.

    No package is used, because those for sd_notify are unmaintained or need libsystemd.
    """

    def __init__(self, address: str | None = None) -> None:
        address = address if address is not None else os.environ.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address

    def tell(self, *states: str) -> None:
        """Send states such as ``READY=1``, ``WATCHDOG=1``, ``STOPPING=1``, ``STATUS=text``."""
        if not self._address:
            return
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notify:
            notify.connect(self._address)
            notify.sendall("\n".join(states).encode())
