"""State store in SQLite: rows of a daemon's state, and their cursor. Rows and cursor are saved together."""

import sqlite3
from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from zlib import crc32

from flyball.app.core import FlyballError
from flyball.app.journal.database import DamagedState, Database, Format, open_read_only, storage_errors
from flyball.app.journal.ports import StateKey

SCHEMA = (
    """CREATE TABLE state (kind TEXT, name TEXT, value BLOB NOT NULL, checksum INTEGER NOT NULL,
    PRIMARY KEY (kind, name)) WITHOUT ROWID""",
    """CREATE TABLE cursor (id INTEGER PRIMARY KEY CHECK (id = 0), position INTEGER NOT NULL,
    checksum INTEGER NOT NULL)""",
)
FORMAT = Format(0x464C5331, SCHEMA)  # "FLS1"


class SqliteStateStore:
    """State in a SQLite file.

    A loss of power may undo the last saves (``synchronous=NORMAL``). It undoes state and cursor together, so the events
    after that cursor are folded again from the journal. Raises what ``Database`` raises.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, FORMAT, synchronous="NORMAL")

    def load(self) -> tuple[int, dict[StateKey, bytes]]:
        """See ``StateStore.load``."""
        return load(self._db.connection, self._db.path)

    def save(self, cursor: int, changed: Mapping[StateKey, bytes | None]) -> None:
        """See ``StateStore.save``."""
        deleted = [key for key, value in changed.items() if value is None]
        with self._db.transaction() as db:
            db.executemany("DELETE FROM state WHERE kind = ? AND name = ?", deleted)
            write(db, cursor, {key: value for key, value in changed.items() if value is not None})

    def close(self) -> None:
        """Close. Idempotent."""
        self._db.close()


def saved_position(path: Path) -> int:
    """Return the cursor in a file; 0 if it cannot be read."""
    with suppress(FlyballError), closing(open_read_only(path, FORMAT)) as db:
        return load(db, path)[0]
    return 0


def load(db: sqlite3.Connection, path: Path) -> tuple[int, dict[StateKey, bytes]]:
    """Return cursor and rows of a file. Raises ``DamagedState``; see ``StateStore.load``."""
    with storage_errors(path):
        cursors = db.execute("SELECT position, checksum FROM cursor").fetchall()
        rows = db.execute("SELECT kind, name, value, checksum FROM state").fetchall()
    if bool(rows) > bool(cursors) or any(crc != crc32(str(position).encode()) for position, crc in cursors):
        raise _damaged_state(path, "the cursor")
    for kind, name, value, checksum in rows:
        typed = isinstance(kind, str) and isinstance(name, str) and isinstance(value, bytes)
        if not typed or checksum != _checksum(kind, name, value):
            raise _damaged_state(path, f"{kind} {name!r}")
    return (cursors[0][0] if cursors else 0), {(kind, name): value for kind, name, value, _ in rows}


def write(db: sqlite3.Connection, cursor: int, rows: Mapping[StateKey, bytes]) -> None:
    """Insert or replace rows and the cursor, within the caller's transaction."""
    checked = [(*key, value, _checksum(*key, value)) for key, value in rows.items()]
    db.executemany("INSERT OR REPLACE INTO state VALUES (?, ?, ?, ?)", checked)
    db.execute("INSERT OR REPLACE INTO cursor VALUES (0, ?, ?)", (cursor, crc32(str(cursor).encode())))


def _damaged_state(path: Path, what: str) -> DamagedState:
    return DamagedState(
        f"Damaged state: the checksum of {what} in {path} is wrong.",
        hint="Move the file away and start again: the state is rebuilt from the journal.",
    )


def _checksum(kind: str, name: str, value: bytes) -> int:
    return crc32(value, crc32(f"{len(kind)}:{kind}{name}".encode()))
