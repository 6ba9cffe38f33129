"""The fork server: forks programs that begin with everything imported (ADR-011).

``flyball up`` forks the first server from itself, once it has imported the modules and before it opens anything
(``begin``). A later one is ``python -m flyball.app.engine.fork_server MODULE...``, whose stdin is its channel. A
request in the channel is one byte with open files: a socket for this program, the program's stdin, stdout and stderr,
and any others. The server forks at once. The child reads from that socket what it is to run. The server writes the
child's pid into it, with a pidfd, and at the child's end the exit code.

A fork copies no thread, and shares sockets, devices and open databases with its parent. So the server starts and opens
nothing, and refuses to serve if an imported module has started a thread. It ends when nobody can send a request any
more, or after SIGTERM with its last child. Its children outlive it when it is killed.
"""

import fcntl
import gc
import json
import os
import runpy
import selectors
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from importlib import import_module
from io import TextIOWrapper
from pathlib import Path
from typing import Any, NoReturn

import setproctitle
import threadpoolctl

from flyball.app.engine.programs import (
    NUMBER_BYTES,
    THREAD_VARIABLES,
    THREADS,
    Begun,
    can_fork,
    python_module,
    use_begun,
    use_channel,
)

_MOST_FILES = 64
_REFUSED = 2
"""Exit code that tells the supervisor not to start the server again."""


def main() -> None:
    """Import the modules that the arguments name, and serve at stdin."""
    setproctitle.getproctitle()  # finds the command line's memory, which it could not once the environment has changed
    os.environ.update(dict.fromkeys(THREAD_VARIABLES, "1"))  # otherwise NumPy would start threads when it is imported
    _import(sys.argv[1:])
    _serve(socket.socket(fileno=os.dup(0)))


def begin(modules: Sequence[str], go_on: Callable[[Callable[[], None]], NoReturn]) -> None:
    """Fork the first fork server from this process, for ``start_server``, if the system and the process allow it.

    Args:
        modules: imported first, in this process.
        go_on: leaves whatever the forked process does, and calls its argument.
    """
    if not can_fork() or threading.active_count() > 1:
        return
    setproctitle.getproctitle()
    _import(modules)
    _freeze()
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    if (pid := os.fork()) == 0:
        ours.close()
        go_on(partial(_serve_begun, theirs, python_module("flyball.app.engine.fork_server", *modules)))
    theirs.close()
    use_begun(Begun(pid, ours))


def _serve_begun(channel: socket.socket, command: Sequence[str]) -> None:
    os.setsid()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1):
        os.dup2(nowhere, number)
    os.close(nowhere)
    _show_as(command)
    _serve(channel)


def _import(modules: Iterable[str]) -> None:
    for name in modules:
        with suppress(Exception):  # whoever needs the module reports what is wrong with it
            import_module(name)


def _freeze() -> None:
    """Collect garbage, and never examine the objects that exist now: that would copy their memory in every fork."""
    gc.collect()
    gc.freeze()


def _serve(channel: socket.socket) -> None:
    """Serve until the end; in a child, run its program."""
    if (threads := len(list(Path("/proc/self/task").iterdir()))) > 1:
        sys.stderr.write(f"The fork server has {threads} threads after its imports, and a fork would lose them.\n")
        sys.stderr.flush()
        os._exit(_REFUSED)  # sys.exit would wait for the threads
    _freeze()
    requester, files = _Server(channel).serve()
    _run(requester, files)


