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

from app.config import RunSettings
from app.core import EventId
from app.events import (
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
from daemons.jobs import Worker

US = 1_000_000
JobOutcome = Literal["succeeded", "failed"]
DAEMON, JOB = "daemon:", "job:"
SIGNS: frozenset[type[Payload]] = frozenset(
    {ClockTick, DaemonFailed, DaemonReady, DaemonStarted, DaemonStopped, NodeLost, NodeReturned, RollCall}
)
"""Types from which it follows which daemons are ready."""


class Holder(Row, frozen=True):
    """A daemon that can hold leases.

    Attributes:
        capacity: number of jobs that it runs at once.
        up: it is ready, and was not lost since.
        succeeded_us: when a job of its last succeeded.
        failures: number of its failed jobs in a row.
        failing_us: when the first of them failed.
        pauses: number of pauses in a row; after a pause it gets one job at a time until one succeeds.
        rests_until_us: time until which a pause keeps it from jobs.
    """

    capacity: int
    up: bool = True
    succeeded_us: int = 0
    failures: int = 0
    failing_us: int = 0
    pauses: int = 0
    rests_until_us: int | None = None

    def places(self, ahead: int) -> int:
        """Return the number of leases that the daemon may hold.

        The number is ``ahead`` for each job that the daemon runs at once, at most 1 after a pause, and 0 while it is
        not up or rests.
        """
        if not self.up or self.rests_until_us is not None:
            return 0
        return min(1, self.capacity) if self.pauses else ahead * self.capacity


class LeaseRow(Row, frozen=True):
    """A daemon, or a job's lease.

    A daemon is stored under its name. The name of the daemon that holds a job's lease is stored under the job's id.
    """

    daemon: Holder | None = None
    holder: str | None = None


@dataclass(frozen=True)
class Leases:
    """Base of the leases of one kind of job.

    These leases are a reducer that is shown its worker's rows.

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
        """Apply an event, end leases, and lease the pending jobs.

        ``jobs`` are the worker's rows, after the same event.
        """
        daemons = {name.removeprefix(DAEMON): row.daemon for name, row in rows.items() if row.daemon}
        leases = {EventId(name.removeprefix(JOB)): row.holder for name, row in rows.items() if row.holder}
        emissions = self._apply(daemons, event)
        wanted = [cause.id for cause, _ in self.worker.pending(jobs) if (cause.subject or "") in self.settings]
        held = self._leased(daemons, leases, wanted)
        after = {DAEMON + name: LeaseRow(daemon=one) for name, one in daemons.items()}
        after |= {JOB + job: LeaseRow(holder=holder) for job, holder in held.items()}
        ended = dict.fromkeys(rows.keys() - after.keys())
        return Step({**ended, **{key: row for key, row in after.items() if row != rows.get(key)}}, tuple(emissions))

    def _leased(
        self, daemons: Mapping[str, Holder], leases: Mapping[EventId, str], wanted: Collection[EventId]
    ) -> dict[EventId, str]:
        """Return the leases of the wanted jobs.

        The result holds the leases that still hold, and new ones as far as there are places.
        """
        places = {name: count for name, one in daemons.items() if (count := one.places(self.ahead))}
        held = {job: leases[job] for job in wanted if leases.get(job) in places}
        busy = Counter(held.values())
        for job in wanted:
            if job not in held:
                free = [(busy[name] / count, name) for name, count in places.items() if busy[name] < count]
                if not free:
                    break
                _, held[job] = min(free)
                busy[held[job]] += 1
        return held

    def _apply(self, daemons: dict[str, Holder], event: Event[Payload]) -> list[Emission]:  # noqa: C901 - one case for each type
        """Apply an event to the daemons; return the emissions."""
        data, now_us = event.data, event.recorded_us
        match data:
            case ClockTick():
                for name, daemon in daemons.items():
                    if daemon.rests_until_us is not None and daemon.rests_until_us <= now_us:
                        daemons[name] = daemon.replace(rests_until_us=None)
            case DaemonReady(daemon=self.daemon):
                name = f"{data.daemon}@{data.node}"
                known = daemons.get(name, Holder(capacity=0))  # one that rests is tried at once: it may be repaired
                daemons[name] = known.replace(capacity=data.capacity, up=True, rests_until_us=None)
            case DaemonFact() | NodeLost() | NodeReturned():
                name = f"{data.daemon}@{data.node}"
                if name in daemons:
                    daemons[name] = daemons[name].replace(up=isinstance(data, NodeReturned))
            case RollCall():  # versions before it reported no losses, so an old journal has daemons that never left
                present = {f"{one.daemon}@{one.node}" for one in data.daemons}
                for name, daemon in daemons.items():
                    daemons[name] = daemon.replace(up=daemon.up and name in present)
            case _ if one := daemons.get(event.source):
                return self._judged(daemons, event.source, one, event)
        return []

    def _judged(self, daemons: dict[str, Holder], name: str, one: Holder, event: Event[Payload]) -> list[Emission]:
        """Count a job's outcome.

        The job's daemon pauses if it fails where others succeed. Where all daemons fail, or there is no other, the jobs
        are at fault.
        """
        outcome, now_us, limits = self.outcome(event.data), event.recorded_us, self.settings.feedback.nodes
        if outcome == "succeeded":
            daemons[name] = one.replace(succeeded_us=now_us, failures=0, pauses=0)
            return [Emission(NodeRecovered(worker=name))] if one.pauses else []
        if outcome is None or one.rests_until_us is not None:  # because its lease is older than the pause
            return []
        failing_us = one.failing_us if one.failures else now_us
        daemons[name] = one = one.replace(failures=one.failures + 1, failing_us=failing_us)
        others = [other for other_name, other in daemons.items() if other_name != name and other.up]
        if one.failures < limits.failures or all(other.succeeded_us < failing_us for other in others):
            return []
        pause = min(limits.longest_pause_seconds, limits.pause_seconds * 2.0 ** min(one.pauses, 32))
        daemons[name] = one.replace(pauses=one.pauses + 1, rests_until_us=now_us + round(pause * US))
        error = cast("Any", event.data).error
        degraded = NodeDegraded(worker=name, failures=one.failures, pause_seconds=pause, error=error)
        return [Emission(degraded)]


def leased_to(rows: Mapping[str, LeaseRow], name: str) -> frozenset[EventId]:
    """Return the ids of the jobs whose leases a daemon holds."""
    return frozenset(EventId(key.removeprefix(JOB)) for key, row in rows.items() if row.holder == name)
