"""The ground a run stands on: its folder, found to be usable before anything starts."""

import fcntl
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from app.config import RunFolder
from app.core import FlyballError


class UnusableFolder(FlyballError):
    """A folder in which no run can be."""


class AlreadyRunning(FlyballError):
    """Daemons run in this folder already."""


def prepare(folder: RunFolder) -> None:
    """Make the run folder if it is not there, and see that files can be made in it and in its folders.

    Raises:
        UnusableFolder: they can't.
    """
    path = folder.path
    try:
        path.mkdir(parents=True, exist_ok=True)
        for place in (path, *(inner for inner in path.iterdir() if inner.is_dir())):
            with tempfile.TemporaryFile(dir=place):
                pass
    except OSError as error:
        raise UnusableFolder(
            f"{path.absolute()} cannot be used as a run folder: {error}.",
            hint="Name a folder that you may write to: flyball --run FOLDER.",
        ) from error


@contextmanager
def held(folder: RunFolder) -> Iterator[None]:
    """Keep other supervisors out of a folder that is prepared: two would share the daemons out between them.

    Raises:
        AlreadyRunning: another process holds it.
    """
    with folder.up_lock.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"Another `flyball up` runs in {folder.path}.", hint="Stop it, or choose another --run."
            ) from None
        yield


def is_held(folder: RunFolder) -> bool:
    """Return whether a supervisor holds a folder."""
    try:
        with folder.up_lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)  # shared: several may ask at once
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
    return False
