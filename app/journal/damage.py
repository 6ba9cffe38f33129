"""Finding damage in a journal, and rebuilding a journal from sound records."""

import os
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

from flyball.app.core import FlyballError
from flyball.app.events.frames import DamagedRecord, Record
from flyball.app.journal.database import (
    DamagedDatabase,
    DamagedRow,
    Database,
    StorageError,
    check_header,
    locked,
    storage_errors,
)
from flyball.app.journal.ports import Rebuilt
from flyball.app.journal.queries import (
    COLUMNS,
    FORMAT,
    check_continues,
    has_landmark,
    open_header,
    open_record,
    save_row,
    signed_epoch,
    split,
    verified_rows,
)
from flyball.app.journal.segments import Archive, Segment, SegmentRow, foreign_segment


class Derived:
    """Marks, derived from live records.

    Attributes:
        head: position of the last event; 0 in an empty journal.
        marks: next event number of each (producer, epoch as SQLite stores it). The journal's mark may be larger,
            because refused and repeated events have numbers but are not recorded.
        used: position of the last event of each (producer, epoch).
    """

    def __init__(self, head: int = 0) -> None:
        self.head = head
        self.marks: Counter[tuple[str, int]] = Counter()
        self.used: dict[tuple[str, int], int] = {}

    def add(self, record: Record) -> None:
        """Add the next record."""
        frame = record.frame
        key = frame.producer, signed_epoch(frame.epoch)
        self.head = self.used[key] = record.last
        self.marks[key] = max(self.marks[key], frame.base + frame.count)


def damage_after(db: sqlite3.Connection, after: int) -> Iterator[FlyballError]:
    """Iterate over damage of later live records; without any, also of other tables that contradict them."""
    derived, sound = Derived(), True
    for error in _damaged_records(db, after, derived):
        sound = False
        yield error
    for table in COLUMNS:
        archived = 0
        for row in verified_rows(db, table, "TRUE ORDER BY 1"):
            if isinstance(row, DamagedRow):
                sound = False
                yield row
            elif sound and not _fits(table, row, derived, archived):
                yield DamagedDatabase(f"Damaged journal: {row[0]!r} in its table {table} contradicts its records.")
            elif table == "segments":
                archived = row[1]
    yield from _damaged_landmarks(db)


def _damaged_records(db: sqlite3.Connection, after: int, derived: Derived) -> Iterator[FlyballError]:
    position = None if after else _last_archived(db)  # None: the end of the previous record is unknown
    begun = True  # because archived records may not be deleted yet
    with closing(db.execute("SELECT first, head, bodies FROM frames WHERE first > ? ORDER BY first", (after,))) as rows:
        for row in rows:
            try:
                record = open_record(*row)
                derived.add(record)
                if (
                    has_landmark(record)
                    and not db.execute("SELECT 1 FROM landmarks WHERE first = ?", row[:1]).fetchone()
                ):
                    yield DamagedDatabase(f"Damaged journal: its table landmarks lacks the record at {record.first}.")
                if position is not None and not (begun and record.first <= position):
                    check_continues(record, position, begun=False)
                position, begun = record.last, False
            except DamagedRecord as error:
                position = None
                yield error


def _last_archived(db: sqlite3.Connection) -> int:
    """Return the last archived position, also if the table is damaged."""
    last = db.execute("SELECT max(last) FROM segments").fetchone()[0]
    return last if isinstance(last, int) else 0


def _fits(table: str, row: tuple[Any, ...], derived: Derived, archived: int) -> bool:
    match table, row:
        case "marks", (producer, epoch, following, used):
            return bool(used <= derived.head and following >= derived.marks[producer, epoch])
        case "segments", (first, last, *_):
            return bool(first == archived + 1 <= last < derived.head)
        case _, (_, position, *_):
            return bool(position <= derived.head)
    return False


def damaged_landmark(first: int) -> DamagedDatabase:
    """Return the error for a damaged copy of a landmark's record."""
    return DamagedDatabase(f"Damaged journal: the record at {first} in its table landmarks is damaged.")


def _damaged_landmarks(db: sqlite3.Connection) -> Iterator[FlyballError]:
    """Iterate over damaged or foreign records of the table ``landmarks``."""
    query = """SELECT first, kept.head, kept.bodies, frames.head IS kept.head AND frames.bodies IS kept.bodies
        FROM landmarks AS kept LEFT JOIN frames USING (first) ORDER BY first"""
    archived = _last_archived(db)
    with closing(db.execute(query)) as rows:
        for first, head, bodies, same in rows:
            try:
                record = open_record(first, head, bodies)
                if not has_landmark(record) or not (same or first <= archived):
                    yield DamagedDatabase(f"Damaged journal: the record at {first} in its table landmarks is another.")
            except DamagedRecord:  # a milder error, because a rebuild repairs a copy
                yield damaged_landmark(first)


