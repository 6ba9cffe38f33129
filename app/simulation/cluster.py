"""Modelled cluster in virtual time: real workers with modelled jobs.

As in the running system, a worker's reducer decides which jobs it does and which facts it publishes about them. The
models in ``jobs`` give each job's duration and result. Jobs run where they would in the running system: of each kind
as many at once on the head and on every other machine as ``plant.cluster`` says.
"""

from collections import deque
from collections.abc import Callable, Collection, Mapping
from datetime import timedelta
from functools import partial
from typing import Any, Literal, NamedTuple, cast

from flyball.app.config import Deployment, RunSettings
from flyball.app.controllers import States
from flyball.app.controllers.fold import Changed, Factory
from flyball.app.core import EventId, derive_id
from flyball.app.core.clock import SECOND_US
from flyball.app.events import (
    DaemonFact,
    DaemonReady,
    DaemonStarted,
    Event,
    NodeLost,
    NodeQuarantined,
    Payload,
    SelfplayRequested,
    originate,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.job_specs import DistributionResult, JobContext, SelfplayResult
from flyball.app.simulation import jobs
from flyball.app.simulation.agenda import Agenda, Envelopes, answer
from flyball.app.simulation.jobs import Computed
from flyball.app.simulation.machines import Machine, Task
from flyball.app.simulation.settings import HEAD, MachineSettings
from flyball.app.simulation.stations import JobModel, Service, Station
from flyball.app.simulation.world import World
from flyball.daemons.distribution import Distributor
from flyball.daemons.evaluation import Evaluator
from flyball.daemons.jobs import Job, WorkerIdentity
from flyball.daemons.quality_monitor import QualityMonitor
from flyball.daemons.selfplay_worker import SelfplayWorker
from flyball.daemons.training import Trainer

SILENT_SECONDS = Deployment().node_silent_seconds
"""Time until the broker reports a dead node as lost. Nodes' signs of life are not modelled: no journal records them."""

BROKER = "broker@cluster"

StationKind = Literal["inspection", "training", "evaluation", "distribution"]
"""A kind of job other than self-play."""

SCALED: tuple[StationKind, ...] = ("inspection", "training", "evaluation")
"""Kinds of jobs that more processes speed up; the head alone distributes, one model at a time."""


class Playing(NamedTuple):
    """A request that a node plays; times in microseconds since 1970."""

    queued_us: int
    started_us: int
    task: Task


def settings_of(machine: str, world: World) -> MachineSettings:
    """Return a machine's processes and cores."""
    return world.plant.cluster.head if machine == HEAD else world.plant.cluster.node


class SimulatedNode:
    """The self-play worker of ``machine``, which plays ``processes`` requests at once.

    If the machine dies, the jobs of ``stations`` that run on it are lost. The head never dies, because nothing runs
    without it.
    """

    def __init__(
        self,
        name: str,
        settings: RunSettings,
        world: World,
        agenda: Agenda,
        *,
        machine: Machine,
        stations: Collection[Station],
    ) -> None:
        daemon, _, node = name.partition("@")
        self.processes = settings_of(node, world).selfplay
        self._machine = machine
        self._name, self._daemon = name, {"daemon": daemon, "node": node}
        self._settings, self._world, self._agenda, self._stations = settings, world, agenda, stations
        self._worker = SelfplayWorker(settings, WorkerIdentity(name, node, JobContext(store="")))
        self._truth = world.node(name)
        self._requests: deque[Event[SelfplayRequested]] = deque()  # oldest first
        self._playing: dict[EventId, Playing] = {}
        self._ended: list[Service] = []
        self._alive = False
        self._lives = self._published = 0

    @property
    def pending(self) -> int:
        """Number of requests without an answer."""
        return len(self._requests)

    @property
    def services(self) -> list[Service]:
        """All requests so far; those that run or wait now come last."""
        running = [Service(request.queued_us, request.started_us, None) for request in self._playing.values()]
        idle = (request for request in self._requests if request.id not in self._playing)
        waiting = [Service(request.recorded_us, None, None) for request in idle]
        return [*self._ended, *running, *waiting]

    def boot(self) -> None:
        """Schedule the node's start, deaths and restarts."""
        if not self.processes:
            return
        self._agenda.enter(0, self._name, self._start)
        for trouble in self._truth.troubles["dead"] if self._daemon["node"] != HEAD else ():
            self._agenda.enter((trouble.start_us - self._agenda.now_us) / SECOND_US, self._name, self._die)
            self._agenda.enter((trouble.end_us - self._agenda.now_us) / SECOND_US, self._name, self._start)

    def request(self, event: Event[SelfplayRequested]) -> None:
        """Queue a request, and play it if a process is idle."""
        self._requests.append(event)
        self._play_next()

    def forget_requests(self) -> None:
        """Drop all requests, because the scheduler expects none from a quarantined worker."""
        self._requests.clear()
        self._stop_playing()

    def _start(self, now_us: int) -> Envelopes:
        self._lives += 1
        self._alive = True
        self._play_next()
        for station in self._stations:
            station.restore(self._daemon["node"])
        started = DaemonStarted(**self._daemon, pid=self._lives, version="simulated")
        return self._publish(now_us, started, DaemonReady(**self._daemon, position=0, capacity=self.processes))

    def _die(self, _: int) -> Envelopes:
        """Stop without an event. The next start repeats the requests under way from their beginning."""
        self._alive = False
        self._stop_playing()
        for station in self._stations:
            station.lose(self._daemon["node"])
        self._agenda.enter(SILENT_SECONDS, BROKER, partial(self._report_lost, self._lives))
        return ()

    def _report_lost(self, life: int, now_us: int) -> Envelopes:
        """Report the node as lost, unless it has started again."""
        if self._alive or life != self._lives:
            return ()
        return self._publish(now_us, NodeLost(**self._daemon, silent_seconds=SILENT_SECONDS))

    def _publish(self, now_us: int, *facts: DaemonFact | NodeLost) -> Envelopes:
        self._published += 1
        time = EPOCH + timedelta(microseconds=now_us)
        return [
            originate(fact, event_id=derive_id(self._name, self._published, index), time=time)
            for index, fact in enumerate(facts)
        ]

    def _stop_playing(self) -> None:
        for job_id, playing in tuple(self._playing.items()):
            self._machine.stop(playing.task)
            self._end(job_id)

    def _end(self, job_id: EventId) -> Playing:
        playing = self._playing.pop(job_id)
        self._ended.append(Service(playing.queued_us, playing.started_us, self._agenda.now_us))
        return playing

    def _play_next(self) -> None:
        waiting = [event for event in self._requests if event.id not in self._playing]
        idle = self.processes - len(self._playing) if self._alive else 0
        for event in waiting[:idle]:
            self._play(event)

    def _play(self, event: Event[SelfplayRequested]) -> None:
        function = self._worker.backend(event.cause).play
        job = Job(event.cause, event.data, function, (), self._settings.deadlines.selfplay_seconds)
        config, now_us = self._settings.config(event.subject), self._agenda.now_us
        computed = jobs.play(self._world, self._truth, config, job, now_us)

        def finish(now_us: int) -> Envelopes:
            self._requests.remove(event)
            seconds = (now_us - self._end(event.id).started_us) / SECOND_US
            self._play_next()
            outcome = computed.outcome
            if isinstance(outcome, SelfplayResult):
                outcome = outcome.replace(seconds=seconds)
            return answer(self._worker, job, Computed(seconds, outcome), now_us)

        task = self._machine.start(computed.seconds, 1, self._name, finish)
        self._playing[event.id] = Playing(event.recorded_us, now_us, task)


class Cluster:
    """Answers requests with facts: games are played on ``nodes``, all other jobs run at ``stations``."""

    def __init__(self, settings: RunSettings, world: World, agenda: Agenda) -> None:
        distributed = Computed(world.plant.time.distribution, DistributionResult())

        names = dict.fromkeys((HEAD, *(name.partition("@")[2] for name in settings.selfplay_workers)))
        machines = {name: Machine(settings_of(name, world).cores, agenda) for name in names}

        def station(kind: StationKind, daemon: str, worker: Callable[..., Any], compute: JobModel) -> Station:
            identity = WorkerIdentity(f"{daemon}@{HEAD}", HEAD, JobContext(store=""))
            processes = {HEAD: 1}
            if kind in SCALED:
                most = getattr(world.plant.cluster.machines, kind)
                processes = {name: getattr(settings_of(name, world), kind) for name in tuple(names)[:most]}
            return Station(
                partial(worker, identity=identity),
                settings,
                daemon,
                processes=processes,
                machines=machines,
                agenda=agenda,
                compute=compute,
                spreads=kind == "evaluation",
            )

        self.stations: Mapping[StationKind, Station] = {
            "inspection": station("inspection", "quality_monitor", QualityMonitor, partial(jobs.inspect, world)),
            "training": station("training", "training", Trainer, partial(jobs.train, world)),
            "evaluation": station("evaluation", "evaluation", Evaluator, partial(jobs.evaluate, world)),
            "distribution": station("distribution", "distribution", Distributor, lambda *_: distributed),
        }
        self.nodes = {
            name: SimulatedNode(
                name,
                settings,
                world,
                agenda,
                machine=machines[name.partition("@")[2]],
                stations=self.stations.values(),
            )
            for name in settings.selfplay_workers
        }

    @property
    def factories(self) -> tuple[Factory, ...]:
        """Factories of the stations' workers, for the simulation's Fold."""
        return tuple(station.factory for station in self.stations.values())

    def boot(self) -> None:
        """Start the nodes."""
        for node in self.nodes.values():
            node.boot()

    def observe(self, event: Event[Payload], changed: Changed, states: States) -> None:
        """Start the work that follows from an event and changed rows."""
        data = event.envelope.data
        for station in self.stations.values():
            station.take(changed, states)
        if isinstance(data, SelfplayRequested):
            self.nodes[data.worker].request(cast("Event[SelfplayRequested]", event))
        elif isinstance(data, NodeQuarantined):
            self.nodes[data.worker].forget_requests()
