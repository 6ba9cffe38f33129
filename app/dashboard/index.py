"""An index of the latest events. It holds their ids, causes, types and configurations, in 20 bytes an event."""

from array import array
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.events import BY_TYPE, Event
from flyball.app.events.frames import hash_id

MOST = 1_000_000
"""Events that are remembered. Up to a quarter more are kept, so that forgetting is rare."""

RECENT = 50_000
"""Events whose positions are found by a hash table.

The positions of older events are found by a scan, which takes a millisecond.
"""

NUMBERS = {event_type: number for number, event_type in enumerate(BY_TYPE)}


class EventIndex:
    """Finds events by id, type and configuration, and their causes and effects. Returned positions are ascending."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._first = 1  # position of the first remembered event
        self._ids, self._causes = array("Q"), array("q")
        self._types, self._subjects = array("H"), array("H")
        self._numbers: dict[str, int] = {"": 0}
        self._recent: dict[int, int] = {}

    def add(self, event: Event[Any]) -> None:
        """Add the next event. Skipped positions are those of unreadable events; they match nothing."""
        if not self._ids:
            self._first = event.sequence
        for _ in range(event.sequence - self._first - len(self._ids)):
            self._append(0, 0, len(NUMBERS), 0)
        hashed_id, cause = hash_id(event.id), event.envelope.causationid
        at = 0 if cause is None else self.find(cause) or 0
        subject = self._numbers.setdefault(event.subject, len(self._numbers))
        self._append(hashed_id, at, NUMBERS[event.data.event_type], min(subject, 65_535))
        self._recent[hashed_id] = event.sequence
        if len(self._recent) > RECENT:
            del self._recent[next(iter(self._recent))]
        if len(self._ids) > self._most + self._most // 4:
            self._forget(len(self._ids) - self._most)

    def _append(self, hashed_id: int, cause: int, kind: int, subject: int) -> None:
        self._ids.append(hashed_id)
        self._causes.append(cause)
        self._types.append(kind)
        self._subjects.append(subject)

    def _forget(self, count: int) -> None:
        for column in (self._ids, self._causes, self._types, self._subjects):
            del column[:count]
        self._first += count

    def find(self, event_id: str) -> int | None:
        """Return the position of the event with this id. ``None`` if no remembered event has it."""
        hashed_id = hash_id(event_id)
        if (at := self._recent.get(hashed_id, 0)) >= self._first:
            return at
        rows = np.flatnonzero(_view(self._ids, np.uint64) == np.uint64(hashed_id))
        return int(rows[0]) + self._first if len(rows) else None

    def cause(self, position: int) -> int | None:
        """Return the position of an event's cause. ``None`` for an external or forgotten cause."""
        at = position - self._first
        return (self._causes[at] or None) if 0 <= at < len(self._causes) else None

    def effects(self, position: int) -> list[int]:
        """Return the positions of an event's direct effects."""
        start = max(0, position - self._first)  # an effect comes after its cause
        rows = np.flatnonzero(_view(self._causes, np.int64)[start:] == position)
        return [int(row) + start + self._first for row in rows]

    def select(
        self,
        types: Collection[str] | None = None,
        subject: str | None = None,
        *,
        after: int = 0,
        before: int | None = None,
        first: int | None = None,
        last: int | None = None,
    ) -> list[int]:
        """Return the positions of events.

        Args:
            types: event types; ``None``: all.
            subject: the configuration, or the empty string for the system's events; ``None``: any.
            after: only later positions.
            before: only earlier positions.
            first: the earliest ones, so many at most; ``None``: all.
            last: the latest ones, so many at most; ``None``: all.
        """
        begin = max(0, after + 1 - self._first)
        end = len(self._ids) if before is None else max(begin, min(len(self._ids), before - self._first))
        selected = _view(self._types, np.uint16)[begin:end] < len(NUMBERS)
        if types is not None:
            numbers = np.array([NUMBERS[name] for name in types if name in NUMBERS], dtype=np.uint16)
            selected &= np.isin(_view(self._types, np.uint16)[begin:end], numbers)
        if subject is not None:
            number = self._numbers.get(subject)
            if number is None:
                return []
            selected &= _view(self._subjects, np.uint16)[begin:end] == number
        rows = np.flatnonzero(selected)[:first]
        if last is not None:
            rows = rows[-last:] if last else rows[:0]
        return [int(row) + begin + self._first for row in rows]


def _view(column: "array[int]", kind: type[np.generic]) -> NDArray[Any]:
    """Return a column as an array, for one expression only. A column cannot grow while a view of it exists."""
    return np.frombuffer(column, dtype=kind)
