"""Journals of which most records are archived."""

from collections.abc import Mapping, Sequence
from typing import Any

from flyball.app.events.frames import Draft, Frame, FrameBuilder, Record, seal
from flyball.app.journal import SqliteJournal
from flyball.app.journal.archiving import archive


class ArchivedJournal(SqliteJournal):
    """A journal that archives all but its last record at each append."""

    def append(self, records: Sequence[Record] = (), **rest: Any) -> None:
        super().append(records, **rest)
        archive(self._path, self.head)
        self.adopt()
        self.maintain()


def record_of(first: int, bodies: Sequence[bytes], *, kinds: Mapping[int, str] | None = None, at: int = 0) -> Record:
    """Seal events at the positions from ``first`` on. The position of an event also stands for the hash of its id."""
    builder = FrameBuilder("trainer@a")
    for position, body in enumerate(bodies, first):
        builder.add([Draft(position, (kinds or {}).get(position, "a"), "", body)])
    frame = Frame.parse(builder.build(1, first))
    return seal(frame, first=first, recorded_us=at or first * 1_000_000, source="trainer@a")
