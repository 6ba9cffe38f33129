"""Stations: real workers whose jobs are modelled.

A worker's reducer says which jobs there are and what is said of their results, as in the running system; the model says
how long a job takes and what comes out of it.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from typing import Any, NamedTuple

from app.core import FlyballError
from app.events import Envelope, Event, Payload, Value, follow
from app.events.envelope import EPOCH
from app.runtime.work import Job, Json, Worker
from app.simulation.agenda import Agenda


class Computed(NamedTuple):
    """The outcome of a job: duration, and result or error."""

    seconds: float
    outcome: Json | FlyballError


Compute = Callable[[Job[Any], int], Computed]
"""Models a job from its start, microseconds since 1970."""


def told(facts: Iterable[Payload], job: Job[Any], by: str, now_us: int) -> list[Envelope[Payload]]:
    """Write what a worker says of a job, as its host would."""
    time = EPOCH + timedelta(microseconds=now_us)
    return [follow(fact, job.cause, by=by, index=index, time=time) for index, fact in enumerate(facts)]


class Station:
    """Hosts one real worker and runs at most ``capacity`` of its jobs at once; the others wait their turn.

    Args:
        worker: a worker whose rows each stand for one configuration.
        source: the daemon that says what the worker says.
        capacity: how many jobs at once.
        compute: models a job.
    """

    def __init__(self, worker: Worker[Any, Any], source: str, capacity: int, agenda: Agenda, compute: Compute) -> None:
        self._worker, self._source, self._capacity = worker, source, capacity
        self._agenda, self._compute = agenda, compute
        self.reads = worker.reads
        self._rows: dict[str, Value] = {}
        self._known: set[str] = set()
        self._waiting: deque[Job[Any]] = deque()
        self.running = 0

    @property
    def pending(self) -> int:
        """How many jobs run or wait."""
        return self.running + len(self._waiting)

    def observe(self, event: Event[Payload]) -> None:
        """Let the worker see an event, and take up the jobs that it wants then."""
        step = self._worker.step(self._rows, event)
        for key, row in step.rows.items():
            if row is None:
                self._rows.pop(key, None)
                continue
            self._rows[key] = row
            for job in self._worker.jobs({key: row}):
                if job.id not in self._known:
                    self._known.add(job.id)
                    self._waiting.append(job)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self.running < self._capacity:
            job = self._waiting.popleft()
            self.running += 1
            self._agenda.enter(0, self._source, partial(self._start, job))

    def _start(self, job: Job[Any], now_us: int) -> Sequence[Envelope[Payload]]:
        computed = self._compute(job, now_us)
        self._agenda.enter(computed.seconds, self._source, lambda end_us: self._finish(job, computed.outcome, end_us))
        return told(self._worker.started(job), job, f"{self._worker.name}.started", now_us)

    def _finish(self, job: Job[Any], outcome: Json | FlyballError, now_us: int) -> Sequence[Envelope[Payload]]:
        self.running -= 1
        self._known.discard(job.id)
        self._start_waiting()
        if isinstance(outcome, FlyballError):
            return told(self._worker.failed(job, outcome), job, f"{self._worker.name}.failed", now_us)
        return told(self._worker.completed(job, outcome), job, f"{self._worker.name}.completed", now_us)
