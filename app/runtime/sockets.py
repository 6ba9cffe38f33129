"""Where the broker of a run folder is reached."""

import os
import stat
import tempfile
from pathlib import Path

from app.config import Deployment, RunFolder
from app.core import FlyballError, derive_id

MAX_SOCKET_PATH = 100
"""Bytes. The kernel's bound is 107 (unix(7), sun_path); ZeroMQ's own names need a few."""

SOCKET_NAME = "bus.sock"


class UnsafeFolder(FlyballError):
    """A folder for sockets belongs to somebody else, or others may enter it."""


def bus_endpoint(folder: RunFolder, deployment: Deployment) -> str:
    """Return the broker's address: what the settings say, or a socket in the run folder.

    When the path is too long for a socket, ``sockets`` in the run folder is a link to a private folder with a
    shorter one: everybody finds the same, whatever their environment says of temporary folders.

    Raises:
        UnsafeFolder: the private folder is not ours alone.
    """
    if deployment.endpoint is not None:
        return deployment.endpoint
    path = folder.path.absolute() / SOCKET_NAME
    if len(os.fsencode(path)) > MAX_SOCKET_PATH:
        path = _linked(folder.path.absolute()) / SOCKET_NAME
    return f"ipc://{path}"


def _linked(folder: Path) -> Path:
    link = folder / "sockets"
    if not link.is_dir():  # never made, or lost with a temporary folder
        folder.mkdir(parents=True, exist_ok=True)
        scratch = link.with_name(f"sockets.{os.getpid()}")
        scratch.unlink(missing_ok=True)
        scratch.symlink_to(_private(folder))
        scratch.replace(link)
    target = link.readlink()
    _check(target, link.lstat().st_uid)
    return target


def _private(folder: Path) -> Path:
    base = Path(os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir())
    path = base / f"flyball-{derive_id(str(folder))[:16]}"
    path.mkdir(mode=0o700, exist_ok=True)
    _check(path, os.getuid())
    return path


def _check(path: Path, owner: int) -> None:
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != owner or found.st_mode & 0o077:
        raise UnsafeFolder(
            f"{path} is not a private folder of the run's owner.", hint="Remove it, or set deployment.endpoint."
        )
