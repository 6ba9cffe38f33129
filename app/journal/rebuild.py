"""Rebuilding a journal whose records are sound: what can be derived from them is derived."""

import os
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.journal import queries
from app.journal.damage import Derived
from app.journal.database import Database, locked
from app.journal.errors import DamagedRow, StorageError, explained


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """What became of a journal.

    Attributes:
        head: position of the last event.
        before: the file as it was, kept beside the new one.
        lost: what could not be read and does not follow from the records.
    """

    head: int
    before: Path
    lost: tuple[str, ...]


def rebuild(path: Path) -> Rebuilt:
    """Copy a journal's records into a new file, and derive the rest.

    Marks and landmarks follow from the records. A mark may come out too low: a frame that is sent again is then known
    by the ids of its events. Cursors and dead letters are copied as far as they can be read.

    Raises:
        StorageError: an earlier rebuild kept a file that this one would replace.
        StorageInUse: a broker writes it.
        DamagedRecord: a record is damaged, and follows from nothing.
        DamagedDatabase: the records can't be reached.
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
            closing(Database(new, queries.FORMAT)) as copy,
        ):
            old.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            old.execute("PRAGMA query_only = ON")
            derived = _copy_records(old, copy)
            with copy.transaction() as db:
                for (producer, epoch), following in derived.marks.items():
                    queries.save_row(db, "marks", producer, epoch, following, derived.used[producer, epoch])
                for landmark in derived.landmarks.items():
                    queries.save_row(db, "landmarks", *landmark)
                lost = (*_copy_rows(old, db, "cursors"), *_copy_rows(old, db, "dead_letters"))
        os.link(path, before)
        new.replace(path)
        new.with_name(new.name + ".lock").unlink()
    return Rebuilt(derived.head, before, lost)


def _copy_records(old: sqlite3.Connection, copy: Database) -> Derived:
    derived = Derived()
    with copy.transaction() as db:
        for row in old.execute("SELECT first, head, bodies FROM frames ORDER BY first"):
            record = queries.open_record(*row)
            queries.continued(record, derived.head, begun=False)
            derived.add(record)
            db.execute("INSERT INTO frames VALUES (?, ?, ?)", row)
    return derived


def _copy_rows(old: sqlite3.Connection, db: sqlite3.Connection, table: str) -> list[str]:
    """Copy the sound rows of a table; return what is lost."""
    lost = list[str]()
    try:
        for row in queries.verified_rows(old, table):
            if isinstance(row, DamagedRow):
                lost.append(row.message)
            else:
                queries.save_row(db, table, *row)
    except sqlite3.Error as error:
        lost.append(f"The rest of its table {table} can't be read ({error}).")
    return lost
