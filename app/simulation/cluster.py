"""Modelled cluster in virtual time: real workers with modelled jobs.

As in the running system, a worker's reducer decides which jobs it does and which facts it publishes about them. The
models in ``jobs`` give each job's duration and result.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from heapq import heappop, heappush
from itertools import islice
from math import ceil
from typing import Any, NamedTuple, cast

from app.config import RunSettings
from app.controllers import States
from app.controllers.fold import Changed, Factory
from app.core import FlyballError, derive_id
from app.core.clock import SECOND_US
from app.events import (
    DaemonFact,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    Envelope,
    Event,
    NodeQuarantined,
    Payload,
    SelfplayComplete,
    SelfplayRequested,
    follow,
    originate,
)
from app.events.envelope import EPOCH
from app.simulation import jobs
from app.simulation.jobs import Computed
from app.simulation.world import START_US, World
from daemons.distribution import Distributor
from daemons.evaluation import Evaluator
from daemons.jobs import Job, Json, Worker, WorkerPlace
from daemons.quality_monitor import QualityMonitor
from daemons.selfplay_worker import SelfplayWorker
from daemons.training import Trainer

BEATS_PER_SILENCE = 3
"""Heartbeats of a node in each ``node_silent_seconds``."""

Envelopes = Sequence[Envelope[Payload]]
Happening = Callable[[int], Envelopes]
"""Called at its virtual time (microseconds since 1970); returns the envelopes to publish."""

Compute = Callable[[Job[Any], int], Computed]
"""Models a job, given its start in microseconds since 1970."""


class Appointment(NamedTuple):
    """A scheduled happening; ``number`` orders simultaneous appointments."""

    at_us: int
    number: int
    source: str
    happening: Happening


class Agenda:
    """Virtual clock with a queue of appointments, by time and then by order of entry."""

    def __init__(self) -> None:
        self.now_us = START_US
        self._entered = 0
        self._heap: list[Appointment] = []

    def enter(self, seconds: float, source: str, happening: Happening) -> None:
        """Schedule a happening ``seconds`` from now (negative: now); ``source`` is the daemon that publishes."""
        self._entered += 1
        at_us = self.now_us + max(0, round(seconds * SECOND_US))
        heappush(self._heap, Appointment(at_us, self._entered, source, happening))

    def next_until(self, end_us: int) -> Appointment | None:
        """Advance to the next appointment and return it; without one up to ``end_us``, advance to ``end_us``."""
        if not self._heap or self._heap[0].at_us > end_us:
            self.now_us = end_us
            return None
        appointment = heappop(self._heap)
        self.now_us = appointment.at_us
        return appointment


def _following(facts: Iterable[Payload], job: Job[Any], by: str, now_us: int) -> Envelopes:
    """Return a worker's facts about a job as envelopes, as its host would."""
    time = EPOCH + timedelta(microseconds=now_us)
    return [follow(fact, job.cause, by=by, index=index, time=time) for index, fact in enumerate(facts)]


def _answer(worker: Worker[Any], job: Job[Any], outcome: Json | FlyballError, now_us: int) -> Envelopes:
    if isinstance(outcome, FlyballError):
        return _following(worker.failed(job, outcome), job, f"{worker.name}.failed", now_us)
    return _following(worker.completed(job, outcome), job, f"{worker.name}.completed", now_us)


class Station:
    """Runs the jobs of one real worker, at most ``capacity`` at once; other jobs wait.

    ``factory`` builds the worker, with one row for each configuration. The simulation's Fold hosts a second instance.
    ``source`` is the worker's daemon, ``daemon@node``.
    """

    def __init__(
        self,
        factory: Callable[[RunSettings], Any],
        settings: RunSettings,
        source: str,
        *,
        capacity: int,
        agenda: Agenda,
        compute: Compute,
    ) -> None:
        self.factory: Factory = factory
        self._worker: Worker[Any] = factory(settings)
        self._source, self._capacity = source, capacity
        self._agenda, self._compute = agenda, compute
        self._known: set[str] = set()
        self._waiting: deque[Job[Any]] = deque()

    @property
    def pending(self) -> int:
        """Number of jobs that run or wait."""
        return len(self._known)

    def take(self, changed: Changed, states: States) -> None:
        """Queue new jobs from the worker's changed rows, and start as many as fit."""
        for (owner, key), row in changed.items():
            if owner == self._worker.name and row is not None:
                for job in self._worker.jobs({key: row}, states):
                    if job.id not in self._known:
                        self._known.add(job.id)
                        self._waiting.append(job)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and len(self._known) - len(self._waiting) < self._capacity:
            self._agenda.enter(0, self._source, partial(self._start, self._waiting.popleft()))

    def _start(self, job: Job[Any], now_us: int) -> Envelopes:
        computed = self._compute(job, now_us)
        self._agenda.enter(computed.seconds, self._source, partial(self._finish, job, computed.outcome))
        return _following(self._worker.started(job), job, f"{self._worker.name}.started", now_us)

    def _finish(self, job: Job[Any], outcome: Json | FlyballError, now_us: int) -> Envelopes:
        self._known.discard(job.id)
        self._start_waiting()
        return _answer(self._worker, job, outcome, now_us)


