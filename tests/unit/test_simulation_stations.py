"""Stations: order of jobs, lost machines, and waits by queueing theory."""

from collections.abc import Iterable, Mapping, Sequence
from math import factorial
from typing import Any, ClassVar, NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.config import RunSettings
from flyball.app.core import EventId
from flyball.app.core.clock import SECOND_US
from flyball.app.events import Cause, Payload, Row
from flyball.app.job_specs import DistributionResult
from flyball.app.simulation.agenda import Agenda
from flyball.app.simulation.jobs import Computed
from flyball.app.simulation.machines import Machine
from flyball.app.simulation.stations import Service, Station
from flyball.app.simulation.workload import KindLoad, kind_load
from flyball.app.simulation.world import HOUR_US, START_US
from flyball.daemons.jobs import Job, Worker


class Asked(NamedTuple):
    purpose: str = "rating"


class Requests(Row, frozen=True):
    causes: tuple[Cause, ...]
    purpose: str = "rating"
    parts: int = 1


class Clerk(Worker[Asked]):
    name: ClassVar[str] = "Clerk"
    row: ClassVar[type[Requests]] = Requests
    returns: ClassVar[type[DistributionResult]] = DistributionResult
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    @staticmethod
    def pending(rows: Mapping[str, Any]) -> Sequence[tuple[Cause, Any]]:
        return [(cause, row) for row in rows.values() for cause in row.causes]

    def job(self, cause: Cause, pending: Requests, states: Any) -> Job[Asked]:
        return Job(cause, Asked(pending.purpose), "nothing:done", ({},) * pending.parts, 1.0)

    def completed(self, job: Job[Asked], result: Any, seconds: float) -> tuple[Payload, ...]:
        return ()

    failed = completed


class Office:
    """A station with a clerk and given arrival times and durations."""

    def __init__(
        self,
        machines: Mapping[str, int],
        *,
        seconds: Mapping[str, float] | float,
        spreads: bool = False,
        cores: int = 1000,
    ):
        self.agenda, self.order, self.starts = Agenda(), list[str](), dict[str, float]()

        def compute(job: Job[Any], now_us: int) -> Computed:
            self.order.append(job.id)
            return Computed(seconds if isinstance(seconds, float) else seconds[job.id], DistributionResult())

        self.station = Station(
            lambda run: Clerk(run, None),  # type: ignore[arg-type]  # places decide nothing here
            RunSettings(),
            "clerk",
            processes=machines,
            machines={name: Machine(cores, self.agenda) for name in machines},
            agenda=self.agenda,
            compute=compute,
            spreads=spreads,
        )

    def ask(self, name: str, number: int, at_seconds: float = 0.0, **changes: Any) -> None:
        cause = Cause(
            id=EventId(name), subject=None, correlationid=name, traceparent=None, sequence=number, recorded_us=0
        )
        row = Requests(causes=(cause,), **changes)

        def arrive(_: int) -> Sequence[Any]:
            self.station.take({("Clerk", name): row}, {})
            return ()

        self.agenda.enter(at_seconds, "test", arrive)

    def at(self, seconds: float, happening: Any) -> None:
        def happen(_: int) -> Sequence[Any]:
            happening()
            return ()

        self.agenda.enter(seconds, "test", happen)

    def run(self, seconds: float = 1e9) -> list[Service]:
        """Run until ``seconds`` after the start; return the services."""
        while (appointment := self.agenda.next_until(START_US + round(seconds * SECOND_US))) is not None:
            appointment.happening(appointment.at_us)
        return self.station.services


def waits(services: Iterable[Service]) -> list[float]:
    ordered = sorted(services, key=lambda one: one.queued_us)
    return [(one.started_us - one.queued_us) / SECOND_US for one in ordered if one.started_us is not None]


def test_oldest_request_starts_first_and_tournaments_last() -> None:
    office = Office({"head": 1}, seconds=10.0)
    office.ask("running", 1)
    office.ask("later", 9, 1.0)
    office.ask("earlier", 3, 2.0)
    office.run()
    assert office.order == ["running", "earlier", "later"]
    office = Office({"head": 1}, seconds=10.0)
    office.ask("running", 1)
    office.ask("tournament", 2, 1.0, purpose="tournament")
    office.ask("gate", 3, 2.0)
    office.run()
    assert office.order == ["running", "gate", "tournament"]


