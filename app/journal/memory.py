"""A journal and a daemon's state in memory."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal.marks import Marks
from flyball.app.journal.ports import Chunk, Snapshot, StateKey
from flyball.app.journal.queries import check_order, has_landmark, landmark_in


class MemoryJournal:
    """A journal that lives as long as the object. Records are kept as bytes, so they are read as from a disk."""

    def __init__(self) -> None:
        self.head = 0
        self.recorded_us = 0
        self._records: list[Record] = []
        self._firsts: list[int] = []
        self._landmarks: list[Record] = []
        self._marks = Marks()
        self._dead_letters: dict[int, DeadLetter] = {}
        self._dead_letter_count = 0

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """See ``Journal.append``."""
        check_order(self.head, records)
        for record in records:
            self._records.append(record)
            self._firsts.append(record.first)
            if has_landmark(record):
                self._landmarks.append(record)
            self.head, self.recorded_us = record.last, record.recorded_us
        self._marks = self._marks.changed(marks or {})
        for dead in dead_letters:
            about = (dead.position, dead.reporter)
            if dead.position and any(
                about == (earlier.position, earlier.reporter) for earlier in self._dead_letters.values()
            ):
                continue
            self._dead_letter_count += 1
            self._dead_letters[self._dead_letter_count] = replace(dead, number=self._dead_letter_count)

    @property
    def first(self) -> int:
        """See ``JournalReader.first``."""
        return 1

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """See ``JournalReader.read``."""
        chosen, size, position, checksum = list[Record](), 0, after, 0
        for record in self._records[self._index(after) :][:limit]:
            position, checksum = record.last, record.checksum
            if types is None or not frozenset(types).isdisjoint(record.frame.types):
                chosen.append(record)
                size += len(record.raw)
            if size > max_bytes:
                break
        return Chunk(tuple(chosen), position, checksum)

    def headers_back(self, upto: int) -> Iterator[Record]:
        """See ``JournalReader.headers_back``."""
        yield from reversed(self._records[: bisect_right(self._firsts, upto)])

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """See ``Journal.ids``."""
        return ((record.first, record.frame.ids) for record in self._records[self._index(after) :])

    def mark(self, producer: str, epoch: int) -> int | None:
        """See ``Journal.mark``."""
        return self._marks.get(producer, epoch)

    def landmark(self, event_type: str) -> int:
        """See ``JournalReader.landmark``."""
        return landmark_in(self.landmarks(), event_type)

    def landmarks(self) -> Iterator[Record]:
        """See ``JournalReader.landmarks``."""
        return reversed(self._landmarks)

    def snapshot(self, upto: int) -> Snapshot | None:  # noqa: ARG002 - nothing is archived
        """See ``JournalReader.snapshot``."""
        return None

    def dead_letters(self) -> list[DeadLetter]:
        """See ``JournalReader.dead_letters``."""
        return list(self._dead_letters.values())

    def remove_dead_letter(self, number: int) -> bool:
        """See ``Journal.remove_dead_letter``."""
        return self._dead_letters.pop(number, None) is not None

    def maintain(self, *, idle: bool = True) -> None:
        """Do nothing: there is nothing to tidy."""

    def close(self) -> None:
        """Do nothing: the content stays for as long as the object."""

    def _index(self, after: int) -> int:
        """Return the index of the record that holds the next event."""
        index = max(0, bisect_right(self._firsts, after + 1) - 1)
        return index + bool(self._records and self._records[index].last <= after)


class MemoryStateStore:
    """State in memory."""

    def __init__(self) -> None:
        self._cursor = 0
        self._rows: dict[StateKey, bytes] = {}

    def load(self) -> tuple[int, dict[StateKey, bytes]]:
        """See ``StateStore.load``."""
        return self._cursor, dict(self._rows)

    def save(self, cursor: int, changed: Mapping[StateKey, bytes | None]) -> None:
        """See ``StateStore.save``."""
        self._cursor = cursor
        for key, value in changed.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value

    def close(self) -> None:
        """Do nothing: the content stays for as long as the object."""
