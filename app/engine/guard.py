"""Commands that die with the process that started them.

An engine ends a late or cancelled job by killing its process, which then cannot end what it started. So a command runs
under a guard: a process that leads a group of its own, and holds the reading end of a pipe from the process that wants
the command. When that pipe closes, for whatever reason, the guard kills its group, and so the command's children.
It needs nothing but POSIX, whereas PR_SET_PDEATHSIG is Linux only and does not reach grandchildren.

This file is also the guard's program, so it imports only the standard library.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NoReturn

_LINE = 1 << 16  # bytes; a longer line is read in parts, so that no command can fill the memory
_KEPT_LINES = 40


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a command."""

    code: int | None  # its exit code; minus the signal that ended it; None when it could not be started
    problem: str  # why it could not be started
    errors: str  # the last lines of its stderr


def run_guarded(
    command: Sequence[str], folder: str, environment: Mapping[str, str], on_line: Callable[[str], None]
) -> Ended:
    """Run a command in a folder until it ends; ``on_line`` receives each line of its stdout.

    Its stdin is empty, and its stderr is copied to this process's. The command and all children in its process group
    are killed when it ends, when ``on_line`` raises, and when this process dies. The program is searched in the PATH of
    ``environment``, or from ``folder`` if it has a slash.
    """
    reading, writing = os.pipe()
    last: deque[str] = deque(maxlen=_KEPT_LINES)
    with os.fdopen(reading, "rb") as status:
        try:
            guard = subprocess.Popen(  # noqa: S603 - the user's own command
                (sys.executable, "-I", "-S", str(Path(__file__).absolute()), str(writing), *command),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=folder,
                env=environment,
                pass_fds=(writing,),
                start_new_session=True,
            )
        finally:
            os.close(writing)
        assert guard.stdin is not None
        assert guard.stdout is not None
        assert guard.stderr is not None
        copying = threading.Thread(target=_copy, args=(guard.stderr, last), daemon=True)
        copying.start()
        try:
            while line := guard.stdout.readline(_LINE):
                on_line(line.decode(errors="replace").rstrip("\r\n"))
        finally:
            guard.stdin.close()  # first, because the thread reads stderr until the group is dead
            guard.wait()
            copying.join()
            guard.stdout.close()
            guard.stderr.close()
        said = status.read()
    errors = "".join(last)
    if not said:
        return Ended(-signal.SIGKILL, "", errors)
    return Ended(**json.loads(said), errors=errors)


def command_environment() -> dict[str, str]:
    """Return the environment of users' commands: this process's, with ``python`` the one that runs Flyball.

    Without PYTHONPATH, because in jobs it names this interpreter's packages, which another Python could not load.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    path = environment.get("PATH", os.defpath)
    return environment | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{path}"}


def find_program(program: str, folder: Path) -> str | None:
    """Return the path of the program that a command in a folder would run, None if there is none."""
    named = str(folder / program) if os.sep in program else program
    return shutil.which(named, path=command_environment()["PATH"])


def _copy(source: IO[bytes], last: "deque[str]") -> None:
    while line := source.readline(_LINE):
        text = line.decode(errors="replace")
        last.append(text)
        sys.stderr.write(text)
    sys.stderr.flush()


def main() -> None:
    """Run the command in the arguments; write how it ended to the file descriptor in the first one."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    status, command = int(sys.argv[1]), sys.argv[2:]
    ended: dict[str, object] = {"code": None, "problem": ""}
    try:
        ended["code"] = subprocess.call(command, stdin=subprocess.DEVNULL)  # noqa: S603 - the user's own
    except OSError as error:
        ended["problem"] = f"{error.strerror}: {error.filename}"
    os.write(status, json.dumps(ended).encode())
    _kill_group()


def _end_with_parent() -> None:
    sys.stdin.buffer.read()
    _kill_group()


def _kill_group() -> NoReturn:
    os.killpg(os.getpgrp(), signal.SIGKILL)
    raise AssertionError("unreachable")


if __name__ == "__main__":
    main()
