"""The daemon host: catches up, folds, publishes, saves, runs jobs, beats, drains (ADR-002).

What a batch of events leads to is published before the new state is saved. A daemon killed in between folds the
batch again, comes to the same conclusions under the same ids, and the broker takes them for what they are: known.
"""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from importlib.metadata import version
from os import getpid
from typing import Any

import structlog

from app.bus import Batch, Bus
from app.core import Clock, EventId, FlyballError, derive_id
from app.engine import Engine
from app.events import (
    DaemonFact,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Envelope,
    EventVoided,
    Kind,
    Payload,
    RunConfigured,
    encode,
    follow,
    originate,
)
from app.events.frames import DeadLetter
from app.journal import StateStore
from app.runtime.fold import VOIDED_KEY, Changed, Conclusion, Failure, Fold, VoidedEvents, written
from app.runtime.jobs import JobRunner, worker_of
from app.runtime.notify import Notifier
from app.runtime.registry import DaemonSpec
from app.runtime.row_schema import SCHEMAS_KEY, readable, schemas_of
from app.runtime.work import Job, Place
from app.telemetry import TensorBoardCurves

FAREWELL_SECONDS = 2.0
"""How long a daemon that stops waits for the broker to record it."""


READ_BY_ALL: frozenset[type[Payload]] = frozenset({RunConfigured, EventVoided})
"""What every daemon reads, besides what its reducers read and emit."""


class OtherDecisions(FlyballError):
    """This program would have decided otherwise than the version that saved the daemon's state."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a daemon beats, and how long it waits for its jobs when it is asked to stop."""

    heartbeat_seconds: float = 5.0
    drain_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Ports:
    """What a daemon is built from: the adapters behind its ports."""

    bus: Bus
    states: StateStore
    clock: Clock
    engine: Engine | None = None
    notifier: Notifier = field(default_factory=Notifier)
    sink: TensorBoardCurves | None = None


