"""Load of a simulated cluster by kind of job: busy processes, waits."""

from collections.abc import Iterable, Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from flyball.app.config import FrozenModel, RunSettings
from flyball.app.core.clock import SECOND_US
from flyball.app.events import Event, Payload, TrainingCompleted
from flyball.app.simulation.arms import ALL, arms_of
from flyball.app.simulation.settings import PlantSettings
from flyball.app.simulation.simulation import Simulation
from flyball.app.simulation.stations import Service
from flyball.app.simulation.world import HOUR_US, START_US

WorkKind = Literal["selfplay", "inspection", "training", "evaluation", "distribution"]

SELFPLAY: WorkKind = "selfplay"

WARM_UP = 0.25
"""Share of a run that is not measured, because queues and leagues begin empty."""

BUSY = 0.8
"""Share of time from which a kind of job is a bottleneck: one server's queue has 1.6 jobs on average there (M/D/1)."""


class KindLoad(FrozenModel):
    """Load of one kind of job.

    Attributes:
        processes: number of processes in the cluster.
        busy: share of the processes' time in which they work.
        jobs_per_hour: jobs that ended.
        seconds: mean duration of the jobs that ended; ``None`` without any.
        wait_seconds: mean wait for a process; of jobs that still wait, the wait until the end of the run. Matches of
            tournaments do not count, because they are played when nothing else waits.
        wait_95_seconds: the 95th percentile of these waits.
        growth: number of jobs by which the queue, tournaments included, grows in an hour.
    """

    kind: WorkKind
    processes: int = Field(ge=1)
    busy: float
    jobs_per_hour: float
    seconds: float | None
    wait_seconds: float
    wait_95_seconds: float
    growth: float


class ClusterLoad(FrozenModel):
    """Load of a cluster with all controllers.

    Attributes:
        nodes: machines other than the head.
        kinds: loads, self-play first.
        rows_per_hour: rows that trainings learned from.
        bottleneck: the busiest kind; ``None`` if none is busy, so that configurations wait for their own loops alone.
    """

    nodes: int
    kinds: tuple[KindLoad, ...]
    rows_per_hour: float
    bottleneck: WorkKind | None

    @property
    def loop_seconds(self) -> float:
        """Mean duration of a loop without waits. A loop is one job of each kind."""
        return sum(load.seconds or 0.0 for load in self.kinds)

    def kind(self, name: WorkKind) -> KindLoad:
        """Return the load of a kind of job."""
        return next(load for load in self.kinds if load.kind == name)


def measured_load(settings: RunSettings, plant: PlantSettings, seed: int, seconds: float) -> ClusterLoad:
    """Return the load of a simulated run after its warm-up."""
    simulation = Simulation(settings, plant, arms_of(settings)[ALL], seed, seconds)
    start_us = START_US + round(WARM_UP * seconds * SECOND_US)
    rows = [0]

    def count(event: Event[Payload]) -> None:
        if isinstance(event.data, TrainingCompleted) and event.recorded_us >= start_us:
            rows[0] += event.data.rows or 0

    simulation.listeners.append(count)
    simulation.run()
    span_us = (start_us, simulation.end_us)
    nodes = simulation.cluster.nodes.values()
    games = [service for node in nodes for service in node.services]
    selfplay = kind_load(SELFPLAY, sum(node.processes for node in nodes), games, *span_us)
    stations = simulation.cluster.stations.items()
    others = [kind_load(kind, station.processes, station.services, *span_us) for kind, station in stations]
    hours = (simulation.end_us - start_us) / HOUR_US
    return ClusterLoad(
        nodes=len(settings.selfplay_workers) - 1,
        kinds=(selfplay, *others),
        rows_per_hour=rows[0] / hours,
        bottleneck=bottleneck_of((selfplay, *others)),
    )


def bottleneck_of(kinds: Sequence[KindLoad]) -> WorkKind | None:
    """Return the busiest kind of job if it delays the others; None if no kind is that busy."""
    busiest = max(kinds, key=lambda load: load.busy)
    return busiest.kind if busiest.busy >= BUSY else None


def kind_load(kind: WorkKind, processes: int, services: Sequence[Service], start_us: int, end_us: int) -> KindLoad:
    """Return the load of services between two times, microseconds since 1970."""
    hours, middle_us = (end_us - start_us) / HOUR_US, (start_us + end_us) // 2

    def spent(spans: Iterable[tuple[int, int | None, int]], since_us: int, until_us: int) -> int:
        """Return the weighted time, microseconds, that spans have between two times."""
        clipped = (
            (min(until_us, until_us if end is None else end) - max(since_us, begin), n) for begin, end, n in spans
        )
        return sum(number * max(0, length) for length, number in clipped)

    working = [(job.started_us, job.ended_us, job.processes) for job in services if job.started_us is not None]
    queued = [(service.queued_us, service.started_us, 1) for service in services]
    halves = [spent(queued, *half) / (half[1] - half[0]) for half in ((start_us, middle_us), (middle_us, end_us))]
    ended = [end - begin for begin, end, _ in working if end is not None and end >= start_us]
    waits = [
        ((end_us if service.started_us is None else service.started_us) - service.queued_us) / SECOND_US
        for service in services
        if service.urgent and (service.started_us is None or service.started_us >= start_us)
    ]
    return KindLoad(
        kind=kind,
        processes=processes,
        busy=spent(working, start_us, end_us) / (processes * (end_us - start_us)),
        jobs_per_hour=len(ended) / hours,
        seconds=float(np.mean(ended)) / SECOND_US if ended else None,
        wait_seconds=float(np.mean(waits)) if waits else 0.0,
        wait_95_seconds=float(np.percentile(waits, 95)) if waits else 0.0,
        growth=(halves[1] - halves[0]) / (hours / 2),
    )
