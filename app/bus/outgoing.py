"""A producer's unacknowledged frames, and the publishes that wait for them."""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from flyball.app.bus.sequencer import Run
from flyball.app.events.frames import Draft, Frame, FrameBuilder

FRAME_BYTES = 256 << 10
FRAMES_IN_FLIGHT = 16


@dataclass(slots=True)
class Ticket:
    """The positions of events published together; ``missing`` counts those without one."""

    token: int
    positions: list[int]
    missing: int


@dataclass(slots=True)
class Packed:
    """An unacknowledged frame; a waiter is (ticket, offset in its events, offset in this frame, number of events)."""

    epoch: int
    base: int
    count: int
    raw: bytes
    waiters: list[tuple[Ticket, int, int, int]] = field(default_factory=list)
    stored: bool = False
    positions: list[int] = field(default_factory=list)


class Outgoing:
    """One producer's unacknowledged frames: those from the outbox (``stored``) first, in flight before waiting ones."""

    def __init__(self, producer: str, epoch: int, stored: Iterable[bytes]) -> None:
        self._producer, self._epoch = producer, epoch
        self._frames = deque(map(_restore, stored))
        self._in_flight = 0
        self._next = 0
        self._builder = FrameBuilder(producer)
        self._waiters: list[tuple[Ticket, int, int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._frames) or len(self._builder) > 0

    def add(self, drafts: Sequence[Draft], token: int) -> None:
        """Add events, in order."""
        ticket, offset = Ticket(token, [0] * len(drafts), len(drafts)), 0
        while offset < len(drafts):
            start = len(self._builder)
            if count := self._builder.take(drafts[offset:] if offset else drafts, FRAME_BYTES):
                self._waiters.append((ticket, offset, start, count))
                offset += count
            else:
                self._pack()

    def due(self) -> Iterator[bytes]:
        """Iterate over the frames that may be sent now. A yielded frame is in flight."""
        while self._in_flight < FRAMES_IN_FLIGHT:
            if self._in_flight == len(self._frames):
                if not len(self._builder):
                    return
                self._pack()
            self._in_flight += 1
            yield self._frames[self._in_flight - 1].raw

    def restart(self) -> None:
        """Mark every frame as not in flight; ``due`` yields all again."""
        self._in_flight = 0

    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Return (epoch, number of its first unacknowledged event) for each epoch."""
        first: dict[int, int] = {}
        for frame in self._frames:
            first.setdefault(frame.epoch, frame.base)
        first.setdefault(self._epoch, self._next)
        return tuple(first.items())

    def acknowledge(self, epoch: int, runs: Iterable[Run]) -> list[Packed]:
        """Record positions of acknowledged events; remove and return complete frames."""
        done = []
        for run in runs:
            index = self._find(epoch, run.base)
            if index is None:
                continue  # a second acknowledgement, because the frame was sent twice
            frame = self._frames[index]
            frame.positions += range(run.first, run.first + run.size) if run.first else [0] * run.size
            if len(frame.positions) >= frame.count:
                done.append(self._remove(index))
        return done

    def refuse(self, epoch: int, base: int) -> list[Packed]:
        """Remove a frame and return it, if it is in flight."""
        index = self._find(epoch, base)
        return [] if index is None else [self._remove(index)]

    def unstored(self) -> list[Packed]:
        """Return the frames that are not in the outbox."""
        if len(self._builder):
            self._pack()
        return [frame for frame in self._frames if not frame.stored]

    def _pack(self) -> None:
        size = len(self._builder)
        raw = self._builder.build(self._epoch, self._next)
        self._frames.append(Packed(self._epoch, self._next, size, raw, self._waiters))
        self._next += size
        self._builder, self._waiters = FrameBuilder(self._producer), []

    def _find(self, epoch: int, base: int) -> int | None:
        for index, frame in enumerate(islice(self._frames, self._in_flight)):
            if frame.epoch == epoch and frame.base + len(frame.positions) == base:
                return index
        return None

    def _remove(self, index: int) -> Packed:
        frame = self._frames[index]
        del self._frames[index]
        self._in_flight -= 1
        return frame


def _restore(raw: bytes) -> Packed:
    frame = Frame.parse(raw)
    return Packed(frame.epoch, frame.base, frame.count, raw, stored=True)
