"""Tables of the journal: schema, checksums of rows, and verified reading."""

import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from functools import cache
from typing import Any
from zlib import crc32

from flyball.app.events import EventVoided, RunConfigured
from flyball.app.events.frames import Record, damaged
from flyball.app.journal.database import DamagedRow, Format, OutOfOrder

MARKS_KEPT = 8
"""Number of latest epochs whose marks are kept for each producer. Repeated frames of older epochs are recognised by
their event ids, if these are among the latest 250,000."""

MAX_DEAD_LETTERS = 10_000
"""Number of newest dead letters that are kept."""

FRAMES = "CREATE TABLE frames (first INTEGER PRIMARY KEY, head BLOB NOT NULL, bodies BLOB NOT NULL)"
"""A record's header and bodies are separate columns, because SQLite then reads headers without the bodies' pages."""

LANDMARKS = frozenset({EventVoided.event_type, RunConfigured.event_type})
"""Types with a table of their own, because every start reads them."""

LANDMARK_RECORDS = "CREATE TABLE landmarks (first INTEGER PRIMARY KEY, head BLOB NOT NULL, bodies BLOB NOT NULL)"
"""Copies of the records with landmarks. They stay when the records are archived, and when the archive is deleted."""

SEGMENTS = """CREATE TABLE segments (first INTEGER PRIMARY KEY, last INTEGER NOT NULL, recorded_us INTEGER NOT NULL,
    digest TEXT NOT NULL, deleted INTEGER NOT NULL, checksum INTEGER NOT NULL)"""

MARKS = (
    """CREATE TABLE marks (producer TEXT, epoch INTEGER, next INTEGER NOT NULL, used INTEGER NOT NULL,
    checksum INTEGER NOT NULL, PRIMARY KEY (producer, epoch)) WITHOUT ROWID""",
    f"""CREATE TRIGGER forget_marks AFTER INSERT ON marks BEGIN
    DELETE FROM marks WHERE producer = new.producer AND epoch NOT IN
        (SELECT epoch FROM marks WHERE producer = new.producer ORDER BY used DESC, epoch = new.epoch DESC
         LIMIT {MARKS_KEPT});
END""",  # noqa: S608 - a constant
)
DEAD_LETTERS = (
    "CREATE TABLE dead_letters (number INTEGER PRIMARY KEY, position INTEGER NOT NULL, producer TEXT NOT NULL,\n"
    "    reporter TEXT NOT NULL, error TEXT NOT NULL, body BLOB NOT NULL, checksum INTEGER NOT NULL)"
)
COLUMNS: Mapping[str, str] = {
    "marks": "producer, epoch, next, used",
    "segments": "first, last, recorded_us, digest, deleted",
    "dead_letters": "number, position, producer, reporter, error, body",
}
"""Columns that a row's checksum covers, for each table without records."""


def add_checksums(db: sqlite3.Connection) -> None:
    """Migrate from format 0, in which only frames had checksums."""
    changed = ("marks", "dead_letters")
    before = {table: db.execute(f"SELECT {COLUMNS[table]} FROM {table}").fetchall() for table in changed}  # noqa: S608
    for table in changed:
        db.execute(f"DROP TABLE {table}")
    for statement in (*MARKS, DEAD_LETTERS):
        db.execute(statement)
    for table, rows in before.items():
        for row in rows:
            save_row(db, table, *row)


def drop_cursors(db: sqlite3.Connection) -> None:
    """Migrate from format 1, which had an unused table of cursors."""
    db.execute("DROP TABLE cursors")


def copy_landmarks(db: sqlite3.Connection) -> None:
    """Migrate from format 2, which had no segments and copied no landmarks."""
    db.execute("DROP TABLE landmarks")
    db.execute(LANDMARK_RECORDS)
    db.execute(SEGMENTS)
    with closing(db.execute("SELECT first, head FROM frames")) as rows:
        firsts = [first for first, head in rows if has_landmark(open_header(first, head))]
    for first in firsts:
        db.execute("INSERT INTO landmarks SELECT first, head, bodies FROM frames WHERE first = ?", (first,))


FORMAT = Format(
    0x464C5932,  # "FLY2"
    (FRAMES, LANDMARK_RECORDS, SEGMENTS, *MARKS, DEAD_LETTERS),
    (add_checksums, drop_cursors, copy_landmarks),
)


def save_row(db: sqlite3.Connection, table: str, *values: str | int | bytes) -> None:
    """Insert or replace a row with its checksum. The table is one of those in ``COLUMNS``."""
    db.execute(_saving(table), (*values, checksum_of(table, *values)))