def test_jobs_go_to_idle_machines_and_may_be_dropped() -> None:
    office = Office({"head": 3, "node1": 2, "node2": 0}, seconds=10.0)
    for number in range(4):
        office.ask(f"job{number}", number, at_seconds=number)
    office.run(5)
    assert [one.machine for one in office.station._running.values()] == ["head", "node1", "head", "node1"]
    office = Office({"head": 1}, seconds=10.0)
    office.ask("running", 1)
    office.ask("waiting", 2, 1.0)
    office.at(2.0, lambda: office.station.take({("Clerk", "running"): None, ("Clerk", "waiting"): None}, {}))
    (service,) = office.run()
    assert (service.ended_us or 0) - START_US == 2 * SECOND_US
    assert office.station.pending == 0
    office = Office({"head": 4, "node1": 1}, seconds=12.0, spreads=True)
    office.ask("many parts", 1, parts=8)
    office.ask("two parts", 2, 5.0, parts=2)
    services = office.run()
    assert [((one.ended_us or 0) - (one.started_us or 0)) / SECOND_US for one in services] == [3.0, 6.0]
    assert [one.processes for one in services] == [4, 2]


def test_machines_that_are_lost_or_back_share_jobs() -> None:
    office = Office({"head": 1, "node1": 1}, seconds=10.0)
    office.ask("first", 1)
    office.ask("second", 2)
    office.at(4.0, lambda: office.station.lose("node1"))
    services = office.run()
    times = [((one.started_us or 0) - START_US, (one.ended_us or 0) - START_US) for one in services]
    assert times == [(0, 4 * SECOND_US), (0, 10 * SECOND_US), (10 * SECOND_US, 20 * SECOND_US)]
    assert office.order == ["first", "second"]  # computed once, because the second try has the same result
    office = Office({"node1": 1}, seconds=10.0)
    office.at(0.0, lambda: office.station.lose("node1"))
    office.ask("job", 1, 1.0)
    office.at(30.0, lambda: office.station.restore("node1"))
    assert waits(office.run()) == [29.0]


def spans(services: Iterable[Service]) -> list[tuple[float, float]]:
    """Return the services' starts and ends, seconds."""
    return [
        (((one.started_us or 0) - START_US) / SECOND_US, ((one.ended_us or 0) - START_US) / SECOND_US)
        for one in services
    ]


def test_jobs_share_the_cores_of_their_machine() -> None:
    """Two jobs on one core run at half the pace while both run."""
    office = Office({"head": 2}, seconds={"long": 10.0, "short": 2.0}, cores=1)
    office.ask("long", 1)
    office.ask("short", 2, 3.0)
    assert spans(office.run()) == [(3.0, 7.0), (0.0, 12.0)]
    office = Office({"head": 2}, seconds={"long": 10.0, "short": 2.0}, cores=2)
    office.ask("long", 1)
    office.ask("short", 2, 3.0)
    assert spans(office.run()) == [(3.0, 5.0), (0.0, 10.0)]


def test_processes_of_an_evaluation_share_cores_too() -> None:
    office = Office({"head": 4}, seconds=12.0, spreads=True, cores=2)
    office.ask("many parts", 1, parts=8)
    assert spans(office.run()) == [(0.0, 6.0)]


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(1, 50)), min_size=1, max_size=8), st.integers(1, 4))
@settings(max_examples=examples(60))
def test_machine_does_all_work_and_never_idles(jobs: list[tuple[int, int]], cores: int) -> None:
    """With a core, the last job ends when the work of all has been done without a pause (Lindley's recursion)."""
    seconds = {f"job{number}": float(work) for number, (_, work) in enumerate(jobs)}
    office = Office({"head": len(jobs)}, seconds=seconds, cores=cores)
    for number, (at, _) in enumerate(jobs):
        office.ask(f"job{number}", number, float(at))
    ends = [end for _, end in spans(office.run())]
    assert len(ends) == len(jobs)
    busy_until = 0.0
    for at, work in sorted(jobs):
        busy_until = max(busy_until, at) + work
    assert max(ends) <= busy_until + 1e-3
    if cores == 1:
        assert max(ends) == pytest.approx(busy_until, abs=1e-3)


