"""The journal in a SQLite file: a row per frame, a transaction per group of frames."""

import sqlite3
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from app.core import FlyballError
from app.events.frames import DeadLetter, Record, damaged, ids_of
from app.journal import queries
from app.journal.damage import damage_after, landmarks_in
from app.journal.database import (
    CHECKPOINT_PAGES,
    PAGE_BYTES,
    DamagedDatabase,
    Database,
    StorageError,
    explained,
    open_read_only,
    structural_damage,
)
from app.journal.ports import Chunk

RESERVE_BYTES = 4 << 20
CHECKED_EVENTS = 200_000
"""Number of latest events whose records are checked on opening; takes about a second."""

MAX_DEAD_LETTERS = 10_000
PAGES_PER_COMMIT = 3
"""Estimated pages of each commit: a leaf of frames, a leaf of marks, sometimes an inner page."""


class _JournalTables:
    """Reading methods shared by the writer and the read-only reader; see ``JournalReader``."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """See ``JournalReader.read``."""
        wanted = None if types is None else frozenset(types)
        records, size, position = list[Record](), 0, after
        columns = "head, bodies" if wanted is None else "head"
        with explained(self._path), closing(self._rows(columns, after, limit)) as rows:
            for first, *row in rows:
                record = queries.open_record(first, *row) if wanted is None else queries.open_header(first, *row)
                position = queries.continued(record, position, begun=position == after)
                if wanted is not None:
                    if wanted.isdisjoint(record.frame.types):
                        continue
                    query = "SELECT bodies FROM frames WHERE first = ?"
                    bodies = self._connection.execute(query, (first,)).fetchone()
                    record = queries.open_record(first, *row, *(bodies or (None,)))
                records.append(record)
                size += len(record.raw)
                if size > max_bytes:
                    break
            if position == after:
                self._check_end(after)
        return Chunk(tuple(records), position)

    def headers_back(self, upto: int) -> Iterator[Record]:
        """See ``JournalReader.headers_back``."""
        query, following = "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC", None
        with explained(self._path), closing(self._connection.execute(query, (upto,))) as rows:
            for row in rows:
                record = queries.open_header(*row)
                if following is not None and record.last != following - 1:
                    raise damaged(record.last + 1, f"position {following} of the next record")
                following = record.first
                yield record

    def landmark(self, event_type: str) -> int:
        """See ``JournalReader.landmark``."""
        with explained(self._path):
            rows = queries.rows_of(self._connection, "landmarks", "type = ?", event_type)
            return next((position for _, position in rows), 0)

    def dead_letters(self) -> list[DeadLetter]:
        """See ``JournalReader.dead_letters``; the newest 10,000 are kept."""
        with explained(self._path):
            rows = queries.rows_of(self._connection, "dead_letters", "TRUE ORDER BY number")
            return [
                DeadLetter(position, producer, reporter, error, body, number)
                for number, position, producer, reporter, error, body in rows
            ]

    def _rows(self, columns: str, after: int, limit: int) -> sqlite3.Cursor:
        """Select the records that hold events after a position."""
        start = after + 1
        query = "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC LIMIT 1"
        before = self._connection.execute(query, (start,)).fetchone()
        if before is not None and queries.open_header(*before).last > after:
            start = before[0]
        query = f"SELECT first, {columns} FROM frames WHERE first >= ? ORDER BY first LIMIT ?"  # noqa: S608 - constants
        return self._connection.execute(query, (start, limit))

    def _check_end(self, after: int) -> None:
        """Refuse a damaged index that hides later records, because readers would miss them."""
        query = "SELECT max(first), EXISTS (SELECT 1 FROM frames WHERE first > ?) FROM frames"
        last, found = self._connection.execute(query, (after,)).fetchone()
        if last is not None and last > after and not found:
            raise damaged(after + 1, f"events up to position {last} missing")


class SqliteJournal(_JournalTables):
    """The one writer of a journal file. Opening creates a missing file and migrates an older format.

    Once ``append`` returns, its records survive kill -9 and a loss of power. Every row has a checksum, and a
    damaged row is refused. Opening checks the structure of the file, the latest records, and all rows of the other
    tables (ADR-021). It raises ``DamagedRecord``, or what ``Database`` raises.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, queries.FORMAT, reserve_bytes=RESERVE_BYTES)
        super().__init__(path, self._db.connection)
        with ExitStack() as on_error, explained(path):
            on_error.callback(self._db.close)
            last = queries.last_record(self._connection)
            self.head, self.recorded_us = (last.last, last.recorded_us) if last else (0, 0)
            for damage in damage_after(self._connection, max(0, self.head - CHECKED_EVENTS)):
                raise damage
            on_error.pop_all()
        self._dead_letters = max((dead.number for dead in self.dead_letters()), default=0)
        self._wal_pages = CHECKPOINT_PAGES

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """See ``Journal.append``."""
        queries.check_order(self.head, records)
        with self._db.transaction() as db:
            for record in records:
                cut = len(record.raw) - sum(record.frame.lengths)
                view = memoryview(record.raw)
                db.execute("INSERT INTO frames VALUES (?, ?, ?)", (record.first, view[:cut], view[cut:]))
            used = records[-1].last if records else self.head
            for (producer, epoch), sequence in (marks or {}).items():
                queries.save_row(db, "marks", producer, queries.signed(epoch), sequence, used)
            for landmark in landmarks_in(records).items():
                queries.save_row(db, "landmarks", *landmark)
            number = self._dead_letters
            for dead in dead_letters:
                query = "SELECT 1 FROM dead_letters WHERE position = ? AND reporter = ?"
                if dead.position and db.execute(query, (dead.position, dead.reporter)).fetchone():
                    continue
                number += 1
                content = (dead.position, dead.producer, dead.reporter, dead.error, dead.body)
                queries.save_row(db, "dead_letters", number, *content)
                db.execute("DELETE FROM dead_letters WHERE number <= ?", (number - MAX_DEAD_LETTERS,))
        self._dead_letters = number
        if records:
            self.head, self.recorded_us = records[-1].last, records[-1].recorded_us
        self._wal_pages += PAGES_PER_COMMIT + sum(len(record.raw) for record in records) // PAGE_BYTES

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """See ``Journal.ids``."""
        with explained(self._path), closing(self._rows("head", after, -1)) as rows:
            for first, head in rows:
                yield first, ids_of(head, first)

    def mark(self, producer: str, epoch: int) -> int | None:
        """See ``Journal.mark``."""
        with explained(self._path):
            where, key = "producer = ? AND epoch = ?", (producer, queries.signed(epoch))
            return next((row[2] for row in queries.rows_of(self._connection, "marks", where, *key)), None)

    def remove_dead_letter(self, number: int) -> bool:
        """See ``Journal.remove_dead_letter``."""
        with self._db.transaction() as db:
            return db.execute("DELETE FROM dead_letters WHERE number = ?", (number,)).rowcount == 1

    def rest(self, *, idle: bool = True) -> None:
        """Checkpoint the WAL if it is long; if ``idle``, also a short one.

        A checkpoint between transactions delays no commit; one during commits would set their 99th-percentile latency.
        """
        if self._wal_pages >= CHECKPOINT_PAGES or (idle and self._wal_pages):
            self._db.checkpoint()
            self._wal_pages = 0

    def close(self) -> None:
        """Close. Idempotent."""
        self._db.close()