@cache
def _saving(table: str) -> str:
    names = COLUMNS[table].split(", ")
    key = ", ".join(names[:2]) if table == "marks" else names[0]
    change = ", ".join(f"{name} = excluded.{name}" for name in (*names, "checksum"))
    places = ", ".join("?" * (len(names) + 1))
    return f"INSERT INTO {table} VALUES ({places}) ON CONFLICT ({key}) DO UPDATE SET {change}"  # noqa: S608 - constants


def rows_of(db: sqlite3.Connection, table: str, where: str = "TRUE", *values: str | int) -> Iterator[tuple[Any, ...]]:
    """Iterate over rows of a table other than ``frames``.

    Raises:
        DamagedRow: a row's checksum is wrong.
    """
    for row in verified_rows(db, table, where, *values):
        if isinstance(row, DamagedRow):
            raise row
        yield row


def verified_rows(
    db: sqlite3.Connection, table: str, where: str = "TRUE", *values: str | int
) -> Iterator[tuple[Any, ...] | DamagedRow]:
    """Like ``rows_of``, but yield an error in place of each damaged row."""
    query = f"SELECT {COLUMNS[table]}, checksum FROM {table} WHERE {where}"  # noqa: S608 - constants
    with closing(db.execute(query, values)) as rows:
        for *row, checksum in rows:
            yield tuple(row) if checksum == checksum_of(table, *row) else DamagedRow(table, row[0])


def checksum_of(table: str, *values: object) -> int:
    """Return the CRC-32 of a table's name and a row's values. The values' types count, too."""
    total = crc32(table.encode())
    for value in values:
        raw = value if isinstance(value, bytes) else str(value).encode()
        total = crc32(raw, crc32(f"{type(value).__name__} {len(raw)} ".encode(), total))
    return total


def has_landmark(record: Record) -> bool:
    """Return whether a record holds an event of a type in ``LANDMARKS``."""
    return not LANDMARKS.isdisjoint(record.frame.types)


def landmark_in(records: Iterable[Record], event_type: str) -> int:
    """Return the position of a type's last event; 0 without one. ``records`` come latest first."""
    for record in records:
        frame = record.frame
        if event_type in frame.types:
            kind = frame.types.index(event_type)
            return max(record.first + i for i, ref in enumerate(frame.type_refs) if ref == kind)
    return 0


def split(record: Record) -> tuple[memoryview, memoryview]:
    """Return a record's header and bodies, as its row holds them."""
    cut = len(record.raw) - sum(record.frame.lengths)
    view = memoryview(record.raw)
    return view[:cut], view[cut:]


def last_record(db: sqlite3.Connection) -> Record | None:
    """Return the last record, without its bodies."""
    row = db.execute("SELECT first, head FROM frames ORDER BY first DESC LIMIT 1").fetchone()
    return None if row is None else open_header(*row)


def open_record(first: int, head: object, bodies: object) -> Record:
    """Read a record from its row.

    Raises:
        DamagedRecord: its checksum is wrong.
    """
    if not isinstance(head, bytes) or not isinstance(bodies, bytes):
        raise damaged(first, "a value of another type")
    return Record.open(head + bodies, expected=first)


def open_header(first: int, head: object) -> Record:
    """Read a record without its bodies.

    Raises:
        DamagedRecord: its header's checksum is wrong.
    """
    if not isinstance(head, bytes):
        raise damaged(first, "a value of another type")
    return Record.open(head, expected=first, bodies=False)


def check_continues(record: Record, position: int, *, begun: bool) -> int:
    """Check that a record continues a position, and return its last position.

    Args:
        record: the next record.
        position: position of the last event before the record.
        begun: the record may begin at or before the position, but must end after it.

    Raises:
        DamagedRecord: events are missing or repeated.
    """
    if record.first > position + 1:
        raise damaged(position + 1, f"{record.first - position - 1} events missing")
    if record.last <= position or (record.first <= position and not begun):
        raise damaged(position + 1, f"events from position {record.first} on")
    return record.last


def signed_epoch(epoch: int) -> int:
    """Return an unsigned 64-bit epoch as the signed integer that a database stores."""
    return epoch - (1 << 64) if epoch >> 63 else epoch


def unsigned_epoch(signed: int) -> int:
    """Return the epoch that a database stores as a signed integer."""
    return signed % (1 << 64)


def check_order(head: int, records: Sequence[Record]) -> None:
    """Check that records continue ``head`` without gaps or overlaps.

    Raises:
        OutOfOrder: a record leaves a gap or overlaps.
    """
    for record in records:
        if record.first != head + 1:
            raise OutOfOrder(f"A record for position {record.first} cannot follow position {head}.")
        head = record.last
