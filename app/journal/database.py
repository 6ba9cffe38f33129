"""SQLite files in WAL mode, with one writing connection for each.

SQLite before 3.51.3 can corrupt a WAL that several connections write and checkpoint at once. So a lock file keeps a
second writer out, and readers open the file read-only and never checkpoint. A connection may be created in one thread
and used in another, but only by one thread at a time.
"""

import ctypes
import errno
import fcntl
import os
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from shlex import quote
from typing import Literal

from flyball.app.core import FlyballError
from flyball.app.journal.file_watch import FileWatch
from flyball.app.journal.kept_files import RESCUED, sync, unused_path

PAGE_BYTES = 8192
CHECKPOINT_PAGES = 200
"""WAL pages after which the owner should checkpoint, between two transactions."""

LATEST_CHECKPOINT_PAGES = 2000
"""WAL pages after which SQLite checkpoints within a commit, which delays the commit."""

BEGIN = "Start `flyball up` once, or choose another run folder."
"""Hint of errors about a missing or empty journal."""

HEADER = b"SQLite format 3\0" + PAGE_BYTES.to_bytes(2, "big")
"""First bytes of every file written here."""

WITHOUT_WAL = b"\1\1"
"""Next bytes of a backup; those of a file that had a WAL are 2 and 2 (https://sqlite.org/fileformat2.html)."""


NO_ROOM = {errno.ENOSPC, errno.EDQUOT}
LEAST_ROOM_BYTES = 64 << 10
"""A disk with less space counts as full, because SQLite's WAL index grows by 32 KiB at a time."""

BROKEN = {sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CONSTRAINT, sqlite3.SQLITE_TOOBIG}
"""SQLite's error codes for damage. Only damaged pages cause failed constraints and oversized values."""

WAY_OUT = (
    "Restore it from a copy. For a journal, `flyball journal verify` lists all damage, and `flyball journal rebuild` "
    "repairs it if all records are sound."
)


class StorageError(FlyballError):
    """A Flyball database could not be used."""


class StorageFull(StorageError):
    """The disk is full, or a size limit is reached. Acknowledged events are safe."""


class StorageInUse(StorageError):
    """Another process writes to this file."""


class FileTouched(StorageError):
    """Another program touched a file that this process writes; all acknowledged data is in the main file."""


class FileReplaced(FileTouched):
    """The main file was deleted, moved, replaced or overwritten."""


class NotAJournal(StorageError, code="not_running"):
    """The file is missing, no Flyball database, or of another format."""


class OtherFormat(NotAJournal, code="usage"):
    """The file has a format that this program does not read."""


class DamagedDatabase(NotAJournal, code="damaged_database"):
    """The file's content has changed since it was written."""

    def __init__(self, message: str, *, hint: str = WAY_OUT) -> None:
        super().__init__(message, hint=hint)


class DamagedRow(DamagedDatabase):
    """A row of a table other than ``frames`` has a wrong checksum."""

    def __init__(self, table: str, key: object) -> None:
        super().__init__(f"Damaged journal: the checksum of {key!r} in its table {table} is wrong.")


class DamagedState(DamagedDatabase):
    """Saved state has changed since it was written."""


class ServerUnavailable(StorageError, code="unavailable"):
    """The database server cannot be reached, or ended the connection."""


class ServerRefused(StorageError, code="usage"):
    """The database server refuses this user, or is set so that it could lose what it confirmed."""


class OutOfOrder(StorageError):
    """A record does not continue the journal."""


Migration = Callable[[sqlite3.Connection], None]
"""Migrates a file from one format to the next, within a transaction."""


@dataclass(frozen=True, slots=True)
class Format:
    """The current format of a kind of file.

    Attributes:
        kind: 32 bits that mark the file as ours (SQLite's ``application_id``).
        schema: the statements that create the tables.
        migrations: one from each older format to the next, beginning with format 0.
    """

    kind: int
    schema: Sequence[str]
    migrations: Sequence[Migration] = ()

    @property
    def version(self) -> int:
        """The number of this format (SQLite's ``user_version``)."""
        return len(self.migrations)

    def objects(self) -> list[tuple[str, ...]]:
        """Return tables and triggers with their definitions, as SQLite stores them."""
        with closing(sqlite3.connect(":memory:")) as connection:
            for statement in self.schema:
                connection.execute(statement)
            return _objects(connection)


