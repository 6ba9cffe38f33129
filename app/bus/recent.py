"""The last records in memory, for subscribers that keep up; all others read the journal."""

from bisect import bisect_right
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from app.events.frames import Record


@dataclass(frozen=True, slots=True)
class Piece:
    """Raw records, and the last position they cover (or that was passed over)."""

    raws: list[bytes]
    position: int


class Recent:
    """A bounded tail of the journal.

    Args:
        head: position of the journal's last event.
        max_bytes: bound on what is kept.
    """

    def __init__(self, head: int, max_bytes: int) -> None:
        self.head = head
        self._max_bytes = max_bytes
        self._bytes = 0
        self._firsts: list[int] = []
        self._records: list[tuple[tuple[str, ...], bytes]] = []
        self._dropped = 0

    def extend(self, records: Sequence[Record]) -> None:
        """Add the next records and forget the oldest beyond the bound."""
        for record in records:
            self._firsts.append(record.first)
            self._records.append((record.frame.types, record.raw))
            self._bytes += len(record.raw)
            self.head = record.last
        while self._bytes > self._max_bytes and self._dropped < len(self._records) - 1:
            self._bytes -= len(self._records[self._dropped][1])
            self._records[self._dropped] = ((), b"")
            self._dropped += 1
        if self._dropped > 1024 and 2 * self._dropped > len(self._records):
            del self._records[: self._dropped], self._firsts[: self._dropped]
            self._dropped = 0

    def holds(self, after: int) -> bool:
        """Return whether all that follows a position is here."""
        return after >= self.head or (self._dropped < len(self._firsts) and after + 1 >= self._firsts[self._dropped])

    def read(self, after: int, types: AbstractSet[str] | None, max_bytes: int) -> Piece:
        """Return what follows a position that is held, up to and with the record that exceeds ``max_bytes``."""
        if after >= self.head:
            return Piece([], after)
        start = max(bisect_right(self._firsts, after + 1) - 1, self._dropped)
        raws, size = [], 0
        for i in range(start, len(self._records)):
            names, raw = self._records[i]
            if types is None or any(name in types for name in names):
                raws.append(raw)
                size += len(raw)
                if size > max_bytes and i + 1 < len(self._records):
                    return Piece(raws, self._firsts[i + 1] - 1)
        return Piece(raws, self.head)
