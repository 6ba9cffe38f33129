"""SQLite as Flyball uses it: WAL, one connection per file that both writes and checkpoints.

SQLite before 3.51.3 can corrupt a WAL that several connections write and checkpoint at once; a lock file keeps a
second writer out, and readers open the file read-only, which never checkpoints. A connection may be made in one
thread and used in another, but by one at a time.
"""

import fcntl
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from app.journal.errors import NO_ROOM, NotAJournal, StorageError, StorageFull, StorageInUse, explained

PAGE_BYTES = 8192
CHECKPOINT_PAGES = 200
"""WAL pages after which its owner should checkpoint, at a moment of its choice."""

LATEST_CHECKPOINT_PAGES = 2000
"""WAL pages after which a commit checkpoints, whoever waits for it."""

BEGIN = "Start `flyball up` once, or choose another folder by --run."
"""What to do where there is no journal yet."""


class Database:
    """One SQLite file that this process alone writes.

    Args:
        path: the file; created with its folders when missing.
        schema: statements that create the tables.
        kind: 32 bits that mark the file as ours (SQLite's ``application_id``).
        synchronous: FULL makes a commit durable on return, NORMAL keeps it consistent but may lose the last ones.
        reserve_bytes: room kept free in a file beside, given up when the disk is full so that closing succeeds.

    Raises:
        StorageInUse: another process writes it.
        StorageError: its folder can't be made or written.
        NotAJournal: the file is something else.
    """

    def __init__(
        self,
        path: Path,
        schema: str,
        *,
        kind: int,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        reserve_bytes: int = 0,
    ) -> None:
        self.path = path
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(path)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be written: {error}.", hint="Look at the folder's owner and mode, or name another."
            ) from error
        self._reserve = path.with_name(path.name + ".reserve") if reserve_bytes else None
        try:
            with explained(path):
                self.connection = _open(path, schema, kind, synchronous)
            if self._reserve is not None:
                _reserve(self._reserve, reserve_bytes)
        except BaseException:
            os.close(self._lock)
            raise
        self._open = True

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write in one transaction, committed on leaving and rolled back on an error."""
        try:
            with explained(self.path):
                self.connection.execute("BEGIN IMMEDIATE")
                yield self.connection
                self.connection.execute("COMMIT")
        except BaseException as error:
            if isinstance(error, StorageFull) and self._reserve is not None:
                self._reserve.unlink(missing_ok=True)
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def checkpoint(self) -> None:
        """Move what the WAL holds into the database, as far as readers allow."""
        with explained(self.path):
            self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()

    def close(self) -> None:
        """Close and give the lock back. Twice does nothing."""
        if self._open:
            self._open = False
            self.connection.close()
            os.close(self._lock)


def open_read_only(path: Path, *, kind: int) -> sqlite3.Connection:
    """Open a database for reading, also while another process writes it.

    Raises:
        NotAJournal: there is none, or it is something else.
    """
    if not path.is_file():
        raise NotAJournal(f"There is no journal at {path}.", hint=BEGIN)
    with explained(path):
        connection = sqlite3.connect(
            f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None, check_same_thread=False
        )
        connection.execute("PRAGMA query_only = ON")
        _check_kind(path, connection, kind)
    return connection


def _open(path: Path, schema: str, kind: int, synchronous: str) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    try:
        if connection.execute("PRAGMA page_count").fetchone()[0]:
            _check_kind(path, connection, kind)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LATEST_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LATEST_CHECKPOINT_PAGES * PAGE_BYTES}")
        connection.executescript(f"BEGIN IMMEDIATE; PRAGMA application_id = {kind}; {schema} COMMIT;")
    except BaseException:
        connection.close()
        raise
    return connection


def _check_kind(path: Path, connection: sqlite3.Connection, kind: int) -> None:
    found = connection.execute("PRAGMA application_id").fetchone()[0]
    if found != kind:
        empty = connection.execute("PRAGMA page_count").fetchone()[0] == 0
        connection.close()
        if empty:
            raise NotAJournal(f"{path} is empty.", hint=BEGIN)
        raise NotAJournal(f"{path} was not written by this version of Flyball.", hint="Name another file.")


def _lock(path: Path) -> int:
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StorageInUse(
            f"Another process writes {path}.", hint="Stop it first, or choose another folder by --run."
        ) from error
    return lock


def _reserve(path: Path, size: int) -> None:
    if path.is_file() and path.stat().st_size == size:
        return
    try:
        path.write_bytes(b"\0" * size)
    except OSError as error:
        path.unlink(missing_ok=True)
        if error.errno not in NO_ROOM:
            raise StorageError(
                f"{path} cannot be written: {error}.", hint="Look at the folder's owner and mode."
            ) from error
        raise StorageFull(f"No room for a reserve of {size} bytes at {path}.", hint="Free some disk space.") from error
