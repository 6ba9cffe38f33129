"""Finding damage in a journal, and rebuilding a journal from sound records."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from app.core import FlyballError
from app.events import EventVoided, RollCall, RunConfigured
from app.events.frames import DamagedRecord, Record
from app.journal.database import DamagedDatabase, DamagedRow, Database, StorageError, explained, locked
from app.journal.queries import COLUMNS, FORMAT, continued, open_header, open_record, save_row, signed, verified_rows

LANDMARKS = frozenset({EventVoided.event_type, RollCall.event_type, RunConfigured.event_type})
"""Event types whose latest position a journal indexes; see ``JournalReader.landmark``."""


def landmarks_in(records: Iterable[Record]) -> dict[str, int]:
    """Return the position of the last event of each type in ``LANDMARKS`` among some records."""
    found: dict[str, int] = {}
    for record in records:
        frame = record.frame
        if not LANDMARKS.isdisjoint(frame.types):
            for position, kind in enumerate(frame.type_refs, record.first):
                if frame.types[kind] in LANDMARKS:
                    found[frame.types[kind]] = position
    return found


class Derived:
    """Marks and landmarks, derived from records.

    Attributes:
        head: position of the last event; 0 in an empty journal.
        marks: next event number of each (producer, epoch as SQLite stores it). The journal's mark may be larger,
            because refused and repeated events have numbers but are not recorded.
        used: position of the last event of each (producer, epoch).
        landmarks: position of the latest event of each type in ``LANDMARKS``.
    """

    def __init__(self) -> None:
        self.head = 0
        self.marks: Counter[tuple[str, int]] = Counter()
        self.used: dict[tuple[str, int], int] = {}
        self.landmarks: dict[str, int] = {}

    def add(self, record: Record) -> None:
        """Add the next record."""
        frame = record.frame
        key = frame.producer, signed(frame.epoch)
        self.head = self.used[key] = record.last
        self.marks[key] = max(self.marks[key], frame.base + frame.count)
        self.landmarks |= landmarks_in((record,))


def damage_after(db: sqlite3.Connection, after: int) -> Iterator[FlyballError]:
    """Iterate over damage of the records after a position, and of all other tables.

    Rows of other tables are compared with the records, unless a record is damaged.
    """
    derived, sound = Derived(), True
    for error in _damaged_records(db, after, derived):
        sound = False
        yield error
    for table in COLUMNS:
        for row in verified_rows(db, table):
            if isinstance(row, DamagedRow):
                yield row
            elif sound and not _fits(db, table, row, derived):
                yield DamagedDatabase(f"Damaged journal: {row[0]!r} in its table {table} contradicts its records.")
    known = {row[0] for row in verified_rows(db, "landmarks") if not isinstance(row, DamagedRow)}
    for missing in derived.landmarks.keys() - known:
        yield DamagedDatabase(f"Damaged journal: its table landmarks lacks {missing!r}.")


def _damaged_records(db: sqlite3.Connection, after: int, derived: Derived) -> Iterator[DamagedRecord]:
    position = None if after else 0  # None: the end of the previous record is unknown
    with closing(db.execute("SELECT first, head, bodies FROM frames WHERE first > ? ORDER BY first", (after,))) as rows:
        for row in rows:
            try:
                record = open_record(*row)
                derived.add(record)
                if position is not None:
                    continued(record, position, begun=False)
                position = record.last
            except DamagedRecord as error:
                position = None
                yield error


def _fits(db: sqlite3.Connection, table: str, row: tuple[Any, ...], derived: Derived) -> bool:
    match table, row:
        case "marks", (producer, epoch, following, used):
            return bool(used <= derived.head and following >= derived.marks[producer, epoch])
        case "landmarks", (event_type, position):
            return bool(position == (derived.landmarks.get(event_type) or _landmark_at(db, position, event_type)))
        case _, (_, position, *_):
            return bool(position <= derived.head)
    return False


def _landmark_at(db: sqlite3.Connection, position: int, event_type: str) -> int | None:
    """Return the last position of an event type within the record that holds ``position``."""
    query = "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC LIMIT 1"
    row = db.execute(query, (position,)).fetchone()
    return landmarks_in((open_header(*row),)).get(event_type) if row else None


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild.

    Attributes:
        head: position of the last event.
        before: path of the damaged file, kept beside the new one.
        lost: descriptions of the unreadable rows, which cannot be derived from the records.
    """

    head: int
    before: Path
    lost: list[str]


def rebuild(path: Path) -> Rebuilt:
    """Copy a journal's records into a new file, and derive the rest.

    Marks and landmarks are derived from the records. A derived mark may be too low; then a repeated frame is
    recognised by its event ids. Dead letters are copied as far as they can be read.

    Raises:
        StorageError: an earlier rebuild kept a file that this one would replace.
        StorageInUse: a broker writes the journal.
        DamagedRecord: a record is damaged; records can't be derived.
        DamagedDatabase: the records can't be read.
    """
    new, before = path.with_name(path.name + ".rebuilt"), path.with_name(path.name + ".damaged")
    if before.exists():
        raise StorageError(
            f"{before} is there, as an earlier rebuild kept it.",
            hint="Look whether it is still needed, and move it away.",
        )
    with locked(path), explained(path):
        new.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as old,
            closing(Database(new, FORMAT)) as copy,
        ):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            old.execute("PRAGMA query_only = ON")
            derived = _copy_records(old, copy)
            with copy.transaction() as db:
                for (producer, epoch), following in derived.marks.items():
                    save_row(db, "marks", producer, epoch, following, derived.used[producer, epoch])
                for landmark in derived.landmarks.items():
                    save_row(db, "landmarks", *landmark)
                lost = _copy_dead_letters(old, db)
        os.link(path, before)
        new.replace(path)
        new.with_name(new.name + ".lock").unlink()
    return Rebuilt(derived.head, before, lost)


def _copy_records(old: sqlite3.Connection, copy: Database) -> Derived:
    derived = Derived()
    with copy.transaction() as db:
        for row in old.execute("SELECT first, head, bodies FROM frames ORDER BY first"):
            record = open_record(*row)
            continued(record, derived.head, begun=False)
            derived.add(record)
            db.execute("INSERT INTO frames VALUES (?, ?, ?)", row)
    return derived


def _copy_dead_letters(old: sqlite3.Connection, db: sqlite3.Connection) -> list[str]:
    """Copy the sound dead letters; return descriptions of the lost rows."""
    lost = list[str]()
    try:
        for row in verified_rows(old, "dead_letters"):
            if isinstance(row, DamagedRow):
                lost.append(row.message)
            else:
                save_row(db, "dead_letters", *row)
    except sqlite3.Error as error:
        lost.append(f"The rest of its table dead_letters can't be read ({error}).")
    return lost
