"""The modelled cluster: who of its daemons hears of which event."""

from collections.abc import Mapping
from math import ceil
from typing import Any, cast

from app.config import RunSettings
from app.events import Event, NodeQuarantined, Payload, SelfplayComplete, SelfplayRequested
from app.runtime.work import Distributor, Evaluator, Job, Place, QualityMonitor, Trainer
from app.simulation.agenda import Agenda
from app.simulation.compute import Gauntlets, Trainings
from app.simulation.nodes import Node
from app.simulation.play import Inspections
from app.simulation.stations import Compute, Computed, Station, told
from app.simulation.troubles import NodeTroubles
from app.simulation.world import World


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
            event.cause, event.data, "app.selfplay.inspection:inspect", (), self._settings.deadlines.inspection_seconds
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
