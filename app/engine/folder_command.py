"""Commands that do a job in a folder: the request lies there, and the result is written there."""

import fcntl
import os
import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from flyball.app.core import FlyballError, JsonObject, parse_json
from flyball.app.engine.guard import command_environment, run_guarded

REQUEST, RESULT = "request.json", "result.json"


class CommandFailed(FlyballError):
    """A command that could not start, or did not exit with 0."""


class BadResult(FlyballError):
    """A job's result that is missing, incomplete, or of another job."""


@dataclass(frozen=True, slots=True)
class Hints:
    """Hints for errors: after a command that failed, and after a result that cannot be used."""

    failed: str
    result: str


@contextmanager
def private_folder(parent: Path) -> Iterator[Path]:
    """Make a folder in ``parent`` for the block.

    Folders of dead processes are removed. The owner holds a lock on its folder, which the system releases when a
    process dies.
    """
    parent.mkdir(parents=True, exist_ok=True)
    with ExitStack() as lock:
        with _lock(parent):  # otherwise a new folder could be swept before its owner has locked it
            for old in parent.iterdir():
                with suppress(BlockingIOError, FileNotFoundError), _lock(old, fcntl.LOCK_NB):  # in use, or removed
                    shutil.rmtree(old, ignore_errors=True)  # a dying command may still write; the next job sweeps
            folder = Path(mkdtemp(dir=parent)).absolute()
            lock.enter_context(_lock(folder))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _lock(folder: Path, flags: int = 0) -> Iterator[None]:
    handle = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | flags)
        yield
    finally:
        os.close(handle)


def run_in_folder(
    command: Sequence[str],
    folder: Path,
    working_folder: str,
    on_progress: Callable[[int, int, dict[str, Any]], None],
    hints: Hints,
) -> JsonObject:
    """Run a command whose last argument is ``folder``; return the object that it wrote into ``result.json`` there.

    A line of its stdout that is a JSON object with integers ``epoch`` and ``epochs`` goes to ``on_progress``, with the
    object's other fields. All other lines are copied to stderr. Raises ``CommandFailed`` or ``BadResult``.
    """

    def on_line(line: str) -> None:
        if (fields := _progress(line)) is None:
            sys.stderr.write(f"{line}\n")  # at once, because the command's own stderr is copied there, too
        else:
            on_progress(fields.pop("epoch"), fields.pop("epochs"), fields)

    ended = run_guarded((*command, str(folder)), working_folder, command_environment(), on_line)
    if ended.code != 0:
        raise CommandFailed(f"{' '.join(command)} {ended.description}", hint=hints.failed)
    try:
        result = parse_json((folder / RESULT).read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise BadResult(f"The command exited with 0 and wrote no {RESULT}.", hint=hints.result) from None
    except (ValueError, OSError) as error:
        raise BadResult(f"{RESULT} is not JSON ({error}).", hint=hints.result) from error
    if not isinstance(result, dict):
        raise BadResult(f"{RESULT} is {result!r:.200}.", hint=hints.result)
    return result


def _progress(line: str) -> dict[str, Any] | None:
    """Return a progress report: an object with integers ``epoch`` and ``epochs``; None for other lines."""
    if not line.startswith("{"):
        return None
    try:
        fields = parse_json(line)
    except ValueError:
        return None
    are_integers = all(type(fields.get(name)) is int for name in ("epoch", "epochs"))
    return fields if are_integers else None