class Database:
    """One SQLite file that this process alone writes.

    Opening migrates an older format and checks the structure of all pages, at about 1 GB/s.

    Args:
        path: the file; created with its folders when missing.
        form: its format.
        synchronous: FULL makes a commit durable on return; NORMAL may lose the last commits when power fails.
        reserve_bytes: size of a reserve file beside it, deleted on a full disk so that closing succeeds.
        rescued: copy the content beside the file if the file loses its name while it is open.

    Every transaction and checkpoint raises ``FileTouched`` if another program touched a file of the database.

    Raises:
        StorageInUse: another process writes the file.
        StorageError: the folder can't be created or written.
        NotAJournal: the file is of another kind.
        OtherFormat: a newer program wrote it.
        DamagedDatabase: its content has changed since it was written.
    """

    def __init__(
        self,
        path: Path,
        form: Format,
        *,
        synchronous: Literal["FULL", "NORMAL"] = "FULL",
        reserve_bytes: int = 0,
        rescued: bool = False,
    ) -> None:
        self.path, self._rescued = path, rescued
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._lock = _lock(path)
        except OSError as error:
            raise StorageError(
                f"{path} cannot be written: {error}.", hint="Look at the folder's owner and mode, or name another."
            ) from error
        self._reserve = path.with_name(path.name + ".reserve") if reserve_bytes else None
        with ExitStack() as on_error, storage_errors(path):
            on_error.callback(os.close, self._lock)
            self.connection = _open(path, form, synchronous)
            on_error.callback(self.connection.close)
            if self._reserve is not None:
                _reserve(self._reserve, reserve_bytes)
            on_error.pop_all()
        self._watch = FileWatch(path)
        self._open = True

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Write in one transaction. The transaction is committed on leaving and rolled back on an error."""
        self.check()
        try:
            try:
                with storage_errors(self.path):
                    self.connection.execute("BEGIN IMMEDIATE")
                    yield self.connection
                    self.connection.execute("COMMIT")
            finally:
                self._watch.note()  # also of a checkpoint that failed half way, which would look like an overwrite
            self.check()
        except BaseException as error:
            if isinstance(error, StorageFull) and self._reserve is not None:
                self._reserve.unlink(missing_ok=True)
            if self.connection.in_transaction:
                self.connection.execute("ROLLBACK")
            raise

    def checkpoint(self) -> None:
        """Copy the WAL's pages into the database, as far as readers allow."""
        self._run("PRAGMA wal_checkpoint(PASSIVE)")

    def shrink(self) -> None:
        """Give free pages back to the disk."""
        self._run("VACUUM", "PRAGMA wal_checkpoint(PASSIVE)")

    def _run(self, *statements: str) -> None:
        self.check()
        try:
            with storage_errors(self.path):
                for statement in statements:
                    self.connection.execute(statement).fetchall()
        finally:
            self._watch.note()  # see ``transaction``

    def close(self) -> None:
        """Close and release the lock. Idempotent."""
        if self._open:
            self._open = False
            if (touched := self._watch.look()) and (touched.in_place or touched.path == self._watch.main):
                # SQLite would write the WAL into the other file, or remove that file's WAL. So leave it open.
                ctypes.pythonapi.Py_IncRef(ctypes.py_object(self.connection))
            else:
                self.connection.close()
            os.close(self._lock)

    def check(self) -> None:
        """Save acknowledged transactions and raise ``FileTouched`` if another program touched a file."""
        touched, folder = self._watch.look(), self.path.parent
        if touched is None:
            return
        if not folder.is_dir():
            raise FileReplaced(
                f"The folder {folder} was deleted or moved away while this process wrote {self.path.name} in it.",
                hint="Start again with its new path, or restore it from a copy.",
            )
        if touched.path != self._watch.main and not touched.in_place:
            with storage_errors(self.path):
                self.connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            raise FileTouched(
                f"{touched.path} {touched.how} while this process wrote {self.path}.",
                hint="Nothing that was acknowledged is lost. Start again, and leave the files to Flyball.",
            )
        if touched.in_place and not touched.resized:  # perhaps only its times; then the file needs its WAL
            raise FileReplaced(
                f"{touched.path} {touched.how} while this process wrote {self.path}.",
                hint="If only its times were changed, start again: nothing is lost. Otherwise put the latest copy back "
                f"as {self.path}, remove {self.path}-wal, and start.",
            )
        copy = self._rescue() if self._rescued and not touched.in_place else None
        if self._watch.has_wal():  # SQLite would apply it to the file that gets the name
            Path(self._watch.wal).replace(unused_path(self.path.with_name(f"{self.path.name}-wal.lost")))
            Path(f"{self.path}-shm").unlink(missing_ok=True)
        outcome = f"All that was acknowledged is in {copy}." if copy else "The latest transactions may be lost."
        if self._rescued:
            hint = f"Put {copy or 'the latest copy'} back as {self.path}, or accept the file that is there. Then start."
        else:
            hint = "The daemon rebuilds it from the journal when it starts again."
        raise FileReplaced(f"{touched.path} {touched.how} while this process wrote {self.path}. {outcome}", hint=hint)

    def _rescue(self) -> Path | None:
        """Copy the open file beside its lost name; return the copy, None if it can't be written."""
        copy = unused_path(self.path.with_name(f"{self.path.name}{RESCUED}"))
        try:
            with closing(sqlite3.connect(copy)) as target:
                self.connection.backup(target)
                target.execute("PRAGMA journal_mode = DELETE")  # leaves no file beside the copy
            sync(copy)
        except (sqlite3.Error, OSError):
            copy.unlink(missing_ok=True)
            return None
        return copy


