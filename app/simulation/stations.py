"""Stations: the jobs of one kind, on the processes of all machines.

As in the running system, a worker's reducer decides which jobs are wanted. The most urgent job goes to the least busy
live machine as soon as a process is free there. A lost machine's jobs wait again, and start over on another machine.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from flyball.app.config import RunSettings
from flyball.app.controllers import States
from flyball.app.controllers.fold import Changed, Factory
from flyball.app.core import SECOND_US, EventId
from flyball.app.simulation.agenda import Agenda, Envelopes, answer, following
from flyball.app.simulation.jobs import Computed, Outcome
from flyball.app.simulation.machines import Machine, Task
from flyball.daemons.jobs import Job, Worker

JobModel = Callable[[Job[Any], int], Computed]
"""Function of a job and its start, in microseconds since 1970."""


class Service(NamedTuple):
    """One job's times in microseconds since 1970; ``None`` means not yet.

    Attributes:
        processes: number of processes that do the job.
        urgent: false for a tournament's matches, which are played when nothing else waits.
    """

    queued_us: int
    started_us: int | None
    ended_us: int | None
    processes: int = 1
    urgent: bool = True


class Waiting(NamedTuple):
    """A job without a process, since ``queued_us``."""

    job: Job[Any]
    queued_us: int


@dataclass(slots=True, eq=False)
class Running:
    """A job on a machine, since ``started_us``. ``processes`` processes do its parts, once ``task`` is set."""

    job: Job[Any]
    machine: str
    processes: int
    queued_us: int
    started_us: int
    task: Task | None = None

    def until(self, ended_us: int | None) -> Service:
        """Return the job's time at the machine."""
        return Service(self.queued_us, self.started_us, ended_us, self.processes, is_urgent(self.job))


def is_urgent(job: Job[Any]) -> bool:
    """Return False for tournaments' matches, which wait for all other jobs."""
    return getattr(job.request, "purpose", None) != "tournament"


def urgency(waiting: Waiting) -> tuple[bool, int]:
    """Return a job's sort key, in the order of ``Worker.jobs``."""
    return not is_urgent(waiting.job), waiting.job.cause.sequence


