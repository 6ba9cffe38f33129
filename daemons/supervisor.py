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
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import structlog

from flyball.app.core import Clock, backoff
from flyball.app.engine.programs import UNKNOWN_CODE, Program, start_program, start_server
from flyball.app.telemetry import LogFile

STDERR_BYTES = 1 << 20
"""Size of a file of stderr at which it is rotated."""

PIPE_BYTES = 1 << 16
"""Capacity of a pipe on Linux, and longest line that is written as one."""

REASON_CHARACTERS = 2000


class StderrPipe:
    """Copies a process's stderr into a log file, line by line.

    The process gets a pipe instead of the file, because a file that is moved or removed would take along what the
    process writes later.

    Attributes:
        writer: the writing end, for a process that starts now.
    """

    def __init__(self, file: LogFile) -> None:
        self._file, self._rest, self._last_line = file, b"", ""
        self._reader, self.writer = os.pipe()
        os.set_blocking(self._reader, False)
        asyncio.get_running_loop().add_reader(self._reader, self._copy)

    def _copy(self) -> None:
        """Copy what the pipe holds, without waiting for more."""
        with suppress(BlockingIOError):
            data = os.read(self._reader, PIPE_BYTES)
            if not data:  # otherwise the loop would call this again and again
                asyncio.get_running_loop().remove_reader(self._reader)
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._write(lines)
            if len(self._rest) >= PIPE_BYTES:
                self._write_rest()

    def _write(self, lines: Iterable[bytes]) -> None:
        for line in lines:
            with suppress(OSError):  # a full disk must not hide how the process ended
                self._file.write(line)
            text = line.decode(errors="replace").strip()[-REASON_CHARACTERS:]
            if text.startswith("hint:"):  # the second line of a command's report
                text = f"{self._last_line} {text}"
            self._last_line = text or self._last_line

    def _write_rest(self) -> None:
        """Write a line that has not ended."""
        if self._rest:
            self._write((self._rest,))
            self._rest = b""

    def close(self) -> str:
        """Copy the rest, and return the last line; an empty string if the process wrote none."""
        self._copy()
        self._write_rest()
        asyncio.get_running_loop().remove_reader(self._reader)
        os.close(self._reader)
        return self._last_line


HOPELESS = frozenset({2, 4})
"""Exit codes after which a restart cannot help: wrong usage, unknown name."""


@dataclass(frozen=True, slots=True)
class ChildSpec:
    """A process to keep running.

    Attributes:
        name: unique.
        argv: the command.
        errors: log file of the process's stderr.
        env: variables added to the supervisor's own.
        fds: open files that the process inherits.
        vital: whether the others have to stop when it is hopeless, and how it ends matters.
        serves_forks: whether it is the fork server, which forks the others.
    """

    name: str
    argv: tuple[str, ...]
    errors: Path
    env: Mapping[str, str] = field(default_factory=dict)
    fds: tuple[int, ...] = ()
    vital: bool = True
    serves_forks: bool = False


What = Literal["started", "failed", "hopeless", "stopped", "killed"]


@dataclass(frozen=True, slots=True)
class ChildReport:
    """A change of a child process.

    Attributes:
        name: the child.
        what: started, failed (will be restarted), hopeless (will not be restarted), stopped (on request), or killed
            (too slow to stop, or hurried).
        pid: the process id; ``None`` if no process could be started.
        reason: why the process ended, in one line; empty when it started or stopped in order.
        delay: seconds until the restart; ``None`` without one.
    """

    name: str
    what: What
    pid: int | None
    reason: str = ""
    delay: float | None = None