def open_read_only(path: Path, form: Format, *, immutable: bool = False) -> sqlite3.Connection:
    """Open a database for reading.

    Another process may write it meanwhile, unless it is ``immutable``. A file without a WAL counts as immutable if its
    folder can't be written, because SQLite would have to create files there. A backup is such a file.

    Raises:
        StorageError: this process may not read the file.
        NotAJournal: the file is missing or of another kind.
        OtherFormat: the file has an older or a newer format.
        DamagedDatabase: the file's header or schema is damaged.
    """
    if not path.is_file():
        raise NotAJournal(f"There is no journal at {path}.", hint=BEGIN)
    try:
        check_header(path)
    except OSError as error:
        raise StorageError(f"{path} cannot be read: {error}.", hint="Look at its owner and mode.") from error
    with ExitStack() as on_error, storage_errors(path):
        options = "mode=ro&immutable=1" if immutable or _is_at_rest(path) else "mode=ro"
        uri = f"{path.absolute().as_uri()}?{options}"
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
        on_error.callback(connection.close)
        connection.execute("PRAGMA query_only = ON")
        if (version := _version(path, connection, form)) < form.version:
            raise OtherFormat(
                f"{path} is of format {version}, from an earlier version of Flyball; this one reads format "
                f"{form.version}.",
                hint="Run `flyball journal migrate`, or start the run.",
            )
        _check_schema(path, connection, form)
        on_error.pop_all()
    return connection


def _is_at_rest(path: Path) -> bool:
    """Return whether a file must be read as an immutable one.

    Raises ``StorageError`` if it has a WAL whose index would have to be created in a folder that can't be written.
    """
    wal, index = Path(f"{path}-wal"), Path(f"{path}-shm")
    if os.access(path.parent, os.W_OK) or index.exists():
        return False
    if wal.exists() and wal.stat().st_size:
        raise StorageError(
            f"{path} has a WAL without an index, which cannot be created: {path.parent} cannot be written.",
            hint=f"Copy {path.name} and {wal.name} to a folder of yours, and read them there.",
        )
    return True


