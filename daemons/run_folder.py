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

MAX_SOCKET_PATH = 100
"""Longest path of a socket, in bytes. The kernel allows 107 (unix(7), sun_path); ZeroMQ's own names need a few."""

SOCKET_NAME = "bus.sock"


class UnusableFolder(FlyballError):
    """A folder that cannot hold a run."""


class AlreadyRunning(FlyballError):
    """Daemons run in this folder already."""


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
            hint="Name a folder that you may write to.",
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
                f"Another `flyball up` runs in {folder.path}.", hint="Stop it, or choose another run folder."
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


def bus_endpoint(folder: RunFolder, deployment: Deployment) -> str:
    """Return the broker's address.

    The address is the configured one, or a socket in the run folder.

    When the path is too long for a socket, ``sockets`` in the run folder links to a private folder with a shorter
    path. The link leads all processes to the same folder, even if their temporary folders differ.

    Raises:
        UnsafeFolder: others own or may enter the private folder.
    """
    if deployment.endpoint is not None:
        return deployment.endpoint
    place = folder.path.absolute()
    if len(os.fsencode(place / SOCKET_NAME)) > MAX_SOCKET_PATH:
        place = _linked(place)
    return f"ipc://{place / SOCKET_NAME}"


def _linked(folder: Path) -> Path:
    link = folder / "sockets"
    if not link.is_dir():  # never made, or lost with a temporary folder
        base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
        private = base / f"flyball-{derive_id(str(folder))[:16]}"
        private.mkdir(mode=0o700, exist_ok=True)
        _check_private(private, os.getuid())
        folder.mkdir(parents=True, exist_ok=True)
        scratch = link.with_name(f"sockets.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(private)
        scratch.replace(link)
    target = link.readlink()
    _check_private(target, link.lstat().st_uid)
    return target


def _check_private(path: Path, owner: int) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise UnsafeFolder(
            f"{path} is not a private folder of the run's owner.", hint="Remove it, or set deployment.endpoint."
        )