@dataclass(frozen=True, slots=True)
class Backoff:
    """Wait before a restart, in seconds. It doubles with each consecutive failure; a stable run resets it."""

    first: float = 0.5
    most: float = 30.0
    stable: float = 30.0

    def delay(self, failures: int) -> float:
        """Return the wait after a number of consecutive failures, at least 1."""
        return backoff(self.first, self.most, failures - 1)

    def count(self, failures: int, uptime: float) -> int:
        """Count a failure: 1 if the process ran for at least ``stable`` seconds, otherwise one more than before."""
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
        """Return the names of vital children that ended while starting, so it is unknown whether they can run."""
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
        self._process: Program | None = None
        self._leaving = asyncio.Event()
        self._killed = False
        self.name, self.vital = spec.name, spec.vital
        self.gone = asyncio.Event()
        self.fine = False
        self.cut_short = False

    async def keep(self, stop: asyncio.Event) -> None:
        """Start the process, and restart it whenever it ends.

        An error of this supervisor, for instance when no process can be started, counts as a failure of the process.
        Returns after a stop or a hopeless exit.
        """
        failures = 0
        while not self._leaving.is_set():
            began = self._clock.monotonic()
            code: int | None = None
            try:
                code, reason = await self._run()
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the other children
                structlog.get_logger("supervisor").exception(f"{self.name} could not be kept running")
                self._kill_group()
                reason = f"{type(error).__name__}: {error}"
            failures = self._backoff.count(failures, self._clock.monotonic() - began)
            if self._leaving.is_set():
                orderly = code in (0, -signal.SIGTERM, UNKNOWN_CODE)
                self._tell("killed" if self._killed else "stopped", "" if orderly else reason)
                self.fine = orderly and not self._killed
                self.cut_short = self.fine and code == -signal.SIGTERM  # the process did not handle SIGTERM yet
            elif code in HOPELESS:
                self._tell("hopeless", reason)
                if self.vital:
                    stop.set()
                break
            else:
                delay = self._backoff.delay(failures)
                self._tell("failed", reason, delay)
                with suppress(TimeoutError):
                    await asyncio.wait_for(self._leaving.wait(), delay)
        self.gone.set()

    async def _run(self) -> tuple[int, str]:
        """Run the process until it ends; return its exit code, and why it ended."""
        self._process = None
        spec, environment = self._spec, {**os.environ, **self._spec.env}
        with LogFile(spec.errors, max_bytes=STDERR_BYTES, files=2) as file:
            stderr = StderrPipe(file)
            try:
                try:
                    process = self._process = await (
                        start_server(spec.argv, environment, stderr.writer)
                        if spec.serves_forks
                        else start_program(spec.argv, environment, stderr=stderr.writer, files=spec.fds, may_fork=True)
                    )
                finally:
                    os.close(stderr.writer)
                self._tell("started")
                if self._leaving.is_set():  # the request came while the process was starting
                    self.leave()
                code = await process.wait()
            finally:
                last_line = stderr.close()
        if code < 0:
            how = f"killed by {signal.Signals(-code).name}"
        else:
            how = "exit code unknown" if code == UNKNOWN_CODE else f"exit code {code}"
        return code, f"{last_line} ({how})" if last_line else how

    def _tell(self, what: What, reason: str = "", delay: float | None = None) -> None:
        """Report a change; an error of the report must not end the process."""
        pid = None if self._process is None else self._process.pid
        try:
            self._report(ChildReport(self.name, what, pid, reason, delay))
        except Exception:  # noqa: BLE001 - the screen may raise anything
            structlog.get_logger("supervisor").exception(f"{self.name} {what}: could not be reported")

    def leave(self) -> None:
        """Send SIGTERM to the process if it runs, and prevent restarts."""
        self._leaving.set()
        if process := self._running():
            with suppress(ProcessLookupError):
                process.terminate()

    def kill(self) -> None:
        """Kill a running process, and the descendants in its process group."""
        if self._running():
            self._killed = True
            self._kill_group()

    def _kill_group(self) -> None:
        if process := self._running():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _running(self) -> Program | None:
        return self._process if self._process and self._process.returncode is None else None


def end_with_stdin() -> None:
    """Exit at once when stdin closes; supervised programs call it."""
    when_stdin_closes(lambda: os._exit(1))  # sys.exit would end the thread only


def when_stdin_closes(react: Callable[[], None]) -> None:
    """Call a function, in a thread of its own, when stdin closes."""

    def watch() -> None:
        while os.read(0, 1):  # not through sys.stdin: its lock, held here, would abort an orderly exit
            pass
        react()

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
