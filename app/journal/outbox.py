"""Outboxes: frames that wait for the broker to come back."""

from collections.abc import Collection, Sequence
from pathlib import Path

from flyball.app.core.sizes import size_text
from flyball.app.events.frames import DamagedFrame, Frame
from flyball.app.journal.database import DamagedDatabase, Database, Format, StorageFull, storage_errors

SCHEMA = (
    """CREATE TABLE frames (number INTEGER PRIMARY KEY AUTOINCREMENT, epoch BLOB NOT NULL,
    base INTEGER NOT NULL, frame BLOB NOT NULL, UNIQUE (epoch, base))""",
)
FORMAT = Format(0x464C4F31, SCHEMA)  # "FLO1"
MAX_BYTES = 256 << 20


class SqliteOutbox:
    """Durable frames in a SQLite file, up to ``max_bytes``. Raises what ``Database`` raises."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._db = Database(path, FORMAT)
        self._max_bytes = max_bytes

    def put(self, frames: Sequence[bytes]) -> None:
        """See ``Outbox.put``."""
        keys = map(key_of, frames)
        rows = [(_blob(epoch), base, frame) for (epoch, base), frame in zip(keys, frames, strict=True)]
        with self._db.transaction() as db:
            db.executemany("INSERT OR IGNORE INTO frames (epoch, base, frame) VALUES (?, ?, ?)", rows)
            size = db.execute("SELECT total(length(frame)) FROM frames").fetchone()[0]
            check_bound(size, self._max_bytes)

    def load(self) -> list[bytes]:
        """See ``Outbox.load``."""
        with storage_errors(self._db.path):
            rows = self._db.connection.execute("SELECT epoch, base, frame FROM frames ORDER BY number").fetchall()
        for epoch, base, frame in rows:
            if not _is_frame(epoch, base, frame):
                raise DamagedDatabase(f"{self._db.path} is damaged: the checksum of a frame is wrong.")
        return [frame for _, _, frame in rows]

    def remove(self, keys: Collection[tuple[int, int]]) -> None:
        """See ``Outbox.remove``."""
        rows = [(_blob(epoch), base) for epoch, base in keys]
        with self._db.transaction() as db:
            db.executemany("DELETE FROM frames WHERE epoch = ? AND base = ?", rows)

    def check(self) -> None:
        """See ``Outbox.check``."""
        self._db.check()

    def close(self) -> None:
        """Close. Idempotent."""
        self._db.close()


def key_of(frame: bytes) -> tuple[int, int]:
    """Return the (epoch, base) that identifies a producer's frame. Raises ``DamagedFrame``."""
    parsed = Frame.parse(frame)
    return parsed.epoch, parsed.base


def _is_frame(epoch: object, base: object, frame: object) -> bool:
    try:
        key = key_of(frame) if isinstance(frame, bytes) else None
    except DamagedFrame:
        return False
    return key is not None and (epoch, base) == (_blob(key[0]), key[1])


def check_bound(size: float, bound: int) -> None:
    """Raise ``StorageFull`` when ``size`` exceeds ``bound``; both in bytes."""
    if size > bound:
        raise StorageFull(
            f"The outbox would hold {size_text(size)}; its bound is {size_text(bound)}.",
            hint="Start the broker: what is kept is sent then.",
        )


def _blob(epoch: int) -> bytes:
    return epoch.to_bytes(8, "big")
