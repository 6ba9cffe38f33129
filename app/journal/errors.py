"""What can go wrong with stored events and state."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core import FlyballError

FULL = {sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR}
BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB}


class StorageError(FlyballError):
    """A database of Flyball's could not be used."""


class StorageFull(StorageError):
    """The disk is full. What was acknowledged is safe."""


class StorageInUse(StorageError):
    """Another process writes to this file."""


class NotAJournal(StorageError):
    """The file is missing, something else, or of another version."""


class DamagedState(StorageError):
    """A row of saved state is not what was once written."""


class OutOfOrder(StorageError):
    """A record does not continue the journal."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except sqlite3.Error as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.Error) -> StorageError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    if code in FULL:
        return StorageFull(f"No room to write {path}.", hint="Free some disk space, then start again.")
    if code in BROKEN:
        return NotAJournal(f"{path} is damaged or no database ({error}).", hint="Restore it from a copy.")
    return StorageError(f"{path} could not be used: {error}.", hint="Look at the file's owner, mode and disk.")
