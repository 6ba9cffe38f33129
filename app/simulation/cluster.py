"""The modelled cluster: who of its daemons hears of which event."""

from collections import deque
from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import ceil
from typing import Any, cast

from app.config import RunSettings
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
    originate,
)
from app.events.envelope import EPOCH
from app.simulation.agenda import SECOND_US, Agenda, Happening
from app.simulation.scenario import NodeTroubles
from app.simulation.stations import Compute, Computed, Gauntlets, Inspections, NodePlay, Station, Trainings, told
from app.simulation.world import World
from daemons.distribution import Distributor
from daemons.evaluation import Evaluator
from daemons.jobs import Job, Json, Place
from daemons.quality_monitor import QualityMonitor
from daemons.selfplay_worker import SelfplayWorker
from daemons.training import Trainer

PLAY = "app.play.selfplay:play"
BEATS_PER_SILENCE = 3
"""Heartbeats in the time after which a silent node counts as lost."""

Said = Sequence[Envelope[Payload]]


class Node:
    """One self-play worker on its node.

    Args:
        name: its name on the bus, ``selfplay_worker@node``.
        settings: of the run.
        world: the truth.
        agenda: what happens when.
        troubles: when it dies, and what else goes wrong on it.
    """

    def __init__(self, name: str, settings: RunSettings, world: World, agenda: Agenda, troubles: NodeTroubles) -> None:
        daemon, _, node = name.partition("@")
        self._name, self._who, self._agenda, self._troubles = name, {"daemon": daemon, "node": node}, agenda, troubles
        self._worker = SelfplayWorker(settings, Place(name, node, store=""))
        self._play = NodePlay(world, settings, node, troubles)
        self._beat_seconds = settings.feedback.scheduler.node_silent_seconds / BEATS_PER_SILENCE
        self._deadline_seconds = settings.deadlines.selfplay_seconds
        self._queue: deque[Event[SelfplayRequested]] = deque()
        self._playing: Event[SelfplayRequested] | None = None
        self._alive = False
        self._lives = self._said = 0

    @property
    def pending(self) -> int:
        """How many requests have no answer yet."""
        return len(self._queue) + (self._playing is not None)

    def boot(self) -> None:
        """Enter its start and its deaths in the agenda."""
        self._agenda.enter(0, self._name, self._start)
        for episode in self._troubles.dead:
            self._agenda.enter((episode.start_us - self._agenda.now_us) / SECOND_US, self._name, self._die)
            self._agenda.enter((episode.end_us - self._agenda.now_us) / SECOND_US, self._name, self._start)

    def request(self, event: Event[SelfplayRequested]) -> None:
        """Take in a request."""
        self._queue.append(event)
        self._play_next()

    def forget_requests(self) -> None:
        """Drop all requests, because the scheduler expects none from a quarantined worker."""
        self._queue.clear()
        self._playing = None

    def _start(self, now_us: int) -> Said:
        self._lives += 1
        self._alive = True
        self._agenda.enter(self._beat_seconds, self._name, self._beating(self._lives))
        self._play_next()
        started = DaemonStarted(**self._who, pid=self._lives, version="simulated")
        return self._say(now_us, started, DaemonReady(**self._who, position=0, capacity=1))

    def _die(self, now_us: int) -> Said:  # noqa: ARG002 - a happening's argument
        """Be gone without a word. What was being played is played anew after the next start."""
        self._alive = False
        if self._playing is not None:
            self._queue.appendleft(self._playing)
            self._playing = None
        return ()

    def _beating(self, life: int) -> Happening:
        def beat(now_us: int) -> Said:
            if not self._alive or life != self._lives:
                return ()
            self._agenda.enter(self._beat_seconds, self._name, beat)
            held = ([self._playing] if self._playing else []) + list(self._queue)
            requests = tuple(event.id for event in held[:2])
            jobs = int(self._playing is not None)
            return self._say(now_us, DaemonHeartbeat(**self._who, position=0, lag=0, jobs=jobs, requests=requests))

        return beat

    def _say(self, now_us: int, *facts: DaemonFact) -> Said:
        self._said += 1
        time = EPOCH + timedelta(microseconds=now_us)
        ids = (derive_id(self._name, self._said, index) for index in range(len(facts)))
        return [originate(fact, event_id=event_id, time=time) for fact, event_id in zip(facts, ids, strict=True)]

    def _play_next(self) -> None:
        if not self._alive or self._playing is not None or not self._queue:
            return
        event = self._playing = self._queue.popleft()
        job = Job(event.cause, event.data, PLAY, (), self._deadline_seconds)
        computed, life = self._play(job, self._agenda.now_us), self._lives

        def finish(now_us: int) -> Said:
            goes_on = self._alive and life == self._lives and self._playing is event
            return self._finish(job, computed.outcome, now_us) if goes_on else ()

        self._agenda.enter(computed.seconds, self._name, finish)

    def _finish(self, job: Job[SelfplayRequested], outcome: Json | FlyballError, now_us: int) -> Said:
        self._playing = None
        self._play_next()
        worker = self._worker
        if isinstance(outcome, FlyballError):
            return told(worker.failed(job, outcome), job, f"{worker.name}.failed", now_us)
        return told(worker.completed(job, outcome), job, f"{worker.name}.completed", now_us)