class Station:
    """Runs one worker's jobs, on as many processes as each machine has.

    ``factory`` builds the worker. The simulation's Fold hosts a second instance, whose rows ``take`` receives.

    Args:
        factory: builds the worker, with one row for each configuration or request.
        settings: of the run.
        daemon: the name of the worker's daemons.
        processes: by machine. Each does a job, or with ``spreads`` all of a machine's do the parts of one job.
        machines: the machines, by name.
        agenda: the clock.
        compute: models a job; it is called once for each job, at its first start.
    """

    def __init__(
        self,
        factory: Callable[[RunSettings], Any],
        settings: RunSettings,
        daemon: str,
        *,
        processes: Mapping[str, int],
        machines: Mapping[str, Machine],
        agenda: Agenda,
        compute: JobModel,
        spreads: bool = False,
    ) -> None:
        self.factory: Factory = factory
        self.processes = sum(processes.values())
        self.ended: list[Service] = []
        self._worker: Worker[Any] = factory(settings)
        self._daemon, self._agenda, self._compute, self._machines = daemon, agenda, compute, machines
        self._processes, self._spreads = processes, spreads
        self._lost: set[str] = set()
        self._jobs_by_row: dict[str, dict[EventId, Job[Any]]] = {}  # by key of the worker's row
        self._waiting: dict[EventId, Waiting] = {}
        self._running: dict[EventId, Running] = {}
        self._computed: dict[EventId, Computed] = {}
        self._answered: set[EventId] = set()  # because the worker's rows may still want these jobs

    @property
    def pending(self) -> int:
        """Number of jobs that run or wait."""
        return len(self._running) + len(self._waiting)

    @property
    def services(self) -> list[Service]:
        """All jobs so far; those that run or wait now come last."""
        running = [entry.until(None) for entry in self._running.values()]
        waiting = [Service(queued_us, None, None, urgent=is_urgent(job)) for job, queued_us in self._waiting.values()]
        return [*self.ended, *running, *waiting]

    def take(self, changed: Changed, states: States) -> None:
        """Queue changed rows' new jobs, and drop unwanted ones. Waiting jobs then start on free processes."""
        for (owner, key), row in changed.items():
            if owner == self._worker.name:
                jobs = self._worker.jobs({key: row}, states) if row is not None else ()
                self._update_jobs(key, {job.id: job for job in jobs})
        self._start_waiting()

    def lose(self, machine: str) -> None:
        """Stop all jobs on a machine; they wait for another machine."""
        self._lost.add(machine)
        for running in [entry for entry in self._running.values() if entry.machine == machine]:
            self._stop(running)
            self._waiting[running.job.id] = Waiting(running.job, self._agenda.now_us)
        self._start_waiting()

    def restore(self, machine: str) -> None:
        """Give jobs to a machine that is back."""
        self._lost.discard(machine)
        self._start_waiting()

    def _update_jobs(self, key: str, jobs: dict[EventId, Job[Any]]) -> None:
        for job_id in self._jobs_by_row.pop(key, {}):
            if job_id not in jobs:
                self._answered.discard(job_id)
                self._waiting.pop(job_id, None)
                self._computed.pop(job_id, None)
                if running := self._running.get(job_id):
                    self._stop(running)
        if jobs:
            self._jobs_by_row[key] = jobs
        for job_id, job in jobs.items():
            if job_id in self._waiting:
                self._waiting[job_id] = Waiting(job, self._waiting[job_id].queued_us)
            elif job_id not in self._running and job_id not in self._answered:
                self._waiting[job_id] = Waiting(job, self._agenda.now_us)

    def _start_waiting(self) -> None:
        while self._waiting and (machine := self._least_busy()) is not None:
            job, queued_us = min(self._waiting.values(), key=urgency)
            del self._waiting[job.id]
            number = min(self._processes[machine], max(1, len(job.parts))) if self._spreads else 1
            running = self._running[job.id] = Running(job, machine, number, queued_us, self._agenda.now_us)
            self._agenda.enter(0, self._source(machine), partial(self._start, running))

    def _least_busy(self) -> str | None:
        """Return the least busy machine with a free process."""
        jobs = dict.fromkeys((name for name in self._processes if name not in self._lost), 0)
        for running in self._running.values():
            jobs[running.machine] += 1
        most = {name: min(number, 1) if self._spreads else number for name, number in self._processes.items()}
        free = (name for name, number in jobs.items() if number < most[name])
        return min(free, key=jobs.__getitem__, default=None)

    def _start(self, running: Running, now_us: int) -> Envelopes:
        job = running.job
        if self._running.get(job.id) is not running:  # stale, because the job was dropped or its machine lost
            return ()
        if job.id not in self._computed:
            self._computed[job.id] = self._compute(job, now_us)
        computed = self._computed[job.id]
        finish = partial(self._finish, running, computed.outcome)
        seconds, source = computed.seconds / running.processes, self._source(running.machine)
        running.task = self._machines[running.machine].start(seconds, running.processes, source, finish)
        return following(self._worker.started(job), job, f"{self._worker.name}.started", now_us)

    def _finish(self, running: Running, outcome: Outcome, now_us: int) -> Envelopes:
        job = running.job
        running.task = None
        self._stop(running)
        self._answered.add(job.id)
        del self._computed[job.id]
        self._start_waiting()
        seconds = (now_us - running.started_us) / SECOND_US  # not those computed: other jobs share the machine's cores
        return answer(self._worker, job, Computed(seconds, outcome), now_us)

    def _source(self, machine: str) -> str:
        return f"{self._daemon}@{machine}"

    def _stop(self, running: Running) -> None:
        del self._running[running.job.id]
        if running.task is not None:
            self._machines[running.machine].stop(running.task)
        self.ended.append(running.until(self._agenda.now_us))
