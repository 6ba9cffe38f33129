"""Plan a cluster: the fewest processes whose jobs do not wait long, and the useful nodes."""

from collections.abc import Callable, Mapping
from math import ceil

from flyball.app.config import FrozenModel, RunSettings
from flyball.app.simulation.cluster import SCALED, StationKind
from flyball.app.simulation.settings import ClusterSettings, MachineLimits, PlantSettings, workers
from flyball.app.simulation.workload import SELFPLAY, ClusterLoad, measured_load

GUESSED_BUSY = 0.7
"""Share of time that the first guess keeps processes busy. Queues are then short; simulations verify the guess."""

REQUESTS = 24
"""Default length of a simulation, in mean durations of a self-play request."""

USEFUL = 0.9
"""Share of a larger cluster's rows. A cluster that gets this share has all useful nodes."""

MOST_GROWTH = 4
"""Most nodes to simulate, as a multiple of the given ones."""

HOUR_SECONDS = 3600.0

MachineCounts = Mapping[StationKind, int]
"""Numbers of machines that do each kind of job: the head and the first nodes."""


class Sizing(FrozenModel):
    """A cluster's size and load.

    Attributes:
        processes: by kind of job, of the head and all nodes.
        load: the load with these nodes and processes.
        useful_nodes: the fewest nodes whose games let trainings learn from 90% of the rows that more nodes would
            give. If the nodes are the bottleneck, this is more nodes than ``load`` has.
    """

    processes: dict[str, int]
    load: ClusterLoad
    useful_nodes: int


class ClusterPlan(FrozenModel):
    """A cluster as configured, and with the processes that it needs.

    Attributes:
        hours: virtual time of each simulation.
        most_wait: longest wait allowed (95th percentile), as a share of a loop (``ClusterLoad.loop_seconds``).
        simulations: number of simulations made.
        given: with the configured processes.
        needed: with the fewest processes whose jobs wait no longer; one less of any kind is too few.
    """

    seed: int
    hours: float
    most_wait: float
    simulations: int
    given: Sizing
    needed: Sizing


def default_hours(settings: RunSettings, plant: PlantSettings) -> float:
    """Return a simulation's length, in hours, in which queues settle."""
    seconds = [plant.curve(config.key).time.request for config in settings.configs]
    return REQUESTS * plant.time.scale * sum(seconds) / len(seconds) / HOUR_SECONDS


def too_slow(load: ClusterLoad, most_wait: float) -> list[StationKind]:
    """Return the kinds whose jobs wait longer than ``most_wait`` loops. The wait is the 95th percentile."""
    return [kind for kind in SCALED if load.kind(kind).wait_95_seconds > most_wait * load.loop_seconds]


class Planner:
    """Simulates clusters with all controllers and one seed, each size once."""

    def __init__(
        self, settings: RunSettings, plant: PlantSettings, seed: int, hours: float, say: Callable[[str], None]
    ) -> None:
        self._settings, self._plant, self._seed, self._hours, self._say = settings, plant, seed, hours, say
        self.loads: dict[tuple[ClusterSettings, int], ClusterLoad] = {}

    def load(self, cluster: ClusterSettings, nodes: int) -> ClusterLoad:
        """Return the load of a cluster with ``nodes`` nodes."""
        if (cluster, nodes) not in self.loads:
            settings = self._settings.replace(selfplay_workers=tuple(workers(nodes)))
            plant = self._plant.replace(cluster=cluster)
            load = self.loads[cluster, nodes] = measured_load(settings, plant, self._seed, self._hours * HOUR_SECONDS)
            busy = ", ".join(f"{kind.kind} {kind.processes} ({kind.busy:.0%} busy)" for kind in load.kinds)
            self._say(f"{nodes} nodes: {busy}")
        return self.loads[cluster, nodes]

    def sizing(self, cluster: ClusterSettings, nodes: int) -> Sizing:
        """Return a cluster's size with its useful nodes, found by bisection.

        By the utilisation law (busy = rate x seconds), processes get busy in proportion to the nodes that play. So if
        nodes are the bottleneck, the search goes up to the number of nodes that keeps another kind of job busy all the
        time.
        """
        load = most = self.load(cluster, nodes)
        if load.bottleneck == SELFPLAY:
            others = max(kind.busy for kind in load.kinds if kind.kind != SELFPLAY)
            most = self.load(cluster, ceil(nodes * min(MOST_GROWTH, max(1.0, 1 / others))))
        few, enough = 0, most.nodes
        while few < enough:
            middle = (few + enough) // 2
            if self.load(cluster, middle).rows_per_hour >= USEFUL * most.rows_per_hour:
                enough = middle
            else:
                few = middle + 1
        processes: dict[str, int] = {kind.kind: kind.processes for kind in load.kinds}
        return Sizing(processes=processes, load=load, useful_nodes=enough)


def make_plan(
    settings: RunSettings,
    plant: PlantSettings,
    *,
    seed: int,
    hours: float | None,
    most_wait: float,
    say: Callable[[str], None],
) -> ClusterPlan:
    """Search the fewest machines that inspect, train and evaluate without long waits.

    A simulation in which all machines do so shows the load that the nodes can cause. By the utilisation law it gives a
    first guess, which grows until waits are short, and then shrinks by one machine at a time while they stay short.
    ``say`` receives a line for each simulation.
    """
    hours = default_hours(settings, plant) if hours is None else hours
    nodes = len(settings.selfplay_workers) - 1
    planner = Planner(settings, plant, seed, hours, say)

    def load_with(counts: MachineCounts) -> ClusterLoad:
        return planner.load(with_counts(plant.cluster, counts), nodes)

    ample: MachineCounts = dict.fromkeys(SCALED, nodes + 1)
    busy = {kind: load_with(ample).kind(kind).busy * ample[kind] for kind in SCALED}
    counts = {kind: min(ample[kind], max(1, ceil(busy[kind] / GUESSED_BUSY))) for kind in SCALED}
    while slow := [kind for kind in too_slow(load_with(counts), most_wait) if counts[kind] < ample[kind]]:
        counts |= {kind: min(ample[kind], counts[kind] + max(1, counts[kind] // 4)) for kind in slow}
    shrinking = True
    while shrinking:
        shrinking = False
        for kind in SCALED:
            fewer = counts | {kind: counts[kind] - 1}
            if fewer[kind] and not too_slow(load_with(fewer), most_wait):
                counts, shrinking = fewer, True
    configured = planner.sizing(plant.cluster, nodes)
    needed = planner.sizing(with_counts(plant.cluster, counts), nodes)
    return ClusterPlan(
        seed=seed, hours=hours, most_wait=most_wait, simulations=len(planner.loads), given=configured, needed=needed
    )


def with_counts(cluster: ClusterSettings, counts: MachineCounts) -> ClusterSettings:
    """Return a cluster in which only so many machines do each kind of job, each with one process of the kind."""
    one = dict.fromkeys(SCALED, 1)
    return cluster.replace(
        head=cluster.head.replace(**one),
        node=cluster.node.replace(**one),
        machines=MachineLimits.model_validate(counts),
    )