class SimulatedNode:
    """A node with one self-play worker, whose name is ``selfplay_worker@node``."""

    def __init__(self, name: str, settings: RunSettings, world: World, agenda: Agenda) -> None:
        daemon, _, node = name.partition("@")
        self._name, self._daemon = name, {"daemon": daemon, "node": node}
        self._settings, self._world, self._agenda = settings, world, agenda
        self._worker, self._truth = SelfplayWorker(settings, WorkerPlace(name, node, store="")), world.node(name)
        self._beat_seconds = settings.feedback.scheduler.node_silent_seconds / BEATS_PER_SILENCE
        self._requests: deque[Event[SelfplayRequested]] = deque()  # the first one is played first
        self._playing: Job[SelfplayRequested] | None = None
        self._alive = False
        self._lives = self._published = 0

    @property
    def pending(self) -> int:
        """Number of requests without an answer."""
        return len(self._requests)

    def boot(self) -> None:
        """Schedule the node's start, deaths and restarts."""
        self._agenda.enter(0, self._name, self._start)
        for trouble in self._truth.troubles["dead"]:
            self._agenda.enter((trouble.start_us - self._agenda.now_us) / SECOND_US, self._name, self._die)
            self._agenda.enter((trouble.end_us - self._agenda.now_us) / SECOND_US, self._name, self._start)

    def request(self, event: Event[SelfplayRequested]) -> None:
        """Queue a request, and play it if the node is idle."""
        self._requests.append(event)
        self._play_next()

    def forget_requests(self) -> None:
        """Drop all requests, because the scheduler expects none from a quarantined worker."""
        self._requests.clear()
        self._playing = None

    def _start(self, now_us: int) -> Envelopes:
        self._lives += 1
        self._alive = True
        self._agenda.enter(self._beat_seconds, self._name, partial(self._beat, self._lives))
        self._play_next()
        started = DaemonStarted(**self._daemon, pid=self._lives, version="simulated")
        return self._publish(now_us, started, DaemonReady(**self._daemon, position=0, capacity=1))

    def _die(self, _: int) -> Envelopes:
        """Stop without an event; the next start repeats the request under way from its beginning."""
        self._alive = False
        self._playing = None
        return ()

    def _beat(self, life: int, now_us: int) -> Envelopes:
        if not self._alive or life != self._lives:
            return ()
        self._agenda.enter(self._beat_seconds, self._name, partial(self._beat, life))
        requests, running = tuple(event.id for event in islice(self._requests, 2)), int(self._playing is not None)
        beat = DaemonHeartbeat(**self._daemon, position=0, lag=0, jobs=running, requests=requests)
        return self._publish(now_us, beat)

    def _publish(self, now_us: int, *facts: DaemonFact) -> Envelopes:
        self._published += 1
        time = EPOCH + timedelta(microseconds=now_us)
        return [
            originate(fact, event_id=derive_id(self._name, self._published, index), time=time)
            for index, fact in enumerate(facts)
        ]

    def _play_next(self) -> None:
        if not self._alive or self._playing is not None or not self._requests:
            return
        event = self._requests[0]
        function = self._worker.backend(event.cause).play
        job = self._playing = _job(event, function, self._settings.deadlines.selfplay_seconds)
        config = self._settings.config(event.subject)
        computed = jobs.play(self._world, self._truth, config, job, self._agenda.now_us)

        def finish(now_us: int) -> Envelopes:
            if self._playing is not job:  # the node died, or was quarantined
                return ()
            self._requests.popleft()
            self._playing = None
            self._play_next()
            return _answer(self._worker, job, computed.outcome, now_us)

        self._agenda.enter(computed.seconds, self._name, finish)


class Cluster:
    """Answers requests with facts. Self-play runs on nodes; training, evaluation and distribution at stations."""

    def __init__(self, settings: RunSettings, world: World, agenda: Agenda) -> None:
        self._settings, self._world, self._agenda = settings, world, agenda
        self.nodes = {name: SimulatedNode(name, settings, world, agenda) for name in settings.selfplay_workers}
        self._monitor = QualityMonitor(settings, _place("quality_monitor"))
        time, machines, configs = world.plant.time, world.plant.cluster, len(settings.configs)

        def station(name: str, worker: Callable[..., Any], per_config: float, compute: Compute) -> Station:
            capacity, place = max(1, ceil(per_config * configs)), _place(name)
            return Station(
                partial(worker, place=place), settings, place.name, capacity=capacity, agenda=agenda, compute=compute
            )

        self.stations = (
            station("training", Trainer, machines.trainers_per_config, partial(jobs.train, world)),
            station("evaluation", Evaluator, machines.evaluators_per_config, lambda job, _: jobs.evaluate(world, job)),
            station("distribution", Distributor, 1, lambda *_: Computed(time.distribution, {})),
        )

    @property
    def factories(self) -> tuple[Factory, ...]:
        """Factories of the stations' workers, for the simulation's Fold."""
        return tuple(station.factory for station in self.stations)

    def boot(self) -> None:
        """Start the nodes."""
        for node in self.nodes.values():
            node.boot()

    def observe(self, event: Event[Payload], changed: Changed, states: States) -> None:
        """Start the work that follows from an event and from the changed rows."""
        data = event.envelope.data
        for station in self.stations:
            station.take(changed, states)
        if isinstance(data, SelfplayRequested):
            self.nodes[data.worker].request(cast("Event[SelfplayRequested]", event))
        elif isinstance(data, SelfplayComplete):
            self._inspect(event)
        elif isinstance(data, NodeQuarantined):
            self.nodes[data.worker].forget_requests()

    def _inspect(self, event: Event[Payload]) -> None:
        """Schedule a shard's inspection; the number of inspectors is not limited."""
        job = _job(event, self._monitor.backend(event.cause).inspect, self._settings.deadlines.inspection_seconds)
        computed, monitor = jobs.inspect(self._world, job), self._monitor
        self._agenda.enter(computed.seconds, monitor.place.name, partial(_answer, monitor, job, computed.outcome))


def _job(event: Event[Any], function: str, deadline_seconds: float) -> Job[Any]:
    return Job(event.cause, event.data, function, (), deadline_seconds)


def _place(daemon: str) -> WorkerPlace:
    return WorkerPlace(f"{daemon}@cluster", "cluster", store="")
