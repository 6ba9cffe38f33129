"""Detection of damaged records, and of rows that contradict the records."""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from typing import Any

from app.core import FlyballError
from app.events import EventVoided, RunConfigured
from app.events.frames import DamagedRecord, Record
from app.journal.errors import DamagedDatabase, DamagedRow
from app.journal.queries import COLUMNS, continued, open_header, open_record, signed, verified_rows

LANDMARKS = frozenset({EventVoided.event_type, RunConfigured.event_type})
"""Types whose latest event every journal can name at once; see ``JournalReader.landmark``."""


def landmarks_in(records: Iterable[Record]) -> dict[str, int]:
    """Return the position of the last event of each of these types among some records."""
    found: dict[str, int] = {}
    for record in records:
        frame = record.frame
        if not LANDMARKS.isdisjoint(frame.types):
            for position, kind in enumerate(frame.type_refs, record.first):
                if frame.types[kind] in LANDMARKS:
                    found[frame.types[kind]] = position
    return found


class Derived:
    """Content of the other tables, derived from records.

    Attributes:
        head: position of the last event; 0 when there is none.
        marks: for each (producer, epoch as SQLite stores it) the number after its last event. The journal's may be
            larger, because refused and known events are numbered and not recorded.
        used: position of that event.
        landmarks: position of the latest event of each type in ``LANDMARKS``.
    """

    def __init__(self) -> None:
        self.head = 0
        self.marks: Counter[tuple[str, int]] = Counter()
        self.used: dict[tuple[str, int], int] = {}
        self.landmarks: dict[str, int] = {}

    def add(self, record: Record) -> None:
        """Take in the next record."""
        frame = record.frame
        key = frame.producer, signed(frame.epoch)
        self.head = self.used[key] = record.last
        self.marks[key] = max(self.marks[key], frame.base + frame.count)
        self.landmarks |= landmarks_in((record,))


def damage_after(db: sqlite3.Connection, after: int) -> Iterator[FlyballError]:
    """Iterate over damage of the records after a position, and of all other tables.

    Rows are compared with the records, unless one of those is damaged.
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


def check(db: sqlite3.Connection, after: int) -> None:
    """Raise the first damage of the records after a position, and of the other tables."""
    for error in damage_after(db, max(0, after)):
        raise error


def _damaged_records(db: sqlite3.Connection, after: int, derived: Derived) -> Iterator[DamagedRecord]:
    position = None if after else 0  # None: the end of the record before is unknown
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
    """Return the position of the last event of a type in the record that holds a position."""
    query = "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC LIMIT 1"
    row = db.execute(query, (position,)).fetchone()
    return landmarks_in((open_header(*row),)).get(event_type) if row else None