class Cluster:
    """Answers requests with facts, as workers do. Self-play runs on the nodes, everything else at stations.

    Args:
        settings: of the run; ``selfplay_workers`` names the nodes.
        world: the truth.
        agenda: what happens when.
        end_us: when the simulation ends.
    """

    def __init__(self, settings: RunSettings, world: World, agenda: Agenda, end_us: int) -> None:
        self._settings, self._agenda, self._world = settings, agenda, world
        troubles = world.plant.troubles
        self.nodes: Mapping[str, Node] = {
            name: Node(name, settings, world, agenda, NodeTroubles.draw(troubles, end_us, world.seed, name))
            for name in settings.selfplay_workers
        }
        self._monitor = QualityMonitor(settings, _place("quality_monitor"))
        self._inspections = Inspections(world)
        self.stations = self._stations(settings, len(settings.configs))
        self._readers: dict[type[Payload], list[Station]] = {}
        for station in self.stations:
            for kind in station.reads:
                self._readers.setdefault(kind, []).append(station)

    def _stations(self, settings: RunSettings, configs: int) -> tuple[Station, ...]:
        plant = self._world.plant
        wanted: tuple[tuple[str, type[Any], float, Compute], ...] = (
            ("training", Trainer, plant.cluster.trainers_per_config * configs, Trainings(self._world)),
            ("evaluation", Evaluator, plant.cluster.evaluators_per_config * configs, Gauntlets(self._world)),
            ("distribution", Distributor, configs, lambda job, now_us: Computed(plant.time.distribution, {})),  # noqa: ARG005
        )
        return tuple(
            Station(worker(settings, _place(name)), _place(name).name, max(1, ceil(capacity)), self._agenda, compute)
            for name, worker, capacity, compute in wanted
        )

    def boot(self) -> None:
        """Start the nodes."""
        for node in self.nodes.values():
            node.boot()

    def observe(self, event: Event[Payload]) -> None:
        """Let those who read an event see it."""
        data = event.envelope.data
        for station in self._readers.get(type(data), ()):
            station.observe(event)
        if isinstance(data, SelfplayRequested):
            self.nodes[data.worker].request(cast("Event[SelfplayRequested]", event))
        elif isinstance(data, SelfplayComplete):
            self._inspect(event)
        elif isinstance(data, NodeQuarantined):
            self.nodes[data.worker].forget_requests()

    def _inspect(self, event: Event[Payload]) -> None:
        """Have a shard inspected; there are as many inspectors as shards."""
        job: Job[Any] = Job(
            event.cause, event.data, "app.play.inspection:inspect", (), self._settings.deadlines.inspection_seconds
        )
        computed, monitor = self._inspections(job, self._agenda.now_us), self._monitor
        facts = monitor.completed(job, computed.outcome)  # type: ignore[arg-type]  # inspections never fail
        self._agenda.enter(
            computed.seconds,
            monitor.place.name,
            lambda now_us: told(facts, job, f"{monitor.name}.completed", now_us),
        )


def _place(daemon: str) -> Place:
    return Place(f"{daemon}@cluster", "cluster", store="")
