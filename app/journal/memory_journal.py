"""The journal in memory, for tests and simulations."""

from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from app.events.frames import DeadLetter, Record
from app.journal.damage import landmarks_in
from app.journal.ports import Chunk
from app.journal.queries import MARKS_KEPT, check_order


class MemoryJournal:
    """A journal that lives as long as the object. Records are kept as bytes, so they are read as from a disk."""

    def __init__(self) -> None:
        self.head = 0
        self.recorded_us = 0
        self._records: list[Record] = []
        self._firsts: list[int] = []
        self._marks: dict[str, dict[int, int]] = {}
        self._landmarks: dict[str, int] = {}
        self._cursors: dict[str, int] = {}
        self._letters: dict[int, DeadLetter] = {}
        self._letter_count = 0

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        cursors: Mapping[str, int] | None = None,
        letters: Sequence[DeadLetter] = (),
    ) -> None:
        """See ``Journal.append``."""
        check_order(self.head, records)
        for record in records:
            self._records.append(record)
            self._firsts.append(record.first)
            self.head, self.recorded_us = record.last, record.recorded_us
        for (producer, epoch), sequence in (marks or {}).items():
            kept = self._marks.setdefault(producer, {})
            kept.pop(epoch, None)
            kept[epoch] = sequence
            if len(kept) > MARKS_KEPT:
                del kept[next(iter(kept))]
        self._landmarks.update(landmarks_in(records))
        self._cursors.update(cursors or {})
        for letter in letters:
            about = (letter.position, letter.reporter)
            if letter.position and any(about == (kept.position, kept.reporter) for kept in self._letters.values()):
                continue
            self._letter_count += 1
            self._letters[self._letter_count] = replace(letter, number=self._letter_count)

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """See ``JournalReader.read``."""
        chosen, size, position = list[Record](), 0, after
        for record in self._records[self._index(after) :][:limit]:
            position = record.last
            if types is None or not frozenset(types).isdisjoint(record.frame.types):
                chosen.append(record)
                size += len(record.raw)
            if size > max_bytes:
                break
        return Chunk(tuple(chosen), position)

    def headers_back(self, upto: int) -> Iterator[Record]:
        """See ``JournalReader.headers_back``."""
        yield from reversed(self._records[: bisect_right(self._firsts, upto)])

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """See ``Journal.ids``."""
        return ((record.first, record.frame.ids) for record in self._records[self._index(after) :])

    def mark(self, producer: str, epoch: int) -> int | None:
        """See ``Journal.mark``."""
        return self._marks.get(producer, {}).get(epoch)

    def landmark(self, event_type: str) -> int:
        """See ``JournalReader.landmark``."""
        return self._landmarks.get(event_type, 0)

    def cursors(self) -> dict[str, int]:
        """See ``JournalReader.cursors``."""
        return dict(sorted(self._cursors.items()))

    def dead_letters(self) -> list[DeadLetter]:
        """See ``JournalReader.dead_letters``."""
        return list(self._letters.values())

    def remove_dead_letter(self, number: int) -> bool:
        """See ``Journal.remove_dead_letter``."""
        return self._letters.pop(number, None) is not None

    def rest(self, *, idle: bool = True) -> None:
        """Do nothing: there is nothing to tidy."""

    def close(self) -> None:
        """Do nothing: the content stays for as long as the object."""

    def _index(self, after: int) -> int:
        """Return the index of the record that holds the next event."""
        index = max(0, bisect_right(self._firsts, after + 1) - 1)
        return index + bool(self._records and self._records[index].last <= after)
