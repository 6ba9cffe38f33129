"""Reading the journal's tables: shared by the writer and by read-only readers."""

import sqlite3
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing

from app.events.frames import DamagedRecord, DeadLetter, Record, ids_of
from app.events.frames.record import damaged
from app.journal.ports import Chunk

KIND = 0x464C5932  # "FLY2"
MARKS_KEPT = 8
"""Epochs (lives) of a producer that are remembered. Frames of an older one that are sent again after all are known
by the ids of their events as long as those are among the latest million."""

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS frames (first INTEGER PRIMARY KEY, head BLOB NOT NULL, bodies BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS marks (producer TEXT, epoch INTEGER, next INTEGER NOT NULL,
    used INTEGER NOT NULL, PRIMARY KEY (producer, epoch)) WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS forget_marks AFTER INSERT ON marks BEGIN
    DELETE FROM marks WHERE producer = new.producer AND epoch NOT IN
        (SELECT epoch FROM marks WHERE producer = new.producer ORDER BY used DESC, epoch = new.epoch DESC
         LIMIT {MARKS_KEPT});
END;
CREATE TABLE IF NOT EXISTS landmarks (type TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS cursors (name TEXT PRIMARY KEY, position INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS dead_letters (number INTEGER PRIMARY KEY AUTOINCREMENT, position INTEGER NOT NULL,
    producer TEXT NOT NULL, reporter TEXT NOT NULL, error TEXT NOT NULL, body BLOB NOT NULL);
"""  # noqa: S608 - a constant
# A record is cut where its bodies begin: SQLite then reads the pages of a header without those of the bodies.
SAVE_MARK = """
INSERT INTO marks (producer, epoch, next, used) VALUES (?, ?, ?, ?)
    ON CONFLICT DO UPDATE SET next = excluded.next, used = excluded.used
"""
IS_KEPT = "SELECT 1 FROM dead_letters WHERE position = ? AND reporter = ?"
SAVE_LANDMARK = "INSERT OR REPLACE INTO landmarks VALUES (?, ?)"


def last_record(db: sqlite3.Connection) -> Record | None:
    """Return the last record, without its bodies."""
    row = db.execute("SELECT first, head FROM frames ORDER BY first DESC LIMIT 1").fetchone()
    return None if row is None else Record.open(row[1], expected=row[0], bodies=False)


def read_chunk(db: sqlite3.Connection, after: int, limit: int, max_bytes: int, types: Collection[str] | None) -> Chunk:
    """Do what ``JournalReader.read`` says."""
    if types is not None:
        return _read_selected(db, after, limit, max_bytes, frozenset(types))
    records, size, position = [], 0, after
    with closing(_rows(db, "head, bodies", after, limit)) as rows:
        for first, head, bodies in rows:
            record = Record.open(head + bodies, expected=first)
            records.append(record)
            position = _continued(record, position)
            size += len(record.raw)
            if size > max_bytes:
                break
    return Chunk(tuple(records), position)


def read_headers_back(db: sqlite3.Connection, upto: int) -> Iterator[Record]:
    """Do what ``JournalReader.headers_back`` says."""
    after: int | None = None
    with closing(db.execute("SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC", (upto,))) as rows:
        for first, head in rows:
            record = Record.open(head, expected=first, bodies=False)
            if after is not None and record.last < after - 1:
                raise damaged(record.last + 1, f"{after - record.last - 1} events missing")
            after = record.first
            yield record


def read_ids(db: sqlite3.Connection, after: int) -> Iterator[tuple[int, Sequence[int]]]:
    """Do what ``Journal.ids`` says."""
    with closing(_rows(db, "head", after, -1)) as rows:
        for first, head in rows:
            yield first, ids_of(head, first)


def find_damage(db: sqlite3.Connection) -> Iterator[DamagedRecord]:
    """Look at every record and report each that is damaged, and each gap."""
    position: int | None = 0
    with closing(db.execute("SELECT first, head, bodies FROM frames ORDER BY first")) as rows:
        for first, head, bodies in rows:
            try:
                record = Record.open(head + bodies, expected=first)
                if position is not None:
                    _continued(record, position)
                position = record.last
            except DamagedRecord as error:
                position = None  # where a damaged record ends is not known
                yield error


def cursors(db: sqlite3.Connection) -> dict[str, int]:
    """Return the durable cursors by name."""
    return dict(db.execute("SELECT name, position FROM cursors ORDER BY name"))


def landmark(db: sqlite3.Connection, event_type: str) -> int:
    """Do what ``JournalReader.landmark`` says."""
    row = db.execute("SELECT position FROM landmarks WHERE type = ?", (event_type,)).fetchone()
    return 0 if row is None else int(row[0])


def dead_letters(db: sqlite3.Connection) -> list[DeadLetter]:
    """Return the dead letters, oldest first."""
    rows = db.execute("SELECT position, producer, reporter, error, body, number FROM dead_letters ORDER BY number")
    return [DeadLetter(*row) for row in rows]


def _rows(db: sqlite3.Connection, columns: str, after: int, limit: int) -> sqlite3.Cursor:
    start = after + 1
    before = db.execute(
        "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC LIMIT 1", (start,)
    ).fetchone()
    if before is not None and Record.open(before[1], expected=before[0], bodies=False).last > after:
        start = before[0]
    query = f"SELECT first, {columns} FROM frames WHERE first >= ? ORDER BY first LIMIT ?"  # noqa: S608 - constants
    return db.execute(query, (start, limit))


def _continued(record: Record, position: int) -> int:
    if record.first > position + 1:
        raise damaged(position + 1, f"{record.first - position - 1} events missing")
    return record.last


def _read_selected(db: sqlite3.Connection, after: int, limit: int, max_bytes: int, types: frozenset[str]) -> Chunk:
    records, size, position = [], 0, after
    with closing(_rows(db, "head", after, limit)) as rows:
        for first, head in rows:
            record = Record.open(head, expected=first, bodies=False)
            position = _continued(record, position)
            if types.isdisjoint(record.frame.types):
                continue
            bodies = db.execute("SELECT bodies FROM frames WHERE first = ?", (first,)).fetchone()[0]
            records.append(Record.open(head + bodies, expected=first))
            size += len(records[-1].raw)
            if size > max_bytes:
                break
    return Chunk(tuple(records), position)
