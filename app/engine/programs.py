"""Programs of this package, each in a process and a session of its own.

A program is forked by the fork server (``flyball.app.engine.fork_server``) where there is one, and otherwise started by
a new interpreter. Whoever starts it sees no difference, except that the exit code of a forked program is unknown if its
server ended first.
"""

import asyncio
import json
import os
import signal
import socket
import sys
from asyncio.subprocess import DEVNULL, PIPE
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Protocol

PYTHON_MODULE = (sys.executable, "-P", "-m")

THREADS = "OMP_NUM_THREADS"
THREAD_VARIABLES = (THREADS, "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS")

UNKNOWN_CODE = 256
"""Stands for the exit code of a forked program that outlived its fork server; no program can end with it."""

NUMBER_BYTES = 4


class Program(Protocol):
    """A running program: the part of ``asyncio.subprocess.Process`` that is used."""

    stdin: asyncio.StreamWriter | None
    stdout: asyncio.StreamReader | None

    @property
    def pid(self) -> int:
        """The process id."""

    @property
    def returncode(self) -> int | None:
        """The exit code, minus the number of the signal that ended it, or ``None`` while it runs."""

    async def wait(self) -> int:
        """Wait for the end; return the exit code."""

    def terminate(self) -> None:
        """Send SIGTERM. May raise ``ProcessLookupError``."""

    def kill(self) -> None:
        """Send SIGKILL. May raise ``ProcessLookupError``."""


async def start_program(
    command: Sequence[str],
    environment: Mapping[str, str],
    *,
    answers: bool = False,
    stderr: int = 2,
    files: Sequence[int] = (),
    fork: bool = True,
    may_fork: bool = False,
) -> Program:
    """Start a program. Raises ``OSError``.

    Its stdin is a pipe, whose end tells the program that this process is gone.

    Args:
        command: the program and its arguments. Only one of ``python_module`` can be forked.
        environment: all its variables.
        answers: whether its stdout is a pipe; otherwise it is the null device.
        stderr: an open file.
        files: further open files, which it gets under the same numbers.
        fork: whether it may be forked.
        may_fork: whether it may use the fork server itself.
    """
    if fork and _channel is not None and tuple(command[: len(PYTHON_MODULE)]) == PYTHON_MODULE:
        request = {
            "arguments": command[len(PYTHON_MODULE) :],
            "environment": dict(environment),
            "folder": child_folder() or str(Path.cwd()),
            "files": list(files),
        }
        with suppress(ServerEnded):
            return await _fork_program(request, _channel, [stderr, *files], answers=answers, may_fork=may_fork)
    return await asyncio.create_subprocess_exec(
        *command,
        stdin=PIPE,
        stdout=PIPE if answers else DEVNULL,
        stderr=stderr,
        env=environment,
        cwd=child_folder(),
        pass_fds=files,
        start_new_session=True,
    )


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of this program; ``-P`` keeps the working directory out of the path."""
    return (*PYTHON_MODULE, module, *arguments)


def child_environment(threads: int) -> dict[str, str]:
    """Return a child's environment: this process's module path, and ``threads`` threads for numerical libraries."""
    own = {name: str(threads) for name in THREAD_VARIABLES}
    return {**os.environ, **own, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def child_folder() -> str | None:
    """Return the working directory of a child; None for this process's.

    In a deleted one numerical libraries end their process.
    """
    try:
        Path.cwd()
    except FileNotFoundError:
        return os.sep
    return None


@dataclass(frozen=True, slots=True)
class Begun:
    """A fork server that this process has forked from itself, and its channel."""

    pid: int
    channel: socket.socket


_begun: Begun | None = None
_channel: socket.socket | None = None


def use_begun(begun: Begun) -> None:
    """Make ``start_server`` take this fork server first."""
    global _begun  # noqa: PLW0603 - a process has one fork server, as it has one parent
    _begun = begun


def use_channel(channel: socket.socket | None) -> None:
    """Request programs through this channel of a fork server from now on; ``None``: through none."""
    global _channel  # noqa: PLW0603
    if _channel is not None:
        _channel.close()
    _channel = channel


async def start_server(command: Sequence[str], environment: Mapping[str, str], stderr: int) -> Program:
    """Start the fork server of all later programs, or adopt the one of ``use_begun``.

    Programs wait until it has imported its modules. Raises ``OSError``.
    """
    global _begun
    if _begun is not None:
        begun, _begun = _begun, None
        use_channel(begun.channel)
        return _Forked(begun.pid, os.pidfd_open(begun.pid))
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    use_channel(ours)
    with theirs:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=theirs.fileno(),
            stdout=DEVNULL,
            stderr=stderr,
            env=environment,
            cwd=child_folder(),
            start_new_session=True,
        )


def can_fork() -> bool:
    """Return whether the system has what a fork server needs: Linux 5.3 or newer."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return True


