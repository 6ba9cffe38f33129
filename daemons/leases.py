"""Leases of inspections, trainings and evaluations to one of several daemons (ADR-010).

All daemons of a kind fold the same events, and derive the same leases from them, so no event assigns a job. The most
urgent job without a lease goes to the least busy daemon that is ready. The lease ends with the job, or when its daemon
stops, starts again, is lost, or rests after failures; then another daemon gets the job. If both finish it, the result
that is recorded first counts, because its id follows from the request.
"""

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, cast

from flyball.app.config import RunSettings
from flyball.app.controllers.worker_health import WorkerHealth
from flyball.app.core import EventId
from flyball.app.events import (
    ClockTick,
    DaemonFact,
    DaemonFailed,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Emission,
    Event,
    NodeDegraded,
    NodeLost,
    NodeRecovered,
    NodeReturned,
    Payload,
    RollCall,
    Row,
    Step,
)
from flyball.daemons.jobs import Worker

JobOutcome = Literal["succeeded", "failed"]
DAEMON, JOB = "daemon:", "job:"
SIGNS: frozenset[type[Payload]] = frozenset(
    {ClockTick, DaemonFailed, DaemonReady, DaemonStarted, DaemonStopped, NodeLost, NodeReturned, RollCall}
)
"""Types from which it follows which daemons are ready."""


class DaemonHealth(WorkerHealth, frozen=True):
    """A daemon that can hold leases.

    Attributes:
        up: it is ready, and was not lost since.
        succeeded_us: when a job of its last succeeded.
    """

    up: bool = True
    succeeded_us: int = 0

    def job_slots(self, per_capacity: int) -> int:
        """See ``WorkerHealth.job_slots``; 0 while the daemon is not up."""
        return super().job_slots(per_capacity) if self.up else 0


class LeaseRow(Row, frozen=True):
    """A daemon, stored under its name, or the name of the daemon that holds a job's lease, under the job's id."""

    daemon: DaemonHealth | None = None
    holder: str | None = None


