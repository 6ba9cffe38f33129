"""Errors of stored events and state."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.core import FlyballError

NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
LEAST_ROOM_BYTES = 64 << 10
"""With less than this a disk counts as full: SQLite's WAL index grows by 32 KiB at a time."""

BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG}
"""SQLite's errors for damage; failed constraints and oversized values come only from changed pages."""

WAY_OUT = (
    "Restore it from a copy. For a journal, `flyball journal verify` lists all damage, and `flyball journal rebuild` "
    "repairs it if all records are sound."
)


class StorageError(FlyballError):
    """A database of Flyball's could not be used."""


class StorageFull(StorageError):
    """The disk is full. What was acknowledged is safe."""


class StorageInUse(StorageError):
    """Another process writes to this file."""


class NotAJournal(StorageError):
    """The file is missing, something else, or of another version."""


class OtherFormat(NotAJournal):
    """The file is of another format than this program reads."""


class DamagedDatabase(NotAJournal):
    """The file's content has changed since it was written."""

    def __init__(self, message: str, *, hint: str = WAY_OUT) -> None:
        super().__init__(message, hint=hint)


class DamagedRow(DamagedDatabase):
    """A row of a table other than ``frames`` has a wrong checksum."""

    def __init__(self, table: str, key: object) -> None:
        super().__init__(f"Damaged journal: the checksum of {key!r} in its table {table} is wrong.")


class DamagedState(DamagedDatabase):
    """A row of saved state is not what was once written."""


class OutOfOrder(StorageError):
    """A record does not continue the journal."""


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn SQLite's errors into ours."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StorageError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # none: text is no UTF-8
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _has_room(path)):
        return StorageFull(f"No room to write {path}.", hint="Free some disk space, then start again.")
    if code in BROKEN:
        return DamagedDatabase(f"{path} is damaged or not a database ({error}).")
    return StorageError(f"{path} could not be used: {error}.", hint="Look at the file's owner, mode and disk.")


def _has_room(path: Path) -> bool:
    """Tell a broken disk from a full one: SQLite calls both an I/O error when it syncs or maps memory."""
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return True
    return found.f_bavail * found.f_frsize >= LEAST_ROOM_BYTES
