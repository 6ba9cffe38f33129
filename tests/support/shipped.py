"""Places to which journals are shipped, and what is in them."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

from flyball.app.events.frames import Record
from flyball.app.journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.shipped_parts import Objects
from flyball.app.journal.shipping import Shipper


class Killed(BaseException):
    """The shipper's process ends here."""


class MemoryObjects:
    """Objects in memory. With ``writes_left``, the process that uses them is killed before a write or deletion."""

    def __init__(self) -> None:
        self.content: dict[str, bytes] = {}
        self.writes_left: int | None = None

    def _write(self) -> None:
        if self.writes_left == 0:
            raise Killed
        if self.writes_left is not None:
            self.writes_left -= 1

    def names(self, prefix: str) -> list[str]:
        return [name for name in self.content if name.startswith(f"{prefix}/")]

    def put(self, name: str, data: bytes) -> None:
        self._write()
        self.content[name] = data

    def get(self, name: str) -> bytes | None:
        return self.content.get(name)

    def delete(self, name: str) -> None:
        self._write()
        self.content.pop(name, None)


def shipper(journal: Path, objects: Objects, look_always: bool = True) -> Shipper:
    """Return a shipper. Its clocks tick once a reading, a minute if it is to ``look_always``."""
    ticks = count(1)
    step = 60 if look_always else 0.001
    return Shipper(
        journal, objects, interval_seconds=2.0, now_us=lambda: next(ticks), monotonic=lambda: next(ticks) * step
    )


def raws(path: Path) -> Iterator[bytes]:
    """Iterate over a journal's records."""
    with closing(SqliteJournalReader(path)) as reader:
        position = reader.first - 1
        while (chunk := reader.read(position)).position > position:
            yield from (record.raw for record in chunk.records)
            position = chunk.position


def write_journal(path: Path, records: list[Record]) -> None:
    """Make a journal."""
    with closing(SqliteJournal(path)) as journal:
        journal.append(records)