@dataclass(frozen=True)
class Leases:
    """Base of the leases of one kind of job: a reducer that is shown its worker's rows.

    Attributes:
        name: of the reducer.
        follows: name of the reducer whose rows it is shown: the worker.
        worker: the class of workers that run the jobs.
        daemon: the daemon of such a worker.
        ahead: leases for each job that a daemon runs at once. Short jobs need more than one, because otherwise the
            daemon idles between a result and the next lease; long ones wait better for whichever daemon is free first.
        failed: event types of jobs that failed. Other types that the worker emits for a finished job are results.
    """

    settings: RunSettings
    name: ClassVar[str]
    follows: ClassVar[str]
    worker: ClassVar[type[Worker[Any]]]
    daemon: ClassVar[str]
    ahead: ClassVar[int] = 1
    failed: ClassVar[frozenset[type[Payload]]]
    row: ClassVar[type[LeaseRow]] = LeaseRow
    reads: ClassVar[frozenset[type[Payload]]] = SIGNS
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({NodeDegraded, NodeRecovered})

    def __init_subclass__(cls) -> None:
        """Follow the worker."""
        cls.follows = cls.worker.name

    def outcome(self, data: Payload) -> JobOutcome | None:
        """Return what a worker's event says about its daemon; ``None``: nothing."""
        if type(data) in self.failed:
            return "failed"
        return "succeeded" if type(data) in self.worker.emits & self.worker.reads else None

    def step(self, rows: Mapping[str, LeaseRow], event: Event[Payload], jobs: Mapping[str, Any]) -> Step[LeaseRow]:
        """Apply an event, end leases, and lease the pending jobs; ``jobs`` are the worker's rows after the event."""
        daemons = {name.removeprefix(DAEMON): row.daemon for name, row in rows.items() if row.daemon}
        leases = {EventId(name.removeprefix(JOB)): row.holder for name, row in rows.items() if row.holder}
        emissions = self._apply(daemons, event)
        pending = [cause.id for cause, _ in self.worker.pending(jobs) if (cause.subject or "") in self.settings]
        leases = self._leased(daemons, leases, pending)
        after = {DAEMON + name: LeaseRow(daemon=daemon) for name, daemon in daemons.items()}
        after |= {JOB + job: LeaseRow(holder=holder) for job, holder in leases.items()}
        ended = dict.fromkeys(rows.keys() - after.keys())
        return Step({**ended, **{key: row for key, row in after.items() if row != rows.get(key)}}, tuple(emissions))

    def _leased(
        self, daemons: Mapping[str, DaemonHealth], leases: Mapping[EventId, str], pending: Collection[EventId]
    ) -> dict[EventId, str]:
        """Return the leases of pending jobs that go on, and new ones while daemons have free slots."""
        slots = {name: count for name, daemon in daemons.items() if (count := daemon.job_slots(self.ahead))}
        leased = {job: leases[job] for job in pending if leases.get(job) in slots}
        busy = Counter(leased.values())
        for job in pending:
            if job not in leased:
                free = [(busy[name] / count, name) for name, count in slots.items() if busy[name] < count]
                if not free:
                    break
                _, leased[job] = min(free)
                busy[leased[job]] += 1
        return leased

    def _apply(self, daemons: dict[str, DaemonHealth], event: Event[Payload]) -> list[Emission]:
        """Apply an event to the daemons; return the emissions."""
        data = event.data
        match data:
            case ClockTick():
                daemons |= {name: daemon.after_rest(event.recorded_us) for name, daemon in daemons.items()}
            case DaemonReady(daemon=self.daemon):  # a resting daemon is tried at once, because it may be repaired
                name = f"{data.daemon}@{data.node}"
                daemon = daemons.get(name, DaemonHealth(capacity=0))
                daemons[name] = daemon.replace(capacity=data.capacity, up=True, rests_until_us=None)
            case DaemonFact() | NodeLost() | NodeReturned():
                name = f"{data.daemon}@{data.node}"
                if name in daemons:
                    daemons[name] = daemons[name].replace(up=isinstance(data, NodeReturned))
            case RollCall():  # versions before it reported no losses, so an old journal has daemons that never left
                present = {f"{entry.daemon}@{entry.node}" for entry in data.daemons}
                for name, daemon in daemons.items():
                    daemons[name] = daemon.replace(up=daemon.up and name in present)
            case _ if event.source in daemons:
                return self._judge(daemons, event)
        return []

    def _judge(self, daemons: dict[str, DaemonHealth], event: Event[Payload]) -> list[Emission]:
        """Count a job's outcome.

        The job's daemon pauses if it fails where others succeed. Where all daemons fail, or there is no other, the jobs
        are at fault.
        """
        name, now_us, limits = event.source, event.recorded_us, self.settings.feedback.nodes
        outcome, daemon = self.outcome(event.data), daemons[name]
        if outcome == "succeeded":
            daemons[name] = daemon.after_success().replace(succeeded_us=now_us)
            return [Emission(NodeRecovered(worker=name))] if daemon.pauses else []
        if outcome is None or daemon.rests_until_us is not None:
            return []
        daemons[name] = failing = daemon.after_failure(now_us)
        others = [other for other_name, other in daemons.items() if other_name != name and other.up]
        if failing.failures < limits.failures or all(other.succeeded_us < failing.failing_us for other in others):
            return []
        daemons[name], degraded = failing.paused(name, cast("Any", event.data).error, now_us, limits)
        return [Emission(degraded)]


def leased_to(rows: Mapping[str, LeaseRow], name: str) -> frozenset[EventId]:
    """Return the ids of the jobs whose leases a daemon holds."""
    return frozenset(EventId(key.removeprefix(JOB)) for key, row in rows.items() if row.holder == name)
