"""Assignment of positions and times to events, and publishing without a broker."""

from collections import deque
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from itertools import count
from typing import Any, NamedTuple

from flyball.app.bus.ports import check_rights
from flyball.app.core import Clock, FlyballError, is_broker
from flyball.app.events import Envelope
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import Frame, Record, frame_of, seal, without_events
from flyball.app.journal import Journal

MICROSECOND = timedelta(microseconds=1)
WINDOW = 250_000


def microseconds(time: datetime) -> int:
    """Return a time in microseconds since 1970 UTC, as in records."""
    return (time - EPOCH) // MICROSECOND


class IdWindow:
    """Positions of at least the last ``size`` events, by hashed id. Frames are dropped whole."""

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._positions: dict[int, int] = {}
        self._frames: deque[Sequence[int]] = deque()

    def __len__(self) -> int:
        return len(self._positions)

    def remember(self, ids: Sequence[int], first: int) -> None:
        """Add a frame of new events at the positions from ``first`` on."""
        positions, frames = self._positions, self._frames
        positions.update(zip(ids, count(first), strict=False))
        frames.append(ids)
        while len(positions) - len(frames[0]) >= self._size:
            for old in frames.popleft():
                positions.pop(old, None)

    def is_new(self, ids: Sequence[int]) -> bool:
        """Return whether all ids are unknown and different from each other."""
        return self._positions.keys().isdisjoint(ids) and len(set(ids)) == len(ids)

    def position(self, event_id: int) -> int:
        """Return an event's position; 0 if the window lacks its id."""
        return self._positions.get(event_id, 0)


class Run(NamedTuple):
    """A run of ``size`` events of an epoch from number ``base`` on, at the positions from ``first`` on (0: unknown)."""

    base: int
    size: int
    first: int


class Gap(FlyballError):
    """A frame that does not continue its epoch. Earlier frames were lost."""

    def __init__(self, expected: int) -> None:
        super().__init__("Frames were lost on the way.", hint=f"Resend from {expected}.")


class Sequencer:
    """Assigns the next position to each new event.

    Admitted events must be appended to the journal next. If that fails, create a new sequencer, because this one
    counts them as recorded. ``marks`` holds the next event number of each (producer, epoch).

    Args:
        head: position of the journal's last event.
        recorded_us: time of the journal's last record.
        recent: (first position, id hashes) of each of the journal's last records; added to the window.
        window: recognises repeated events; by default an empty ``IdWindow``.
    """

    def __init__(
        self,
        head: int,
        recorded_us: int,
        recent: Iterable[tuple[int, Sequence[int]]] = (),
        window: IdWindow | None = None,
    ) -> None:
        self.head = head
        self.recorded_us = recorded_us
        self.marks: dict[tuple[str, int], int] = {}
        self._window = IdWindow() if window is None else window
        for first, ids in recent:
            self._window.remember(ids, first)
        self._records: list[Record] = []
        self._touched: dict[tuple[str, int], None] = {}  # keys, in the order of change

    def admit(self, frame: Frame, now_us: int, source: str) -> list[Run]:
        """Assign positions to new events; return all positions of a frame.

        Raises:
            Gap: the frame does not continue its epoch, or the epoch is unknown.
        """
        key, end = (frame.producer, frame.epoch), frame.base + frame.count
        expected = self.marks.get(key, 0)
        if frame.base == expected and key in self.marks:
            self.marks[key] = end
            self._touched[key] = None
            return self._order(frame, now_us, source)
        if end <= expected:
            return self._runs(frame)
        raise Gap(expected)

    def introduce(self, producer: str, epoch: int, next_number: int) -> None:
        """Set an epoch's next event number, unless it is already higher."""
        key = producer, epoch
        self.marks[key] = max(next_number, self.marks.get(key, 0))

    def retire(self, producer: str, epoch: int) -> None:
        """Forget an unused epoch, unless ``take`` has yet to return its mark. The journal keeps the mark."""
        if (producer, epoch) not in self._touched:
            self.marks.pop((producer, epoch), None)

    def skip(self, producer: str, epoch: int, base: int, count: int) -> bool:
        """Advance past a refused frame, because otherwise the next frame raises ``Gap``.

        Returns whether the frame is new. One that comes again was refused before, and its answer was lost.
        """
        expected = self.marks.get((producer, epoch))
        if expected == base:
            self.marks[producer, epoch] = base + count
            self._touched[producer, epoch] = None
        return expected is None or expected < base + count

    def take(self) -> tuple[list[Record], dict[tuple[str, int], int]]:
        """Return the records and the changed marks since the last call, in the order of change."""
        records, marks = self._records, {key: self.marks[key] for key in self._touched}
        self._records, self._touched = [], {}
        return records, marks

    def _order(self, frame: Frame, now_us: int, source: str) -> list[Run]:
        if self._window.is_new(frame.ids):
            return [Run(frame.base, frame.count, self._seal(frame, now_us, source))]
        frame_ids: set[int] = set()
        repeated: set[int] = set()
        for i, event in enumerate(frame.ids):
            if event in frame_ids or self._window.position(event):
                repeated.add(i)
            frame_ids.add(event)
        if len(repeated) < frame.count:
            self._seal(Frame.parse(without_events(frame, repeated)), now_us, source)
        return self._runs(frame)

    def _seal(self, frame: Frame, now_us: int, source: str) -> int:
        first = self.head + 1
        self.head += frame.count
        self.recorded_us = max(self.recorded_us, now_us)
        self._records.append(seal(frame, first=first, recorded_us=self.recorded_us, source=source))
        self._window.remember(frame.ids, first)
        return first

    def _runs(self, frame: Frame) -> list[Run]:
        """Return a frame's runs: events whose positions are consecutive, or all unknown."""
        runs: list[Run] = []
        for number, position in enumerate(map(self._window.position, frame.ids), frame.base):
            last = runs[-1] if runs else None
            if last and position == (last.first + last.size if last.first else 0):
                runs[-1] = last._replace(size=last.size + 1)
            else:
                runs.append(Run(number, 1, position))
        return runs


class JournalPublisher:
    """Records events without a broker.

    The broker's rules for rights, order, times and repetitions apply.

    Args:
        journal: where events are recorded.
        clock: gives the time of recording.
    """

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal, self._clock = journal, clock
        recent = journal.ids(max(0, journal.head - WINDOW))
        self._sequencer = Sequencer(journal.head, journal.recorded_us, recent)
        self._epoch = journal.head

    def publish(self, envelopes: Sequence[Envelope[Any]], producer: str) -> tuple[int, ...]:
        """Record a producer's events in order and return their positions; see ``Bus.publish``.

        Raises:
            PublishRefused: an event's type is in ``BROKER_ONLY``, and the producer is not a broker.
        """
        if not envelopes:
            return ()
        key = producer, self._epoch
        if key not in self._sequencer.marks:
            self._sequencer.introduce(*key, self._journal.mark(*key) or 0)
        base = self._sequencer.marks[key]
        frame = Frame.parse(frame_of(envelopes, producer=producer, epoch=self._epoch, base=base))
        if not is_broker(producer):
            check_rights(frame)
        runs = self._sequencer.admit(frame, microseconds(self._clock.now()), producer)
        records, marks = self._sequencer.take()
        self._journal.append(records, marks=marks)
        return tuple(position for run in runs for position in range(run.first, run.first + run.size))
