"""A client's outgoing frames, until their acknowledgement. No sockets."""

import asyncio
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from app.bus.errors import BrokerUnavailable
from app.bus.ports import Spill
from app.bus.sequencer import Run
from app.events.frames import Draft, Frame, FrameBuilder

FRAME_BYTES = 256 << 10
IN_FLIGHT = 16


class Ticket:
    """Waits for the positions of events that were published together."""

    __slots__ = ("_missing", "_positions", "future")

    def __init__(self, future: "asyncio.Future[tuple[int, ...]]", count: int) -> None:
        self.future = future
        self._positions = [0] * count
        self._missing = count

    def fill(self, offset: int, positions: Sequence[int]) -> None:
        """Note the positions of the events from the ``offset``-th on."""
        self._positions[offset : offset + len(positions)] = positions
        self._missing -= len(positions)
        if not self._missing and not self.future.done():
            self.future.set_result(tuple(self._positions))

    def fail(self, error: Exception) -> None:
        """Fail, unless that or success was known before, or nobody waits any more."""
        if not self.future.done():
            self.future.set_exception(error)


Waiter = tuple[Ticket, int, int, int]
"""A ticket, the offset of its events in it, and their start and number in the frame."""


@dataclass(slots=True)
class Packed:
    """A frame that is not acknowledged."""

    epoch: int
    base: int
    count: int
    raw: bytes
    since: float
    waiters: list[Waiter] = field(default_factory=list)
    kept: bool = False
    overdue: bool = False
    positions: list[int] = field(default_factory=list)

    def settle(self) -> None:
        """Hand the positions to those who wait."""
        for ticket, offset, start, count in self.waiters:
            ticket.fill(offset, self.positions[start : start + count])


class Outgoing:
    """Frames of one producer in order: those that wait, and those under way.

    Args:
        producer: its name.
        epoch: names this life of the producer; never used before.
        outbox: where frames are kept while the broker is away; what it holds is sent first.
    """

    def __init__(self, producer: str, epoch: int, outbox: Spill | None) -> None:
        self._producer, self._epoch, self._outbox = producer, epoch, outbox
        self._frames: deque[Packed] = deque(map(_restored, outbox.load() if outbox else ()))
        self._under_way = 0
        self._next = 0
        self._builder = FrameBuilder(producer)
        self._waiters: list[Waiter] = []
        self._since = 0.0

    def __bool__(self) -> bool:
        return bool(self._frames) or len(self._builder) > 0

    def add(self, drafts: Sequence[Draft], ticket: Ticket, now: float) -> None:
        """Add events, in order; ``ticket`` receives their positions."""
        offset = 0
        while offset < len(drafts):
            start = len(self._builder)
            if not start:
                self._since = now
            if count := self._builder.take(drafts[offset:] if offset else drafts, FRAME_BYTES):
                self._waiters.append((ticket, offset, start, count))
                offset += count
            else:
                self._pack()

    def due(self) -> Iterator[bytes]:
        """Iterate over the frames that may be sent now; each counts as sent when it is taken."""
        while self._under_way < IN_FLIGHT:
            if self._under_way == len(self._frames):
                if not len(self._builder):
                    return
                self._pack()
            self._under_way += 1
            yield self._frames[self._under_way - 1].raw

    def restart(self) -> None:
        """Send everything again that is not acknowledged."""
        self._under_way = 0

    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Return where each epoch goes on: (epoch, number of its first event that is not acknowledged)."""
        first: dict[int, int] = {}
        for frame in self._frames:
            first.setdefault(frame.epoch, frame.base)
        first.setdefault(self._epoch, self._next)
        return tuple(first.items())

    def acknowledged(self, epoch: int, runs: Iterable[Run]) -> None:
        """Take the positions of events; frames that have all are done."""
        done = []
        for run in runs:
            index = self._find(epoch, run.base)
            if index is None:
                continue  # acknowledged twice, because it was sent twice
            frame = self._frames[index]
            frame.positions += range(run.first, run.first + run.size) if run.first else [0] * run.size
            if len(frame.positions) >= frame.count:
                self._remove(index)
                frame.settle()
                done.append(frame)
        self._forget(done)

    def refused(self, epoch: int, base: int, error: Exception) -> None:
        """Give up a frame."""
        index = self._find(epoch, base)
        if index is not None:
            frame = self._frames[index]
            self._remove(index)
            self._forget([frame])
            for ticket, *_ in frame.waiters:
                ticket.fail(error)

    def keep(self) -> None:
        """Put into the outbox, if there is one, what is not there yet.

        Raises:
            StorageFull: there is no room.
        """
        if self._outbox is None:
            return
        if len(self._builder):
            self._pack()
        fresh = [frame for frame in self._frames if not frame.kept]
        if fresh:
            self._outbox.put([frame.raw for frame in fresh])
            for frame in fresh:
                frame.kept = True

    def next_deadline(self, deadline_s: float) -> float | None:
        """Return when the first of those who wait have waited for too long, None when nobody waits."""
        if self._waiters:
            self._pack()
        waiting = (frame.since + deadline_s for frame in self._frames if frame.waiters and not frame.overdue)
        return next(waiting, None)

    def fail_overdue(self, endpoint: str, now: float, deadline_s: float) -> None:
        """Tell those who have waited for too long; their frames stay."""
        for frame in self._frames:
            if frame.waiters and not frame.overdue and frame.since + deadline_s <= now:
                frame.overdue = True
                for ticket, *_ in frame.waiters:
                    ticket.fail(BrokerUnavailable(endpoint, deadline_s, queued=frame.kept))

    def fail(self, error: Exception) -> None:
        """Tell everyone who waits."""
        waiters = [*(waiter for frame in self._frames for waiter in frame.waiters), *self._waiters]
        for ticket, *_ in waiters:
            ticket.fail(error)

    def _pack(self) -> None:
        count = len(self._builder)
        raw = self._builder.build(self._epoch, self._next)
        self._frames.append(Packed(self._epoch, self._next, count, raw, self._since, self._waiters))
        self._next += count
        self._builder, self._waiters = FrameBuilder(self._producer), []

    def _find(self, epoch: int, base: int) -> int | None:
        for index, frame in enumerate(islice(self._frames, self._under_way)):
            if frame.epoch == epoch and frame.base + len(frame.positions) == base:
                return index
        return None

    def _remove(self, index: int) -> None:
        del self._frames[index]
        self._under_way -= 1

    def _forget(self, frames: Sequence[Packed]) -> None:
        keys = [(frame.epoch, frame.base) for frame in frames if frame.kept]
        if keys and self._outbox is not None:
            self._outbox.remove(keys)


def _restored(raw: bytes) -> Packed:
    frame = Frame.parse(raw)
    return Packed(frame.epoch, frame.base, frame.count, raw, since=0.0, kept=True)