class Host:
    """Runs the reducers of one daemon, and the jobs of its worker if it has one.

    Args:
        spec: what runs in it.
        place: where it runs.
        boot: names this start of the process.
        ports: the adapters.
        rhythm: heartbeat and drain times.
    """

    def __init__(self, spec: DaemonSpec, place: Place, boot: str, ports: Ports, rhythm: Rhythm) -> None:
        self._spec, self._place, self._boot = spec, place, boot
        self._ports, self._rhythm = ports, rhythm
        self._log = structlog.get_logger("host")
        self._cursor, saved = ports.states.load()
        self._saved_cursor, self._settled = self._cursor, 0
        self._published, self._past = self._cursor, 0
        self._unsaved: Changed = {}
        if not readable(saved, spec.reducers):
            self._log.warning("saved state is of another version: folding the journal anew", position=self._cursor)
            self._settled, self._cursor, self._unsaved, saved = self._cursor, 0, dict.fromkeys(saved), {}
        self._schemas = {SCHEMAS_KEY: schemas_of(spec.reducers)}
        self._fold = Fold(spec.factories(place), saved)
        self._head, self._said, self._ready = self._cursor, 0, False
        self._concluded: dict[str, Conclusion] = {}
        self._jobs = JobRunner(ports.engine, spec.capacity, self._say_of_job) if ports.engine else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set; then drain. Raises what went wrong, in an ExceptionGroup."""
        async with asyncio.TaskGroup() as group:
            living = [group.create_task(task) for task in (self._live(group), self._beat(), self._watch())]
            await stop.wait()
            self._ports.notifier.tell("STOPPING=1")
            if self._jobs:
                await self._jobs.drain(self._rhythm.drain_seconds)
            for task in living:
                task.cancel()
        self._save()
        with suppress(TimeoutError):  # the broker is away: the outbox keeps it
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._say(DaemonStopped(**self._who(), position=self._cursor))

    async def _live(self, group: asyncio.TaskGroup) -> None:
        await self._say(DaemonStarted(**self._who(), pid=getpid(), version=version("flyball")))
        types = self._spec.reads | self._spec.emits | READ_BY_ALL
        while True:
            async with self._ports.bus.subscribe(types, after=self._cursor) as subscription:
                async for batch in subscription:
                    await self._handle(batch)
                    if self._fold.to_void and batch.position >= batch.head:
                        break
                    if self._ready and self._jobs and (worker := worker_of(self._fold.reducers)):
                        self._jobs.reconcile(group, worker, worker.jobs(self._configured(worker.name)))
                else:
                    return
            self._fold_without_voided()

    def _fold_without_voided(self) -> None:
        """Begin again at the start of the journal, without the events that an operator voided.

        What follows now from events whose consequences were published once is dropped: history stays as it was.
        """
        voided = self._fold.voided | self._fold.to_void
        self._log.warning("events were voided: folding the journal without them", positions=sorted(voided))
        _, saved = self._ports.states.load()
        self._unsaved = {**dict.fromkeys(saved), VOIDED_KEY: VoidedEvents(positions=tuple(sorted(voided)))}
        self._schemas = {SCHEMAS_KEY: schemas_of(self._spec.reducers)}
        self._fold = Fold(self._spec.factories(self._place), voided=voided)
        self._past, self._cursor, self._ready = self._published, 0, False
        self._concluded.clear()

    async def _handle(self, batch: Batch) -> None:
        """Fold a batch, publish what follows from it, save.

        While catching up, conclusions are held back: those that an earlier life published come by in the journal,
        however long ago that was. Only what never came by is published, when the daemon is ready.
        """
        outcome = self._fold.feed(batch.events)
        self._concluded |= {one.envelope.id: one for one in outcome.conclusions if one.position > self._past}
        self._unsaved |= outcome.changed
        for event in batch.events:
            if known := self._concluded.pop(event.id, None):
                self._published = max(self._published, known.position - 1)
        await self._bury(outcome.failures)
        self._show(batch)
        self._cursor, self._head = batch.position, batch.head
        if self._fold.to_void and not self._ready:
            return
        if self._ready or batch.position >= batch.head:
            if self._concluded:
                self._check_settled()
                await self._publish([conclusion.envelope for conclusion in self._concluded.values()])
                self._concluded.clear()
            self._published = max(self._published, self._cursor)
            if self._unsaved:
                self._save()
            if not self._ready:
                await self._become_ready()

    async def _bury(self, failures: Sequence[Failure]) -> None:
        """Put events that a reducer could not fold into the dead letters, and say so."""
        for failure in failures:
            event = failure.event
            self._log.error(
                "event could not be folded",
                reducer=failure.by,
                sequence=event.sequence,
                event_name=event.data.seed_name,
                config_key=event.subject,
                error=failure.error,
                remedy="see: flyball journal repair",
            )
            reporter = f"{self._place.name}/{failure.by}"
            await self._ports.bus.bury(
                DeadLetter(event.sequence, event.source, reporter, failure.error, encode(event.envelope))
            )

    def _check_settled(self) -> None:
        """Make sure that state of another version, folded anew, leads to no decision about what is settled.

        Up to the cursor that it was saved with everything is published that followed. What did not come by since is
        what this program would have decided otherwise, and its rows wait for answers that nobody will give.
        """
        if otherwise := [one for one in self._concluded.values() if one.position <= self._settled]:
            first = otherwise[0]
            raise OtherDecisions(
                f"{first.by} would have said {first.envelope.data.seed_name} after position {first.position}, which is "
                f"not recorded: another version of flyball decided otherwise there ({len(otherwise)} such).",
                hint="Go on with that version, or begin a new run in another folder.",
            )

    def _show(self, batch: Batch) -> None:
        """Hand a batch to the sink, completely, before the cursor passes it."""
        if sink := self._ports.sink:
            for event in batch.events:
                sink.take(event)
            sink.flush()

    def _configured(self, worker: str) -> dict[str, Any]:
        """Return a worker's rows about configurations that this run still plays."""
        rows, settings = self._fold.rows(worker), self._fold.settings
        return {key: row for key, row in rows.items() if settings and row.cause and row.cause.subject in settings}

    async def _become_ready(self) -> None:
        self._ready = True
        await self._say(DaemonReady(**self._who(), position=self._cursor, capacity=self._spec.capacity))
        self._ports.notifier.tell("READY=1", f"STATUS=caught up at {self._cursor}")

    async def _watch(self) -> None:
        """Tell systemd's watchdog that the event loop turns, whether the broker is there or not."""
        while True:
            await asyncio.sleep(self._rhythm.heartbeat_seconds)
            self._ports.notifier.tell("WATCHDOG=1")

    async def _beat(self) -> None:
        """Tell the bus that the daemon lives, and keep the cursor from falling far behind."""
        while True:
            await asyncio.sleep(self._rhythm.heartbeat_seconds)
            self._save()
            lag, jobs, requests = self._head - self._cursor, 0, tuple[EventId, ...]()
            if self._jobs:
                jobs, requests = self._jobs.running, self._jobs.held
            beat = DaemonHeartbeat(**self._who(), position=self._cursor, lag=lag, jobs=jobs, requests=requests)
            await self._say(beat)

    def _save(self) -> None:
        """Save state and cursor together, unless conclusions that belong to them are not published yet.

        Nor does state that is folded anew take the place of the old before it is as far, nor is state saved that
        holds what a voided event led to.
        """
        if self._concluded or self._fold.to_void or self._cursor < max(self._settled, self._past):
            return
        if not self._unsaved and self._cursor == self._saved_cursor:
            return
        self._ports.states.save(self._cursor, written(self._unsaved) | self._schemas)
        self._saved_cursor, self._unsaved, self._schemas = self._cursor, {}, {}

    def _who(self) -> dict[str, str]:
        return {"daemon": self._spec.name, "node": self._place.node}

    async def _say(self, fact: DaemonFact) -> None:
        self._said += 1
        event_id = derive_id(self._place.name, self._boot, self._said)
        await self._ports.bus.publish(originate(fact, event_id=event_id, time=self._ports.clock.now()))

    async def _say_of_job(self, verb: str, job: Job[Any], facts: Sequence[Payload]) -> None:
        worker = worker_of(self._fold.reducers)
        if not facts or worker is None:
            return
        now, by = self._ports.clock.now(), f"{worker.name}.{verb}"
        envelopes = [follow(fact, job.cause, by=by, index=i, time=now) for i, fact in enumerate(facts)]
        await self._publish(envelopes)

    async def _publish(self, envelopes: Sequence[Envelope[Payload]]) -> None:
        positions = await self._ports.bus.publish_many(envelopes)
        for envelope, position in zip(envelopes, positions, strict=True):
            data = envelope.data
            write = self._log.info if data.notable or data.kind is not Kind.FACT else self._log.debug
            write(
                data.seed_name,
                event_name=data.event_type,
                event_id=envelope.id,
                causation_id=envelope.causationid,
                config_key=envelope.subject,
                sequence=position,
                data=data.model_dump(mode="json"),
            )