def test_job_that_is_dropped_frees_its_core() -> None:
    office = Office({"head": 2}, seconds=10.0, cores=1)
    office.ask("dropped", 1)
    office.ask("other", 2)
    office.at(4.0, lambda: office.station.take({("Clerk", "dropped"): None}, {}))
    assert spans(office.run()) == [(0.0, 4.0), (0.0, 12.0)]


def load(services: Sequence[Service], processes: int, end_us: int) -> KindLoad:
    return kind_load("inspection", processes, services, START_US, end_us)


def erlang_c(processes: int, offered: float) -> float:
    """Return the chance to wait in an M/M/c queue (Erlang 1917)."""
    busy = offered**processes / factorial(processes) * processes / (processes - offered)
    return busy / (sum(offered**k / factorial(k) for k in range(processes)) + busy)


@pytest.mark.parametrize(("processes", "utilisation"), [(1, 0.5), (1, 0.8), (3, 0.7), (8, 0.8)])
def test_waits_and_utilisation_are_those_of_an_m_d_c_queue(processes: int, utilisation: float) -> None:
    """Utilisation is rate x seconds / servers."""
    seconds, jobs = 10.0, 10_000
    rate = utilisation * processes / seconds
    office = Office({"head": processes}, seconds=seconds)
    arrivals = np.cumsum(np.random.default_rng(7).exponential(1 / rate, size=jobs))
    for number, at in enumerate(arrivals):
        office.ask(f"job{number}", number, float(at))
    services = office.run()
    found = load(services, processes, START_US + round(arrivals[-1] * SECOND_US))
    offered = jobs / arrivals[-1] * seconds  # load of the drawn arrivals
    assert found.busy == pytest.approx(offered / processes, rel=0.01)
    assert found.jobs_per_hour == pytest.approx(jobs / arrivals[-1] * 3600, rel=0.01)
    expected = erlang_c(processes, offered) * seconds / (processes - offered) / 2
    assert found.wait_seconds == pytest.approx(expected, rel=0.1)


@given(
    st.lists(st.tuples(st.integers(0, 100_000_000), st.integers(100_000, 50_000_000)), min_size=1, max_size=40),
    st.integers(1, 6),
    st.integers(1, 3),
)
@settings(max_examples=examples(60))
def test_more_processes_never_lengthen_any_wait(jobs: list[tuple[int, int]], processes: int, more: int) -> None:
    """This holds for equal arrivals and durations, served oldest first. Source: Kiefer and Wolfowitz."""
    ordered = [(at_us / SECOND_US, duration_us / SECOND_US) for at_us, duration_us in sorted(jobs)]
    seconds = {f"job{number}": duration for number, (_, duration) in enumerate(ordered)}

    def waits_with(count: int) -> list[float]:
        office = Office({"head": count}, seconds=seconds)
        for number, (at, _) in enumerate(ordered):
            office.ask(f"job{number}", number, at)
        return waits(office.run())

    few, many = waits_with(processes), waits_with(processes + more)
    assert len(few) == len(many) == len(jobs)
    assert all(longer >= shorter - 1e-4 for longer, shorter in zip(few, many, strict=True))


def test_load_counts_what_lies_in_its_window() -> None:
    def hours(*times: float | None) -> list[int | None]:
        return [None if one is None else START_US + round(one * HOUR_US) for one in times]

    services = [
        Service(*hours(0, 0, 2)),  # half of it in the window
        Service(*hours(1, 2, 3), processes=2),
        Service(*hours(2, None, None)),
        Service(*hours(2, None, None), urgent=False),
    ]
    found = kind_load("evaluation", 4, services, START_US + HOUR_US, START_US + 3 * HOUR_US)
    assert found.busy == pytest.approx((1 + 2) / (4 * 2))
    assert (found.jobs_per_hour, found.seconds) == (1.0, 1.5 * 3600)
    assert found.wait_seconds == pytest.approx(3600)  # the waits of the second, and of the third until the end
    assert found.growth == pytest.approx(1.0)  # from one waiting request to two
