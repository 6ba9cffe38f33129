"""The modelled cluster: real workers whose jobs are modelled.

A worker's reducer decides which jobs there are and what is published about their results, as in the running system. A
model says how long a job takes and what its result is.
"""

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from functools import partial
from math import ceil
from typing import Any, cast

from app.config import RunSettings
from app.controllers import States
from app.controllers.fold import Changed, Factory
from app.core import FlyballError, derive_id
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
from app.simulation.agenda import SECOND_US, Agenda
from app.simulation.jobs import Computed, Gauntlets, Inspections, NodePlay, Trainings
from app.simulation.world import NodeTroubles, World
from daemons.distribution import Distributor
from daemons.evaluation import Evaluator
from daemons.jobs import Job, Json, Place, Worker
from daemons.quality_monitor import QualityMonitor
from daemons.selfplay_worker import SelfplayWorker
from daemons.training import Trainer

BEATS_PER_SILENCE = 3
"""Heartbeats in the time after which a silent node counts as lost."""

Envelopes = Sequence[Envelope[Payload]]
Compute = Callable[[Job[Any], int], Computed]
"""Models a job from its start, microseconds since 1970."""


def _following(facts: Iterable[Payload], job: Job[Any], by: str, now_us: int) -> Envelopes:
    """Return a worker's facts about a job as envelopes, as its host would."""
    time = EPOCH + timedelta(microseconds=now_us)
    return [follow(fact, job.cause, by=by, index=index, time=time) for index, fact in enumerate(facts)]


def _answer(worker: Worker[Any], job: Job[Any], outcome: Json | FlyballError, now_us: int) -> Envelopes:
    if isinstance(outcome, FlyballError):
        return _following(worker.failed(job, outcome), job, f"{worker.name}.failed", now_us)
    return _following(worker.completed(job, outcome), job, f"{worker.name}.completed", now_us)


