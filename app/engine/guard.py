"""Commands that die with the process that started them.

An engine ends a late or cancelled job by killing its process, which then cannot end the processes that it started. So a
command runs under a guard: a process that leads a group of its own, and holds the reading end of a pipe from the
process that wants the command. When that pipe closes, for whatever reason, the guard kills its group, and so the
command's children. It needs nothing but POSIX, whereas PR_SET_PDEATHSIG is Linux only and does not reach grandchildren.

This file is also the guard's program, so it imports only the standard library.
"""

import json
import os
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

_LINE = 1 << 16  # bytes; a longer line is read in parts, so that no command can fill the memory
_KEPT_LINES = 40
_SHOWN = 1500  # characters of stderr in an error, so that it fits into an event
_COPY_SECONDS = 1.0  # longest wait for the rest of stderr


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """The end of a command."""

    code: int | None  # its exit code; minus the signal that ended it; None when it could not be started
    problem: str  # why it could not be started
    errors: str  # the last lines of its stderr

    @property
    def description(self) -> str:
        """The end of a sentence about the command: how it ended, and the last part of its stderr."""
        if self.code is None:
            return f"could not be started: {self.problem}."
        how = f"exited with code {self.code}"
        if self.code < 0:
            with suppress(ValueError):
                how = f"was ended by {signal.Signals(-self.code).name}"
        errors = self.errors.strip()[-_SHOWN:]
        return f"{how}:\n{errors}\n" if errors else f"{how}."


class GuardedCommand:
    """A running command, killed with its children when this process dies.

    ``end`` kills them too. Children outside of its process group survive. The program is searched in the PATH of
    ``environment``, or from ``folder`` if it has a slash. Its stderr is copied to this process's.

    Attributes:
        stdin: the command's input. Without ``with_stdin`` it is None, and the command reads an empty input.
        stdout: the command's output; it ends when the command and all children that write to it have ended.
    """

    def __init__(
        self, command: Sequence[str], folder: str, environment: Mapping[str, str], *, with_stdin: bool = False
    ) -> None:
        status, report = os.pipe()
        watched, self._lifeline = os.pipe()
        self._status = os.fdopen(status, "rb")
        try:
            self._guard = subprocess.Popen(  # noqa: S603 - a user-defined command
                (sys.executable, "-I", "-S", str(Path(__file__).absolute()), str(report), str(watched), *command),
                stdin=subprocess.PIPE if with_stdin else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                pass_fds=(report, watched),
                start_new_session=True,
            )
        except BaseException:
            os.close(self._lifeline)
            self._status.close()
            raise
        finally:
            os.close(report)
            os.close(watched)
        assert self._guard.stdout is not None
        assert self._guard.stderr is not None
        self.stdin, self.stdout = self._guard.stdin, self._guard.stdout
        self._errors: deque[str] = deque(maxlen=_KEPT_LINES)
        self._copying = threading.Thread(target=_copy, args=(self._guard.stderr, self._errors), daemon=True)
        self._copying.start()

    def lines(self) -> Iterator[str]:
        """Iterate over lines of stdout until the command ends; a child that left the group may hold it open longer."""
        source, rest = self.stdout.fileno(), b""
        while self._has_output():
            data = os.read(source, _LINE)
            if not data:
                break
            *whole, rest = (rest + data).split(b"\n")
            if len(rest) >= _LINE:
                whole, rest = [*whole, rest], b""
            yield from map(_text, whole)
        if rest:
            yield _text(rest)

    def _has_output(self) -> bool:
        """Wait for output or the end; return whether stdout can be read."""
        select.select([self.stdout, self._status], [], [])
        left, _, _ = select.select([self.stdout], [], [], 0)  # again, because all output comes before the status
        return bool(left)

    def end(self) -> CommandEnd:
        """Kill the command if it still runs, and return its end. Call this once."""
        os.close(self._lifeline)  # first, because the thread reads stderr until the group is dead
        self._guard.wait()
        self._copying.join(_COPY_SECONDS)  # a child that left the group may hold stderr open for as long as it likes
        # The thread closes stderr, because closing it here would wait for what the thread reads.
        for stream in (self._guard.stdin, self._guard.stdout):
            if stream is not None:
                stream.close()
        with self._status:
            status = self._status.read()
        errors = "".join(self._errors.copy())
        return CommandEnd(**json.loads(status), errors=errors) if status else CommandEnd(-signal.SIGKILL, "", errors)


def run_guarded(
    command: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    on_line: Callable[[str], None],
    *,
    with_stdin: bool = False,
) -> CommandEnd:
    """Run a command in a folder until it ends.

    ``on_line`` receives each line of its stdout. The command is also ended when ``on_line`` raises. ``with_stdin``
    gives it a stdin that ends when this process does, so that children outside of its process group can notice. See
    ``GuardedCommand``.
    """
    running = GuardedCommand(command, folder, environment, with_stdin=with_stdin)
    try:
        for line in running.lines():
            on_line(line)
    finally:
        ended = running.end()
    return ended


def command_environment() -> dict[str, str]:
    """Return the environment of users' commands.

    It is this process's, but ``python`` is the one that runs Flyball. PYTHONPATH is left out, because in jobs it names
    this interpreter's packages, which another Python could not load.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = environment.get("PATH", os.defpath)
    return environment | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}"}


def find_program(program: str, folder: Path) -> str | None:
    """Return the path of the program that a command runs in ``folder``; None if it does not exist."""
    named = str(folder / program) if os.sep in program else program
    return shutil.which(named, path=command_environment()["PATH"])


def _text(line: bytes) -> str:
    return line.decode(errors="replace").rstrip("\r")


def _copy(source: IO[bytes], last: "deque[str]") -> None:
    with source:
        while line := source.readline(_LINE):
            text = line.decode(errors="replace")
            last.append(text)
            sys.stderr.write(text)
    sys.stderr.flush()


def main() -> None:
    """Run the command in the arguments, and write how it ended.

    The first argument is the file descriptor to write to. The second is the descriptor of a pipe whose end ends the
    command.
    """
    status, lifeline, command = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
    threading.Thread(target=_end_with_parent, args=(lifeline,), daemon=True).start()
    ended: dict[str, object] = {"code": None, "problem": ""}
    try:
        ended["code"] = subprocess.call(command)  # noqa: S603 - a user-defined command
    except OSError as error:
        ended["problem"] = f"{error.strerror}: {error.filename}"
    os.write(status, json.dumps(ended).encode())
    _kill_group()


def _end_with_parent(lifeline: int) -> None:
    os.read(lifeline, 1)
    _kill_group()


def _kill_group() -> NoReturn:
    os.killpg(os.getpgrp(), signal.SIGKILL)
    raise AssertionError("unreachable")


if __name__ == "__main__":
    main()