class _Server:
    def __init__(self, channel: socket.socket) -> None:
        self._channel = channel
        self._children: dict[int, tuple[int, socket.socket]] = {}  # pid and requester, by pidfd
        self._ending = False

    def serve(self) -> tuple[socket.socket, list[int]]:
        """Serve until the end. Returns in each child: the requester's socket, and the program's open files."""
        signal.signal(signal.SIGTERM, lambda *_: self._end())
        with selectors.DefaultSelector() as selector:
            selector.register(self._channel, selectors.EVENT_READ)
            while True:
                for key, _ in selector.select():
                    if key.fileobj is not self._channel:
                        selector.unregister(key.fd)
                        self._report_end(key.fd)
                    elif forked := self._answer():
                        if isinstance(forked, tuple):
                            return forked
                        selector.register(forked, selectors.EVENT_READ)

    def _answer(self) -> int | tuple[socket.socket, list[int]] | None:
        """Fork a program. Returns its pidfd; in the child, what ``serve`` does; ``None`` if the system refuses."""
        request, files, _, _ = socket.recv_fds(self._channel, 1, _MOST_FILES)
        if not request:
            os._exit(0)
        requester = socket.socket(fileno=files[0])
        pid = self._fork()
        if pid == 0:
            self._channel.close()
            return requester, files[1:]
        for file in files[1:]:
            os.close(file)
        if pid is None:
            requester.close()
            return None
        pidfd = os.pidfd_open(pid)
        self._children[pidfd] = pid, requester
        with suppress(OSError):  # a requester that is gone has closed the program's stdin
            socket.send_fds(requester, [_number(pid)], [pidfd])
        return pidfd

    @staticmethod
    def _fork() -> int | None:
        """Fork; return ``None`` if the system allows no more processes."""
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})  # otherwise the child could miss its own
        pid = None
        with suppress(OSError):
            pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM})
        return pid

    def _report_end(self, pidfd: int) -> None:
        pid, requester = self._children.pop(pidfd)
        _, status = os.waitpid(pid, 0)
        with requester, suppress(OSError):
            requester.send(_number(os.waitstatus_to_exitcode(status)))
        os.close(pidfd)
        if self._ending:
            self._end()

    def _end(self) -> None:
        self._ending = True
        if not self._children:
            os._exit(0)


def _number(value: int) -> bytes:
    return value.to_bytes(NUMBER_BYTES, "big", signed=True)


def _run(requester: socket.socket, files: Sequence[int]) -> None:
    """Run a program in this child, as a new interpreter would."""
    os.setsid()
    with requester, requester.makefile("rb") as stream:
        program: dict[str, Any] = json.loads(stream.read(int.from_bytes(stream.read(NUMBER_BYTES), "big")))
    _renumber(files, [0, 1, 2, *program["files"]])
    _open_streams()
    os.chdir(program["folder"])
    os.environ.clear()
    os.environ.update(program["environment"])
    named = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.path[:] = dict.fromkeys((*named, *sys.path))
    _set_up_libraries()
    module, *arguments = program["arguments"]
    _show_as(python_module(module, *arguments))
    sys.argv = [module, *arguments]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _renumber(files: Sequence[int], numbers: Sequence[int]) -> None:
    """Give open files their numbers, and close all others, such as the channel, which the program does not pass on."""
    copies = [fcntl.fcntl(file, fcntl.F_DUPFD_CLOEXEC, max(numbers) + 1) for file in files]
    for copy, number in zip(copies, numbers, strict=False):
        os.dup2(copy, number)
    remaining = {*numbers, *copies[len(numbers) :]}
    for name in [int(path.name) for path in Path("/proc/self/fd").iterdir()]:
        if name not in remaining:
            with suppress(OSError):  # the listing's own
                os.close(name)
    for copy in copies[len(numbers) :]:
        use_channel(socket.socket(fileno=copy))


def _open_streams() -> None:
    """Bring back Python's standard streams, which ``flyball up`` has replaced and which know its terminal."""
    sys.stdin, sys.stdout, sys.stderr = sys.__stdin__, sys.__stdout__, sys.__stderr__
    for number, (name, mode) in enumerate({"stdin": "r", "stdout": "w", "stderr": "w"}.items()):
        if getattr(sys, name) is None:  # it was closed
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for the whole process
            setattr(sys, f"__{name}__", getattr(sys, name))
    if isinstance(sys.stdout, TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=False)


def _set_up_libraries() -> None:
    """Give numerical libraries the threads that the environment names, and a seed of this process's own.

    They read the environment when they are imported. Python's generator is seeded by each fork, PyTorch's has a
    constant seed.
    """
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed()
    if threads := int(os.environ.get(THREADS, "0")):
        threadpoolctl.threadpool_limits(threads)
        if "torch" in sys.modules:
            sys.modules["torch"].set_num_threads(threads)


def _show_as(command: Sequence[str]) -> None:
    """Show a command in lists of processes, whose short name stays that of the interpreter."""
    setproctitle.setproctitle(" ".join(command))
    setproctitle.setthreadtitle(Path(sys.executable).name)


if __name__ == "__main__":
    main()
