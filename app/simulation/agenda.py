"""Virtual clock of a simulation, and envelopes of workers' facts."""

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from heapq import heappop, heappush
from typing import Any, NamedTuple

from flyball.app.core import FlyballError
from flyball.app.core.clock import SECOND_US
from flyball.app.events import Envelope, Payload, follow
from flyball.app.events.envelope import EPOCH
from flyball.app.simulation.jobs import Computed
from flyball.app.simulation.world import START_US
from flyball.daemons.jobs import Job, Worker

Envelopes = Sequence[Envelope[Payload]]
Happening = Callable[[int], Envelopes]
"""Function from the virtual time (microseconds since 1970) to envelopes to publish."""


class Appointment(NamedTuple):
    """A scheduled happening. ``number`` orders simultaneous appointments."""

    at_us: int
    number: int
    source: str
    happening: Happening


class Agenda:
    """Virtual clock with appointments, ordered by time, then by entry."""

    def __init__(self) -> None:
        self.now_us = START_US
        self._entered = 0
        self._heap: list[Appointment] = []

    def enter(self, seconds: float, source: str, happening: Happening) -> None:
        """Schedule a happening of daemon ``source`` in ``seconds`` from now; negative ``seconds`` mean now."""
        self._entered += 1
        at_us = self.now_us + max(0, round(seconds * SECOND_US))
        heappush(self._heap, Appointment(at_us, self._entered, source, happening))

    def next_until(self, end_us: int) -> Appointment | None:
        """Advance to the next appointment and return it; without one, advance to ``end_us`` and return None."""
        if not self._heap or self._heap[0].at_us > end_us:
            self.now_us = end_us
            return None
        appointment = heappop(self._heap)
        self.now_us = appointment.at_us
        return appointment


def following(facts: Iterable[Payload], job: Job[Any], by: str, now_us: int) -> Envelopes:
    """Return a worker's facts about a job as its host's envelopes."""
    time = EPOCH + timedelta(microseconds=now_us)
    return [follow(fact, job.cause, by=by, index=index, time=time) for index, fact in enumerate(facts)]


def answer(worker: Worker[Any], job: Job[Any], computed: Computed, now_us: int) -> Envelopes:
    """Return a worker's facts about a job's result or error."""
    if isinstance(computed.outcome, FlyballError):
        return following(worker.failed(job, computed.outcome), job, f"{worker.name}.failed", now_us)
    return following(worker.completed(job, computed.outcome, computed.seconds), job, f"{worker.name}.completed", now_us)