class SqliteJournalReader(_JournalTables):
    """Reads a journal file, also while a broker writes it. Raises what ``open_read_only`` raises."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, open_read_only(path, queries.FORMAT))

    @property
    def head(self) -> int:
        """Position of the last event; 0 in an empty journal."""
        with explained(self._path):
            last = queries.last_record(self._connection)
        return last.last if last else 0

    def damage(self) -> Iterator[FlyballError]:
        """Iterate over all damage of the file: pages, records and other tables."""
        with explained(self._path):
            for problem in structural_damage(self._connection):
                yield DamagedDatabase(f"{self._path} is damaged: {problem}.")
            # Read all tables in one snapshot, because otherwise rows that a broker writes meanwhile look like damage.
            self._connection.execute("BEGIN")
            try:
                yield from damage_after(self._connection, 0)
            finally:
                self._connection.execute("ROLLBACK")

    def backup(self, path: Path) -> int:
        """Copy the journal as it is now into a new file, also while a broker writes it.

        The file gets its name once it is complete, and checked as ``damage`` does.

        Returns:
            Position of the copy's last event.

        Raises:
            StorageError: the file exists or cannot be written; ``StorageFull`` if the disk is full.
            FlyballError: the journal is damaged; see ``damage``.
        """
        if path.exists():
            raise StorageError(f"{path} is there already.", hint="Name a new file, or move that one away.")
        partial = path.with_name(path.name + ".partial")
        try:
            partial.unlink(missing_ok=True)
            with explained(partial), closing(sqlite3.connect(partial)) as copy:
                self._connection.backup(copy)  # in one step, so it is one snapshot
                copy.execute("PRAGMA journal_mode = DELETE")  # no file beside it
            with closing(SqliteJournalReader(partial)) as reader:
                for damage in reader.damage():
                    raise damage
                head = reader.head
            partial.replace(path)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}.", hint="Name a file in another folder.") from error
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
        return head

    def close(self) -> None:
        """Close. Idempotent."""
        self._connection.close()
