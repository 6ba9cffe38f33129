"""Virtual time: an agenda of future events, and a broker that stamps events as the real one does."""

from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import NamedTuple

from app.events import Envelope, Event, Payload

SECOND_US = 1_000_000
HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US

START_US = 1_767_225_600 * SECOND_US
"""Start of every simulation: 2026-01-01, 00:00 UTC."""

Happening = Callable[[int], Sequence[Envelope[Payload]]]
"""Something that happens at a time (microseconds since 1970), and returns what to publish."""


class Appointment(NamedTuple):
    """A happening at its time; ``number`` orders simultaneous ones."""

    at_us: int
    number: int
    source: str
    happening: Happening


class Agenda:
    """Future events, soonest first; simultaneous ones in the order of entry."""

    def __init__(self, now_us: int = START_US) -> None:
        self.now_us = now_us
        self._entered = 0
        self._heap: list[Appointment] = []

    def __len__(self) -> int:
        return len(self._heap)

    def enter(self, seconds: float, source: str, happening: Happening) -> None:
        """Schedule something ``seconds`` >= 0 from now; ``source`` is the daemon that publishes then."""
        self._entered += 1
        at_us = self.now_us + max(0, round(seconds * SECOND_US))
        heappush(self._heap, Appointment(at_us, self._entered, source, happening))

    def next_until(self, end_us: int) -> Appointment | None:
        """Take the next appointment up to a time, and set the clock to it; without any, to that time."""
        if not self._heap or self._heap[0].at_us > end_us:
            self.now_us = end_us
            return None
        appointment = heappop(self._heap)
        self.now_us = appointment.at_us
        return appointment


class VirtualBroker:
    """Records envelopes as the broker does: gapless positions from 1, time never decreasing, known ids dropped."""

    def __init__(self) -> None:
        self.head = 0
        self.recorded_us = 0
        self._known: set[str] = set()

    def record(self, envelopes: Sequence[Envelope[Payload]], now_us: int, source: str) -> list[Event[Payload]]:
        """Return the new ones among the envelopes as recorded events."""
        events = []
        self.recorded_us = max(self.recorded_us, now_us)
        for envelope in envelopes:
            if envelope.id not in self._known:
                self._known.add(envelope.id)
                self.head += 1
                events.append(Event(envelope, self.head, self.recorded_us, source))
        return events
