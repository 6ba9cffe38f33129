"""A run's folder: its creation, its lock, which the supervisor holds, and the broker's address."""

import fcntl
import os
import stat
import tempfile
from pathlib import Path
from typing import BinaryIO

from flyball.app.config import Deployment, RunFolder
from flyball.app.config.layers import BadSettings
from flyball.app.core import FlyballError, derive_id
from flyball.app.journal.kept_files import OTHER_HISTORY, rescued_copy
from flyball.app.journal.ports import JournalLocation
from flyball.app.journal.state import saved_position

MAX_SOCKET_PATH = 100
"""Longest path of a socket, in bytes. The kernel allows 107 (unix(7), sun_path); ZeroMQ's own names need a few."""

SOCKET_NAME = "bus.sock"


class UnusableFolder(FlyballError, code="usage"):
    """A folder that cannot hold a run."""


class AlreadyRunning(FlyballError):
    """Daemons run in this folder already."""


class LostJournal(FlyballError, code="usage"):
    """A run folder that has lost its journal."""


class UnsafeFolder(FlyballError):
    """A folder for sockets that others own or may enter."""


class FolderLost(UnusableFolder):
    """A run folder that was moved, deleted or replaced."""


def check_present(folder: RunFolder) -> None:
    """Refuse a prepared run folder that is gone, where a daemon would begin another run. Raises ``FolderLost``."""
    if not folder.path.is_dir():
        raise FolderLost(f"The run folder {folder.path} is gone.", hint="Start the run where the folder is now.")


def prepare(folder: RunFolder) -> None:
    """Make the run folder if it is missing. Raises ``UnusableFolder`` if no files can be made in it."""
    path = folder.path
    try:
        path.mkdir(parents=True, exist_ok=True)
        for writable in (path, *(inner for inner in path.iterdir() if inner.is_dir())):
            with tempfile.TemporaryFile(dir=writable):
                pass
    except OSError as error:
        raise UnusableFolder(
            f"{path.absolute()} cannot be used as a run folder: {error}.",
            hint="Name a folder that you may write to.",
        ) from error


class FolderLock:
    """A supervisor's lock on a prepared run folder. Raises ``AlreadyRunning`` if another supervisor holds it."""

    def __init__(self, folder: RunFolder) -> None:
        self._path, self._file_path = folder.path.absolute(), folder.up_lock.absolute()
        self._folder = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            self._file = self._locked()
        except AlreadyRunning:
            os.close(self._folder)
            raise

    def _locked(self) -> BinaryIO:
        file = self._file_path.open("wb")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.close()
            raise AlreadyRunning(
                f"Another `flyball up` runs in {self._path}.", hint="Stop it, or choose another run folder."
            ) from None
        return file

    def check(self) -> None:
        """Lock the folder again if the lock's file was removed.

        Raises ``FolderLost`` if its path leads to another folder or nowhere, ``AlreadyRunning`` if another supervisor
        was faster, or ``OSError``.
        """
        if not _is_at(self._path, self._folder):
            raise FolderLost(
                f"The run folder {self._path} was moved, deleted or replaced.",
                hint="The run ends, because its processes would write to two places. Start it where the folder is now.",
            )
        if not _is_at(self._file_path, self._file.fileno()):
            lost, self._file = self._file, self._locked()
            lost.close()

    def close(self) -> None:
        """Release the folder."""
        self._file.close()
        os.close(self._folder)


def _is_at(path: Path, descriptor: int) -> bool:
    """Return whether a path leads to an open file or folder."""
    try:
        return os.path.samestat(path.stat(), os.fstat(descriptor))
    except OSError:
        return False


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


def check_history(folder: RunFolder, journal: JournalLocation) -> None:
    """Refuse to begin a new journal beside an earlier one's files.

    Raises ``LostJournal``: the journal is missing or empty, and there is an archive, daemons' state or another journal.
    """
    if journal.is_begun():
        return
    if folder.journal.is_file() and folder.journal.stat().st_size:
        raise LostJournal(
            f"{journal} has no events, and {folder.journal} has this run's.",
            hint=f"Copy them, or begin another run in another folder: flyball journal copy {folder.journal} {journal}",
        )
    left = [path for path in (folder.journal_id,) if path.exists()]
    left += (folder.path / "archive").glob("*.segment")
    left += [path for path in sorted((folder.path / "state").glob("*.sqlite")) if saved_position(path)]
    if left and str(journal) != str(folder.journal):
        raise LostJournal(
            f"{journal} has no events, and {left[0]} belongs to the journal of this run.",
            hint="Name the run's own database in deployment.journal.url, or begin another run in another folder.",
        )
    if left:
        copy = rescued_copy(folder.journal) or "a copy"
        raise LostJournal(
            f"{journal} is missing, and {left[0]} belongs to the journal that was there.",
            hint=f"Put the journal back from {copy}. To begin another run, move state, outbox and archive away, too.",
        )


def check_heads(deployment: Deployment) -> None:
    """Refuse a second head without a journal that both share. Raises ``BadSettings``."""
    if deployment.other_head is not None and deployment.journal.url is None:
        raise BadSettings(
            "deployment.other_head is set, and each head would have a journal of its own.",
            hint="Name a PostgreSQL database that both heads reach in deployment.journal.url.",
        )


def bus_endpoint(folder: RunFolder, deployment: Deployment) -> str:
    """Return the broker's address: the configured one, or a socket in the run folder.

    When the path is too long for a socket, ``sockets`` in the run folder links to a private folder with a shorter
    path. The link leads all processes to the same folder, even if their temporary folders differ. The private folder is
    named after the run folder's device and inode. So it stays when the run folder is renamed, and the link of a copied
    run folder is replaced.

    Raises:
        UnsafeFolder: others own or may enter the private folder, or ``sockets`` is no link.
    """
    if deployment.endpoint is not None:
        return deployment.endpoint
    path = folder.path.absolute()
    if len(os.fsencode(path / SOCKET_NAME)) > MAX_SOCKET_PATH:
        path = _short_path(path)
    return f"ipc://{path / SOCKET_NAME}"


def _short_path(folder: Path) -> Path:
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
        status = folder.stat()
    except OSError:
        return f"flyball-{derive_id(str(folder))[:16]}"
    return f"flyball-{derive_id(str(status.st_dev), str(status.st_ino))[:16]}"


def _check_private(path: Path, owner: int) -> None:
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != owner or status.st_mode & 0o077:
        raise UnsafeFolder(
            f"{path} is not a private folder of the run's owner.", hint="Remove it, or set deployment.endpoint."
        )