class ServerEnded(Exception):
    """The fork server ended before it had forked the program."""


async def _fork_program(
    request: Mapping[str, object], channel: socket.socket, files: Sequence[int], *, answers: bool, may_fork: bool
) -> "_Forked":
    """Request a program of the fork server. ``files`` begin with its stderr. Raises ``ServerEnded``."""
    message = json.dumps(request).encode()
    with ExitStack() as ours:
        server, theirs = socket.socketpair()
        ours.enter_context(server).setblocking(False)  # noqa: FBT003 - the standard library's signature
        stdin, to_stdin = _pipe()
        ours.enter_context(to_stdin)
        from_stdout, stdout = _pipe() if answers else (None, os.fdopen(os.open(os.devnull, os.O_WRONLY), "wb", 0))
        if from_stdout is not None:
            ours.enter_context(from_stdout)
        try:
            with theirs, stdin, stdout:
                own = [channel.fileno()] if may_fork else []
                socket.send_fds(channel, [b"."], [theirs.fileno(), stdin.fileno(), stdout.fileno(), *files, *own])
            loop = asyncio.get_running_loop()
            await loop.sock_sendall(server, len(message).to_bytes(NUMBER_BYTES, "big") + message)
            await _until_readable(server.fileno())
            number, pidfds, _, _ = socket.recv_fds(server, NUMBER_BYTES, 1)
        except OSError as error:
            raise ServerEnded from error
        if not number:
            raise ServerEnded
        ours.pop_all()
    program = _Forked(int.from_bytes(number, "big", signed=True), pidfds[0], server)
    await program.connect(to_stdin, from_stdout)
    return program


def _pipe() -> tuple[IO[bytes], IO[bytes]]:
    reader, writer = os.pipe()
    return os.fdopen(reader, "rb", 0), os.fdopen(writer, "wb", 0)


async def _until_readable(file: int) -> None:
    loop = asyncio.get_running_loop()
    readable = loop.create_future()
    loop.add_reader(file, _settle, readable)
    try:
        await readable
    finally:
        loop.remove_reader(file)


def _settle(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


class _Forked:
    """A forked program; see ``Program``."""

    def __init__(self, pid: int, pidfd: int, server: socket.socket | None = None) -> None:
        self.pid, self._pidfd = pid, pidfd
        self.stdin: asyncio.StreamWriter | None = None
        self.stdout: asyncio.StreamReader | None = None
        self.returncode: int | None = None
        self._loop = asyncio.get_running_loop()
        self._ended = self._loop.create_future()
        if server is None:
            self._loop.add_reader(self._pidfd, self._reap)
        else:
            self._loop.add_reader(server, self._hear, server)

    async def connect(self, to_stdin: IO[bytes], from_stdout: IO[bytes] | None) -> None:
        """Make streams of the program's pipes."""
        writing, protocol = await self._loop.connect_write_pipe(_protocol, to_stdin)
        self.stdin = asyncio.StreamWriter(writing, protocol, None, self._loop)
        if from_stdout is not None:
            self.stdout = asyncio.StreamReader()
            await self._loop.connect_read_pipe(partial(_protocol, self.stdout), from_stdout)

    def _hear(self, server: socket.socket) -> None:
        """Read the exit code, or wait for the end if the server is gone."""
        self._loop.remove_reader(server)
        code = b""
        with suppress(ConnectionError), server:
            code = server.recv(NUMBER_BYTES)
        if code:
            self._end(int.from_bytes(code, "big", signed=True))
        else:
            self._loop.add_reader(self._pidfd, self._reap)

    def _reap(self) -> None:
        self._loop.remove_reader(self._pidfd)
        code = UNKNOWN_CODE
        with suppress(ChildProcessError):  # unless it is a child of this process
            code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self._end(code)

    def _end(self, code: int) -> None:
        os.close(self._pidfd)
        if self.stdin is not None:
            self.stdin.close()
        self.returncode = code
        self._ended.set_result(code)

    async def wait(self) -> int:
        """See ``Program.wait``."""
        return await asyncio.shield(self._ended)

    def terminate(self) -> None:
        """See ``Program.terminate``."""
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        """See ``Program.kill``."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        if self.returncode is None:
            signal.pidfd_send_signal(self._pidfd, number)


def _protocol(reader: asyncio.StreamReader | None = None) -> asyncio.StreamReaderProtocol:
    return asyncio.StreamReaderProtocol(reader or asyncio.StreamReader())
