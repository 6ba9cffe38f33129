"""Places to which journals are shipped, and what is in them."""

from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path

from archives import record_of

from flyball.app.core.named_objects import NamedObjects
from flyball.app.events import EventVoided, RunConfigured
from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.archiving import archive
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.shipped_parts import Part, parse_parts
from flyball.app.journal.shipping import Shipper
from flyball.app.journal.snapshots import write_snapshot

KINDS = {1: RunConfigured.event_type, 40: EventVoided.event_type}


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


def shipper(journal: Path, objects: NamedObjects, look_always: bool = True) -> Shipper:
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


def records(count: int, first: int = 1) -> list[Record]:
    """Return records of three events each."""
    return [
        record_of(at, [b"x" * (at % 50), b"%d" % at, b""], kinds=KINDS) for at in range(first, first + 3 * count, 3)
    ]


def write_archived_journal(path: Path) -> Path:
    """Make a journal of 300 events, 240 of them archived in two segments, with a snapshot and a dead letter."""
    with closing(SqliteJournal(path)) as journal:
        journal.append(records(100), marks={("trainer@a", 1): 301})
    for until in (120, 240):
        archive_until(path, until)
    with closing(SqliteJournal(path)) as journal:
        write_snapshot(journal.archive.folder, Snapshot(240, {("a", "b"): b"row"}), journal.head_at(240))
        journal.append(dead_letters=[DeadLetter(150, "trainer@a", "feedback", "unreadable", b"{}")])
    return path


def append(path: Path, count: int) -> None:
    """Append records of three events each."""
    with closing(SqliteJournal(path)) as journal:
        new = records(count, first=journal.head + 1)
        journal.append(new, marks={("trainer@a", 1): new[-1].last + 1})


def archive_until(path: Path, until: int) -> None:
    """Archive a journal's events up to a position, and delete the live ones."""
    archive(path, until)
    with closing(SqliteJournal(path)) as journal:
        journal.adopt()
        journal.maintain()


def of_kind(objects: NamedObjects, *kinds: str) -> list[Part]:
    return [part for part in parse_parts(objects.names("journal")) if part.kind in kinds]


def damage(objects: NamedObjects, part: Part) -> None:
    data = objects.get(part.name)
    objects.put(part.name, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