def remove_database(path: Path) -> None:
    """Remove a database that nobody has open, with the files beside it."""
    for suffix in ("", "-wal", "-shm", ".lock", ".reserve"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def structural_damage(connection: sqlite3.Connection) -> Iterator[str]:
    """Check the structure of all pages and iterate over problems."""
    for (problem,) in connection.execute("PRAGMA integrity_check"):
        if problem != "ok":
            yield problem.replace("\n", " ")


def _open(path: Path, form: Format, synchronous: str) -> sqlite3.Connection:
    check_header(path)
    with ExitStack() as on_error:
        connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        on_error.callback(connection.close)
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            marks = (f"PRAGMA application_id = {form.kind}", f"PRAGMA user_version = {form.version}")
            for statement in ("BEGIN IMMEDIATE", *marks, *form.schema, "COMMIT"):
                connection.execute(statement)
        version = _version(path, connection, form)
        for problem in structural_damage(connection):
            raise DamagedDatabase(f"{path} is damaged: {problem}.")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute(f"PRAGMA synchronous = {synchronous}")
        connection.execute(f"PRAGMA wal_autocheckpoint = {LATEST_CHECKPOINT_PAGES}")
        connection.execute(f"PRAGMA journal_size_limit = {LATEST_CHECKPOINT_PAGES * PAGE_BYTES}")
        if version < form.version:
            connection.execute("BEGIN IMMEDIATE")
            for migrate in form.migrations[version:]:
                migrate(connection)
            connection.execute(f"PRAGMA user_version = {form.version}")
            connection.execute("COMMIT")
        _check_schema(path, connection, form)
        on_error.pop_all()
    return connection


def check_header(path: Path) -> None:
    """Refuse a file with another header, because SQLite would misread its pages.

    A backup beside the WAL of the file that it replaces is refused, because SQLite would write that WAL into it.

    Raises:
        DamagedDatabase: it is such a file.
    """
    if not path.is_file():
        return
    wal = Path(f"{path}-wal")
    has_wal = wal.is_file() and wal.stat().st_size > 0  # looked at first: a writer marks the header before it has one
    with path.open("rb") as file:
        header, mode = file.read(len(HEADER)), file.read(len(WITHOUT_WAL))
    if header and header != HEADER:
        raise DamagedDatabase(f"{path} is damaged or not a Flyball database: its header is wrong.")
    if has_wal and mode == WITHOUT_WAL:
        raise DamagedDatabase(
            f"{path} is a backup, and {wal.name} beside it was left by another file. Together they are damaged.",
            hint=f"To go on from the backup: rm {quote(str(wal))} {quote(f'{path}-shm')}",
        )


def _version(path: Path, connection: sqlite3.Connection, form: Format) -> int:
    """Return a file's format version; refuse other kinds and newer versions."""
    kind = connection.execute("PRAGMA application_id").fetchone()[0]
    if kind != form.kind:
        if connection.execute("PRAGMA page_count").fetchone()[0] == 0:
            raise NotAJournal(f"{path} is empty.", hint=BEGIN)
        raise NotAJournal(f"{path} was not written by this version of Flyball.", hint="Name another file.")
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if not 0 <= version <= form.version:
        raise OtherFormat(
            f"{path} is of format {version}; this version of Flyball knows formats up to {form.version}.",
            hint="Use the version of Flyball that wrote it, or a later one.",
        )
    return version


def _check_schema(path: Path, connection: sqlite3.Connection, form: Format) -> None:
    if _objects(connection) != form.objects():
        raise DamagedDatabase(f"{path} is damaged: its schema is not the one of format {form.version}.")


def _objects(connection: sqlite3.Connection) -> list[tuple[str, ...]]:
    query = "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' ORDER BY name"
    return connection.execute(query).fetchall()


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold a file's writer lock. Raises ``StorageInUse``."""
    lock = _lock(path)
    try:
        yield
    finally:
        os.close(lock)


def _lock(path: Path) -> int:
    lock = os.open(path.with_name(path.name + ".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(lock)
        raise StorageInUse(
            f"Another process writes {path}.", hint="Stop it first, or choose another run folder."
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


@contextmanager
def storage_errors(path: Path) -> Iterator[None]:
    """Convert SQLite's errors into ``StorageError`` and its subclasses."""
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _explain(path, error) from error


def _explain(path: Path, error: sqlite3.Error | UnicodeDecodeError) -> StorageError:
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF  # an error without a code is invalid UTF-8
    if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and not _has_room(path)):
        return StorageFull(f"No room to write {path}.", hint="Free some disk space, then start again.")
    if code in BROKEN:
        return DamagedDatabase(f"{path} is damaged or not a database ({error}).")
    return StorageError(f"{path} could not be used: {error}.", hint="Look at the file's owner, mode and disk.")


def _has_room(path: Path) -> bool:
    """Return whether the disk has room. SQLite may report a full disk as an I/O error."""
    try:
        status = os.statvfs(path.parent)
    except OSError:
        return True
    return status.f_bavail * status.f_frsize >= LEAST_ROOM_BYTES
