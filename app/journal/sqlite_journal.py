"""The journal in one SQLite file: one row a frame, one transaction a group of them."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from app.core import FlyballError
from app.events.frames import DeadLetter, Record
from app.journal import queries
from app.journal.damage import check, damage_after, landmarks_in
from app.journal.database import CHECKPOINT_PAGES, PAGE_BYTES, Database, open_read_only, structural_damage
from app.journal.errors import DamagedDatabase, OutOfOrder, explained
from app.journal.ports import Chunk

RESERVE_BYTES = 4 << 20
CHECKED_EVENTS = 200_000
"""Latest events whose records are checked at a start; takes about a second."""

MAX_DEAD_LETTERS = 10_000
PAGES_PER_COMMIT = 3
"""An estimate: a leaf of the frames, one of the marks, and now and then an inner page."""


class SqliteJournal:
    """The one writer of a journal file.

    Once ``append`` returns, its records survive kill -9 and a loss of power. Every row is checksummed, and a damaged
    one is refused. Opening checks the structure of the file, the latest records, and all rows of the other tables
    (ADR-021).

    Args:
        path: the file; created when missing, migrated when it is of an older format.

    Raises:
        StorageInUse: another process writes it.
        NotAJournal: the file is something else.
        OtherFormat: a newer program wrote it.
        DamagedDatabase: it is damaged.
        DamagedRecord: one of its latest records is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, queries.FORMAT, reserve_bytes=RESERVE_BYTES)
        try:
            with explained(path):
                last = queries.last_record(self._db.connection)
                check(self._db.connection, after=(last.last if last else 0) - CHECKED_EVENTS)
        except BaseException:
            self._db.close()
            raise
        self.head = last.last if last else 0
        self.recorded_us = last.recorded_us if last else 0
        self._letters = max((letter.number for letter in queries.dead_letters(self._db.connection)), default=0)
        self._wal_pages = CHECKPOINT_PAGES

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        cursors: Mapping[str, int] | None = None,
        letters: Sequence[DeadLetter] = (),
    ) -> None:
        """Write all of it in one transaction; on return it is on the disk."""
        check_order(self.head, records)
        with self._db.transaction() as db:
            db.executemany("INSERT INTO frames VALUES (?, ?, ?)", map(_row, records))
            if marks:
                used = records[-1].last if records else self.head
                for (producer, epoch), sequence in marks.items():
                    queries.save_row(db, "marks", producer, queries.signed(epoch), sequence, used)
            for landmark in landmarks_in(records).items():
                queries.save_row(db, "landmarks", *landmark)
            for cursor in (cursors or {}).items():
                queries.save_row(db, "cursors", *cursor)
            number = self._letters
            for letter in letters:
                if not queries.is_kept(db, letter):
                    number += 1
                    content = (letter.position, letter.producer, letter.reporter, letter.error, letter.body)
                    queries.save_row(db, "dead_letters", number, *content)
                    db.execute("DELETE FROM dead_letters WHERE number <= ?", (number - MAX_DEAD_LETTERS,))
        self._letters = number
        if records:
            self.head, self.recorded_us = records[-1].last, records[-1].recorded_us
        self._wal_pages += PAGES_PER_COMMIT + sum(len(record.raw) for record in records) // PAGE_BYTES

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """Read the records that hold events after a position."""
        with explained(self._db.path):
            return queries.read_chunk(self._db.connection, after, limit, max_bytes, types)

    def headers_back(self, upto: int) -> Iterator[Record]:
        """Iterate backwards over the records up to a position, without their bodies."""
        with explained(self._db.path):
            yield from queries.read_headers_back(self._db.connection, upto)

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Iterate over the records after a position: first position and hashes of the event ids."""
        with explained(self._db.path):
            yield from queries.read_ids(self._db.connection, after)

    def landmark(self, event_type: str) -> int:
        """Return the position of the latest event of a type in ``LANDMARKS``; 0 when there is none."""
        with explained(self._db.path):
            return queries.landmark(self._db.connection, event_type)

    def mark(self, producer: str, epoch: int) -> int | None:
        """Return the next sequence number of a producer's epoch; None when it was never seen."""
        with explained(self._db.path):
            return queries.mark(self._db.connection, producer, epoch)

    def cursors(self) -> dict[str, int]:
        """Return the durable cursors by name."""
        with explained(self._db.path):
            return queries.cursors(self._db.connection)

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first; the newest 10,000 are kept."""
        with explained(self._db.path):
            return queries.dead_letters(self._db.connection)

    def remove_dead_letter(self, number: int) -> bool:
        """Remove a dead letter; False when there is none of this number."""
        with self._db.transaction() as db:
            return db.execute("DELETE FROM dead_letters WHERE number = ?", (number,)).rowcount == 1

    def rest(self, *, idle: bool = True) -> None:
        """Move the WAL into the database: when it is long, or there is time.

        Done between transactions, nobody waits for it: done within, it would set the 99th percentile of latency.
        """
        if self._wal_pages >= CHECKPOINT_PAGES or (idle and self._wal_pages):
            self._db.checkpoint()
            self._wal_pages = 0

    def close(self) -> None:
        """Close. Twice does nothing."""
        self._db.close()


class SqliteJournalReader:
    """Reads a journal file, whether or not a broker writes it.

    Raises:
        NotAJournal: there is none, or it is something else.
        OtherFormat: it is of an older or a newer format.
        DamagedDatabase: its header or its schema is damaged.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db = open_read_only(path, queries.FORMAT)

    @property
    def head(self) -> int:
        """Position of the last event; 0 when there is none."""
        with explained(self._path):
            last = queries.last_record(self._db)
        return last.last if last else 0

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """Read the records that hold events after a position."""
        with explained(self._path):
            return queries.read_chunk(self._db, after, limit, max_bytes, types)

    def headers_back(self, upto: int) -> Iterator[Record]:
        """Iterate backwards over the records up to a position, without their bodies."""
        with explained(self._path):
            yield from queries.read_headers_back(self._db, upto)

    def landmark(self, event_type: str) -> int:
        """Return the position of the latest event of a type in ``LANDMARKS``; 0 when there is none."""
        with explained(self._path):
            return queries.landmark(self._db, event_type)

    def damage(self) -> Iterator[FlyballError]:
        """Check the whole file and iterate over all damage: of its pages, its records and its other tables."""
        with explained(self._path):
            for problem in structural_damage(self._db):
                yield DamagedDatabase(f"{self._path} is damaged: {problem}.")
            # All tables are read as of one moment: otherwise rows that a broker writes meanwhile look like damage.
            self._db.execute("BEGIN")
            try:
                yield from damage_after(self._db, 0)
            finally:
                self._db.execute("ROLLBACK")

    def cursors(self) -> dict[str, int]:
        """Return the durable cursors by name."""
        with explained(self._path):
            return queries.cursors(self._db)

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""
        with explained(self._path):
            return queries.dead_letters(self._db)

    def close(self) -> None:
        """Close. Twice does nothing."""
        self._db.close()


def check_order(head: int, records: Sequence[Record]) -> None:
    """Refuse records that leave a gap or overlap.

    Raises:
        OutOfOrder: they do not continue ``head``.
    """
    for record in records:
        if record.first != head + 1:
            raise OutOfOrder(f"A record for position {record.first} cannot follow position {head}.")
        head = record.last


def _row(record: Record) -> tuple[int, memoryview, memoryview]:
    view = memoryview(record.raw)
    cut = len(view) - sum(record.frame.lengths)
    return record.first, view[:cut], view[cut:]