def rebuild(path: Path) -> Rebuilt:
    """Copy a journal's live records, and derive the other tables.

    Marks and landmarks are derived from the records, and the list of segments from the files. A derived mark may be too
    low; then a repeated frame is recognised by its event ids. Landmarks whose records are archived and dead letters are
    copied as far as they can be read.

    Raises:
        StorageError: an earlier rebuild kept a file that this one would replace.
        StorageInUse: a broker writes the journal.
        DamagedRecord: a record is damaged; records can't be derived.
        DamagedDatabase: the records can't be read, or a segment is of another journal.
    """
    new, before = path.with_name(path.name + ".rebuilt"), path.with_name(path.name + ".damaged")
    if before.exists():
        raise StorageError(
            f"{before} is there, as an earlier rebuild kept it.",
            hint="Look whether it is still needed, and move it away.",
        )
    with locked(path), storage_errors(path):
        check_header(path)
        new.unlink(missing_ok=True)
        with (
            closing(sqlite3.connect(path, isolation_level=None)) as old,
            closing(Database(new, FORMAT)) as copy,
        ):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            old.execute("PRAGMA query_only = ON")
            lost = list[str]()
            with copy.transaction() as db:
                archived = _copy_segments(old, db, path)
                live = "SELECT first, head, bodies FROM frames WHERE first > ? ORDER BY first"
                head = write_records(db, archived, (open_record(*row) for row in old.execute(live, (archived,))))
                if archived:
                    _copy_landmarks(old, db, archived, lost)
                _copy_dead_letters(old, db, lost)
        os.link(path, before)
        new.replace(path)
        new.with_name(new.name + ".lock").unlink()
    return Rebuilt(head, before, lost)


def write_records(db: sqlite3.Connection, after: int, records: Iterable[Record]) -> int:
    """Write the records after a position, and their landmarks and marks; return the position of the last event.

    Raises ``DamagedRecord`` if events are missing or repeated.
    """
    derived = Derived(after)
    for record in records:
        check_continues(record, derived.head, begun=False)
        derived.add(record)
        row = (record.first, *split(record))
        db.execute("INSERT INTO frames VALUES (?, ?, ?)", row)
        if has_landmark(record):
            db.execute("INSERT INTO landmarks VALUES (?, ?, ?)", row)
    for (producer, epoch), following in derived.marks.items():
        save_row(db, "marks", producer, epoch, following, derived.used[producer, epoch])
    return derived.head


def write_landmarks(db: sqlite3.Connection, segment: Segment) -> None:
    """Write the records with landmarks that are in a segment, unless they are there."""
    for first, head, bodies in segment.rows(0):
        if has_landmark(open_header(first, head)):
            db.execute("INSERT OR IGNORE INTO landmarks VALUES (?, ?, ?)", (first, head, bodies()))


def _copy_segments(old: sqlite3.Connection, db: sqlite3.Connection, path: Path) -> int:
    """Derive segments and landmarks from the files, copy deleted segments' rows; return the last archived position."""
    deleted = [row for row in verified_rows(old, "segments", "deleted = 1 ORDER BY first") if isinstance(row, tuple)]
    for row in deleted:
        save_row(db, "segments", *row)
    with closing(Archive(path, db)) as archive:
        while complete := archive.next_file(archive.end):
            row, last = complete
            if _is_foreign(old, row, last):
                raise foreign_segment(archive.folder / row.name)
            save_row(db, "segments", *row)
            write_landmarks(db, archive.open_segment(row))
        return archive.end


def _is_foreign(old: sqlite3.Connection, row: SegmentRow, last: Record) -> bool:
    """Return whether a segment contradicts the journal.

    The journal then names another segment, has another last record of the segment, or has no live record after it.
    """
    named = [
        segment for segment in verified_rows(old, "segments", "first = ?", row.first) if isinstance(segment, tuple)
    ]
    newest = old.execute("SELECT max(first) FROM frames").fetchone()[0]
    live = old.execute("SELECT head FROM frames WHERE first = ?", (last.first,)).fetchone()
    return (
        any(SegmentRow(*segment).name != row.name for segment in named)
        or newest is None
        or row.last >= newest
        or (live is not None and live[0] != last.raw)
    )


def _copy_landmarks(old: sqlite3.Connection, db: sqlite3.Connection, archived: int, lost: list[str]) -> None:
    """Copy the sound landmarks whose records are archived. Descriptions of lost landmarks are added to ``lost``."""
    try:
        for row in old.execute("SELECT first, head, bodies FROM landmarks WHERE first <= ?", (archived,)):
            try:
                open_record(*row)
                db.execute("INSERT OR IGNORE INTO landmarks VALUES (?, ?, ?)", row)
            except DamagedRecord as error:
                lost.append(error.message)
    except sqlite3.Error as error:
        lost.append(f"The rest of its table landmarks can't be read ({error}).")


def _copy_dead_letters(old: sqlite3.Connection, db: sqlite3.Connection, lost: list[str]) -> None:
    """Copy the sound dead letters; add descriptions of the lost rows."""
    try:
        for row in verified_rows(old, "dead_letters"):
            if isinstance(row, DamagedRow):
                lost.append(row.message)
            else:
                save_row(db, "dead_letters", *row)
    except sqlite3.Error as error:
        lost.append(f"The rest of its table dead_letters can't be read ({error}).")