class Station:
    """Runs at most ``capacity`` of one real worker's jobs at once; the others wait.

    Args:
        factory: builds a worker whose rows each stand for one configuration; the simulation's Fold hosts another.
        settings: of the run.
        source: the daemon that publishes the worker's facts.
        capacity: how many jobs at once.
        agenda: the future.
        compute: models a job.
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
        self.running = 0

    @property
    def pending(self) -> int:
        """How many jobs run or wait."""
        return self.running + len(self._waiting)

    def take(self, changed: Changed, states: States) -> None:
        """Take up the jobs that the worker wants after its rows changed."""
        for (owner, key), row in changed.items():
            if owner == self._worker.name and row is not None:
                for job in self._worker.jobs({key: row}, states):
                    if job.id not in self._known:
                        self._known.add(job.id)
                        self._waiting.append(job)
        self._start_waiting()

    def _start_waiting(self) -> None:
        while self._waiting and self.running < self._capacity:
            self.running += 1
            self._agenda.enter(0, self._source, partial(self._start, self._waiting.popleft()))

    def _start(self, job: Job[Any], now_us: int) -> Envelopes:
        computed = self._compute(job, now_us)
        self._agenda.enter(computed.seconds, self._source, partial(self._finish, job, computed.outcome))
        return _following(self._worker.started(job), job, f"{self._worker.name}.started", now_us)

    def _finish(self, job: Job[Any], outcome: Json | FlyballError, now_us: int) -> Envelopes:
        self.running -= 1
        self._known.discard(job.id)
        self._start_waiting()
        return _answer(self._worker, job, outcome, now_us)


class SimulatedNode:
    """One self-play worker on its node.

    Args:
        name: its name on the bus, ``selfplay_worker@node``.
        settings: of the run.
        world: the truth.
        agenda: the future.
        troubles: its deaths, and what else goes wrong on it.
    """

    def __init__(self, name: str, settings: RunSettings, world: World, agenda: Agenda, troubles: NodeTroubles) -> None:
        daemon, _, node = name.partition("@")
        self._name, self._daemon = name, {"daemon": daemon, "node": node}
        self._agenda, self._troubles = agenda, troubles
        self._worker = SelfplayWorker(settings, Place(name, node, store=""))
        self._play = NodePlay(world, settings, node, troubles)
        self._beat_seconds = settings.feedback.scheduler.node_silent_seconds / BEATS_PER_SILENCE
        self._deadline_seconds = settings.deadlines.selfplay_seconds
        self._queue: deque[Event[SelfplayRequested]] = deque()
        self._playing: Event[SelfplayRequested] | None = None
        self._alive = False
        self._lives = self._published = 0

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return len(self._queue) + (self._playing is not None)

    def boot(self) -> None:
        """Enter its start and its deaths in the agenda."""
        self._agenda.enter(0, self._name, self._start)
        for trouble in self._troubles.dead:
            self._agenda.enter((trouble.start_us - self._agenda.now_us) / SECOND_US, self._name, self._die)
            self._agenda.enter((trouble.end_us - self._agenda.now_us) / SECOND_US, self._name, self._start)

    def request(self, event: Event[SelfplayRequested]) -> None:
        """Queue a request."""
        self._queue.append(event)
        self._play_next()

    def forget_requests(self) -> None:
        """Drop all requests, because the scheduler expects none from a quarantined worker."""
        self._queue.clear()
        self._playing = None

    def _start(self, now_us: int) -> Envelopes:
        self._lives += 1
        self._alive = True
        self._agenda.enter(self._beat_seconds, self._name, partial(self._beat, self._lives))
        self._play_next()
        started = DaemonStarted(**self._daemon, pid=self._lives, version="simulated")
        return self._publish(now_us, started, DaemonReady(**self._daemon, position=0, capacity=1))

    def _die(self, _: int) -> Envelopes:
        """Die silently. The request under way is played from its beginning after the next start."""
        self._alive = False
        if self._playing is not None:
            self._queue.appendleft(self._playing)
            self._playing = None
        return ()

    def _beat(self, life: int, now_us: int) -> Envelopes:
        if not self._alive or life != self._lives:
            return ()
        self._agenda.enter(self._beat_seconds, self._name, partial(self._beat, life))
        held = ([self._playing] if self._playing else []) + list(self._queue)
        requests, jobs = tuple(event.id for event in held[:2]), int(self._playing is not None)
        return self._publish(now_us, DaemonHeartbeat(**self._daemon, position=0, lag=0, jobs=jobs, requests=requests))

    def _publish(self, now_us: int, *facts: DaemonFact) -> Envelopes:
        self._published += 1
        time = EPOCH + timedelta(microseconds=now_us)
        return [
            originate(fact, event_id=derive_id(self._name, self._published, index), time=time)
            for index, fact in enumerate(facts)
        ]

    def _play_next(self) -> None:
        if not self._alive or self._playing is not None or not self._queue:
            return
        event = self._playing = self._queue.popleft()
        job = Job(event.cause, event.data, "app.play.selfplay:play", (), self._deadline_seconds)
        computed, life = self._play(job, self._agenda.now_us), self._lives

        def finish(now_us: int) -> Envelopes:
            if not self._alive or life != self._lives or self._playing is not event:
                return ()
            self._playing = None
            self._play_next()
            return _answer(self._worker, job, computed.outcome, now_us)

        self._agenda.enter(computed.seconds, self._name, finish)


class Cluster:
    """Answers requests with facts, as workers do. Self-play runs on the nodes, everything else at stations.

    Args:
        settings: of the run; ``selfplay_workers`` names the nodes.
        world: the truth.
        agenda: the future.
        end_us: when the simulation ends.
    """

    def __init__(self, settings: RunSettings, world: World, agenda: Agenda, end_us: int) -> None:
        self._settings, self._agenda = settings, agenda
        self.nodes = {
            name: SimulatedNode(name, settings, world, agenda, NodeTroubles.draw(world.plant, end_us, world.seed, name))
            for name in settings.selfplay_workers
        }
        self._monitor = QualityMonitor(settings, _place("quality_monitor"))
        self._inspections = Inspections(world)
        time, machines, configs = world.plant.time, world.plant.cluster, len(settings.configs)

        def station(name: str, worker: Callable[..., Any], per_config: float, compute: Compute) -> Station:
            capacity, place = max(1, ceil(per_config * configs)), _place(name)
            return Station(
                partial(worker, place=place), settings, place.name, capacity=capacity, agenda=agenda, compute=compute
            )

        self.stations = (
            station("training", Trainer, machines.trainers_per_config, Trainings(world)),
            station("evaluation", Evaluator, machines.evaluators_per_config, Gauntlets(world)),
            station("distribution", Distributor, 1, lambda *_: Computed(time.distribution, {})),
        )

    @property
    def factories(self) -> tuple[Factory, ...]:
        """Factories of the stations' workers."""
        return tuple(station.factory for station in self.stations)

    def boot(self) -> None:
        """Start the nodes."""
        for node in self.nodes.values():
            node.boot()

    def observe(self, event: Event[Payload], changed: Changed, states: States) -> None:
        """React to an event, and to what it changed in the workers' rows."""
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
        """Have a shard inspected; there are as many inspectors as shards."""
        deadline = self._settings.deadlines.inspection_seconds
        job: Job[Any] = Job(event.cause, event.data, "app.play.inspection:inspect", (), deadline)
        computed, monitor = self._inspections(job, self._agenda.now_us), self._monitor
        self._agenda.enter(computed.seconds, monitor.place.name, partial(_answer, monitor, job, computed.outcome))


def _place(daemon: str) -> Place:
    return Place(f"{daemon}@cluster", "cluster", store="")
