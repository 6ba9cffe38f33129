"""A run's folder: its creation, its lock, and the broker's address.

The supervisor holds the lock.
"""

import fcntl
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.config import Deployment, RunFolder
from app.core import FlyballError, derive_id
from app.journal.database import OTHER_HISTORY
from app.journal.state import saved_position

MAX_SOCKET_PATH = 100
"""Longest path of a socket, in bytes. The kernel allows 107 (unix(7), sun_path); ZeroMQ's own names need a few."""

SOCKET_NAME = "bus.sock"


class UnusableFolder(FlyballError):
    """A folder that cannot hold a run."""


class AlreadyRunning(FlyballError):
    """Daemons run in this folder already."""


class LostJournal(FlyballError):
    """A run folder that has lost its journal."""


class UnsafeFolder(FlyballError):
    """A folder for sockets that others own or may enter."""


def prepare(folder: RunFolder) -> None:
    """Make the run folder if it is missing.

    Raises ``UnusableFolder`` if no files can be made in it.
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
    """Lock a prepared folder against other supervisors.

    Raises ``AlreadyRunning`` if another supervisor holds the folder.
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


def of_other_history(folder: RunFolder) -> list[Path]:
    """Return the files of another history that were set aside."""
    return sorted(
        path for inner in ("state", "outbox", "archive") for path in (folder.path / inner).glob(f"*{OTHER_HISTORY}*")
    )


def check_history(folder: RunFolder) -> None:
    """Refuse to begin a new journal beside an earlier one's files.

    Raises ``LostJournal``: the journal is missing or empty, and there is an archive or daemons' state.
    """
    if folder.journal.is_file() and folder.journal.stat().st_size:
        return
    left = [*(folder.path / "archive").glob("*.segment")]
    left += [path for path in sorted((folder.path / "state").glob("*.sqlite")) if saved_position(path)]
    if left:
        copy = next(folder.path.glob(f"{folder.journal.name}.rescued*"), "a copy")
        raise LostJournal(
            f"{folder.journal} is missing, and {left[0]} belongs to the journal that was there.",
            hint=f"Put the journal back from {copy}. To begin anew instead, move state, outbox and archive away, too.",
        )


def bus_endpoint(folder: RunFolder, deployment: Deployment) -> str:
    """Return the broker's address.

    The address is the configured one, or a socket in the run folder.

    When the path is too long for a socket, ``sockets`` in the run folder links to a private folder with a shorter
    path. The link leads all processes to the same folder, even if their temporary folders differ. The private folder is
    named after the run folder's device and inode. So it stays when the run folder is renamed, and the link of a copied
    run folder is replaced.

    Raises:
        UnsafeFolder: others own or may enter the private folder, or ``sockets`` is no link.
    """
    if deployment.endpoint is not None:
        return deployment.endpoint
    place = folder.path.absolute()
    if len(os.fsencode(place / SOCKET_NAME)) > MAX_SOCKET_PATH:
        place = _linked(place)
    return f"ipc://{place / SOCKET_NAME}"


def _linked(folder: Path) -> Path:
    link, name = folder / "sockets", _private_name(folder)
    private = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir()) / name
    if link.is_dir() and not link.is_symlink():
        raise UnsafeFolder(f"{link} is a folder, and should be a link.", hint="Remove it: it is made again.")
    if not link.is_dir() or link.readlink().name != name:  # never made, lost with a temporary folder, or copied
        if not os.access(folder, os.W_OK):  # missing, or only to be read: no broker runs in it
            return private
        private.mkdir(mode=0o700, exist_ok=True)
        _check_private(private, os.getuid())
        scratch = link.with_name(f"sockets.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(private)
        scratch.replace(link)
    target = link.readlink()
    _check_private(target, link.lstat().st_uid)
    return target


def _private_name(folder: Path) -> str:
    """Return the name of a run folder's private folder."""
    try:
        found = folder.stat()
    except OSError:
        return f"flyball-{derive_id(str(folder))[:16]}"
    return f"flyball-{derive_id(str(found.st_dev), str(found.st_ino))[:16]}"


def _check_private(path: Path, owner: int) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise UnsafeFolder(
            f"{path} is not a private folder of the run's owner.", hint="Remove it, or set deployment.endpoint."
        )
