"""The daemon host, which runs a daemon's reducers and jobs (ADR-001).

The conclusions from a batch of events are published before the new state is saved. A daemon killed in between folds
the batch again and derives conclusions with the same ids, which the broker already knows.
"""

import asyncio
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from os import getpid
from typing import Any

import structlog

from flyball.app.bus import Batch, Bus
from flyball.app.bus.ports import Sign
from flyball.app.controllers.emitters import emitter
from flyball.app.controllers.fold import HOST, SETTINGS_KEY, Failure, Fold, Outcome, Recorded
from flyball.app.core import SECOND_US, Clock, FlyballError, derive_id
from flyball.app.engine import Engine
from flyball.app.events import (
    DaemonFact,
    DaemonFailed,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Envelope,
    Event,
    EventVoided,
    Kind,
    Payload,
    RollCall,
    RunConfigured,
    encode,
    follow,
    originate,
    traceparent_of,
)
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import KnownRecord, StateStore
from flyball.app.status.summary import summarise
from flyball.app.telemetry import Curves
from flyball.daemons.jobs import Job, JobRunner, Worker, WorkerIdentity
from flyball.daemons.leases import leased_to
from flyball.daemons.saved_state import ACCOUNTS, READY_KEY, Accounts, SavedState, program_version
from flyball.daemons.spec import Companion, DaemonSpec
from flyball.daemons.supervisor import Notifier

FAREWELL_SECONDS = 2.0
"""Longest wait for the broker to record a daemon's last event."""

READ_BY_ALL: frozenset[type[Payload]] = frozenset({RunConfigured, EventVoided})
"""Event types that every daemon reads, in addition to its reducers' own."""

MOST_POSITIONS = 1 << 62
REPORT_SECONDS = 10.0
"""Time between reports of a rebuild's progress."""

STARTING_USEC = 120_000_000
"""Extension of systemd's start timeout at each sign of progress, in microseconds."""


@dataclass(frozen=True, slots=True)
class Rhythm:
    """Period of signs of life, and longest wait at a stop."""

    heartbeat_seconds: float = 2.0
    drain_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Ports:
    """Adapters of a daemon's ports."""

    bus: Bus
    states: StateStore
    clock: Clock
    engine: Engine | None = None
    notifier: Notifier = field(default_factory=Notifier)
    sink: Curves | None = None
    companion: Companion | None = None


class Host:
    """Runs one daemon: its reducers, jobs and companion.

    Only a daemon with a worker has jobs. ``boot`` identifies this start of the process.
    """

    def __init__(self, spec: DaemonSpec, identity: WorkerIdentity, boot: str, ports: Ports, rhythm: Rhythm) -> None:
        self._spec, self._identity, self._boot = spec, identity, boot
        self._ports, self._rhythm = ports, rhythm
        self._who = {"daemon": spec.name, "node": identity.node}
        self._log = structlog.get_logger("host")
        self._saved = SavedState(ports.states, spec.hosted)
        self._cursor = self._saved.cursor
        self._fold = Fold(spec.factories(identity), self._saved.rows)
        self._head, self._announced, self._ready = self._cursor, 0, False
        self._unpublished: dict[str, Envelope[Payload]] = {}
        self._jobs = JobRunner(ports.engine, spec.capacity, self._publish_facts) if ports.engine else None

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop`` is set, then drain. Raises errors in an ExceptionGroup."""
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [
                    self._follow_journal(group),
                    self._send_signs_of_life(),
                    self._notify_watchdog(),
                    self._follow_capacity(),
                ]
                if companion := self._ports.companion:
                    tasks.append(companion.run(self._ports.bus))
                living = [group.create_task(task) for task in tasks]
                await stop.wait()
                drain_usec = int((self._rhythm.drain_seconds + 2 * FAREWELL_SECONDS) * SECOND_US)
                self._ports.notifier.tell("STOPPING=1", f"EXTEND_TIMEOUT_USEC={drain_usec}")
                if self._jobs:
                    await self._jobs.drain(self._rhythm.drain_seconds)
                for task in living:
                    task.cancel()
        except BaseExceptionGroup as failed:
            error = "; ".join(str(error) or type(error).__name__ for error in failed.exceptions)
            with suppress(FlyballError):  # otherwise the original error would be lost
                await self._publish_last(DaemonFailed(**self._who, error=error))
            raise
        self._save()
        await self._publish_last(DaemonStopped(**self._who, position=self._settled))

    async def _publish_last(self, fact: DaemonFact) -> None:
        """Publish the daemon's last event; if the broker is away, the outbox keeps it."""
        with suppress(TimeoutError):
            async with asyncio.timeout(FAREWELL_SECONDS):
                await self._announce(fact)

    async def _follow_journal(self, group: asyncio.TaskGroup) -> None:
        await self._announce(DaemonStarted(**self._who, pid=getpid(), version=program_version(self._spec.hosted)))
        self._warn_of_unhosted()  # saved settings may name others than flyball.toml does now
        if self._saved.rebuilding:
            if not self._cursor:
                await self._start_over(frozenset(), MOST_POSITIONS)
            await self._rebuild(self._saved.settled)
        types = self._spec.reads | self._spec.emits | READ_BY_ALL
        while True:
            async with self._ports.bus.subscribe(types, after=self._cursor) as subscription:
                async for batch in subscription:
                    await self._handle(batch)
                    if self._fold.to_void and batch.position >= batch.head:
                        break
                    if self._ready and self._jobs:
                        self._reconcile(self._jobs, group)
                else:
                    return
            settled, self._ready = self._settled, False
            await self._rebuild(settled)

    @property
    def _settled(self) -> int:
        """Position up to which the daemon has published everything; before it is ready, the saved position."""
        return self._cursor if self._ready else self._saved.cursor

    async def _rebuild(self, settled: int) -> None:
        """Fold the settled past, continuing from saved progress.

        The new rows then replace the old ones. Steps whose decisions differ from the recorded ones are dropped, so that
        state agrees with the journal.
        """
        while True:
            settled, recorded, voided = await self._read_past(settled)
            if not (new := (voided | self._fold.to_void) - self._fold.voided):
                break
            self._log.warning("events were voided: rebuilding state without them", positions=sorted(new))
            await self._start_over(self._fold.voided | new, min(new))
        self._head = self._saved.settled = settled
        if self._cursor < settled:
            report = self._reporter(settled)
            async with self._ports.bus.subscribe(self._spec.reads | READ_BY_ALL, after=self._cursor) as subscription:
                async for batch in subscription:
                    events = tuple(event for event in batch.events if event.sequence <= settled)
                    outcome = await self._feed(events, recorded)
                    self._saved.dropped += len(outcome.dropped)
                    self._cursor = min(batch.position, settled)
                    self._note_record(batch)
                    report()
                    if self._cursor == settled or batch.position >= batch.head:
                        break
                    await asyncio.sleep(0)  # otherwise progress is not saved, and the watchdog not notified
        if count := self._saved.dropped:
            self._log.warning("decisions that differ from the recorded ones are dropped", count=count, until=settled)
        self._saved.complete(self._cursor)

    async def _start_over(self, voided: frozenset[int], before: int) -> None:
        """Restart the rebuild at the latest earlier snapshot or the first event."""
        kinds = {HOST, READY_KEY[0], *(reducer.name for reducer in self._spec.hosted)}
        self._saved.start_over(voided, await self._ports.bus.snapshot(before - 1, kinds))
        self._fold = Fold(self._spec.factories(self._identity), self._saved.rows, voided)
        self._cursor = self._saved.cursor
        self._head = max(self._head, self._cursor)
        self._unpublished.clear()

    def _reporter(self, until: int) -> Callable[[], None]:
        """Return a function that logs a rebuild's progress and remaining time."""
        began, first, now = self._ports.clock.monotonic(), self._cursor, self._ports.clock.monotonic
        self._log.warning("rebuilding state from the journal", position=first, until=until)
        due = began + REPORT_SECONDS

        def report() -> None:
            nonlocal due
            if (time := now()) >= due and self._cursor > first:
                due = time + REPORT_SECONDS
                left = (time - began) * (until - self._cursor) / (self._cursor - first)
                self._log.warning("rebuilding state", position=self._cursor, until=until, seconds_left=round(left))

        return report

    async def _read_past(self, settled: int) -> tuple[int, set[Recorded], set[int]]:
        """Read from the journal what a rebuild needs.

        Only events after the cursor are read. Returns three results:

        - The position up to which the daemon has published all conclusions: the highest that it announced, at least
          ``settled``.
        - The id and type of every recorded event of a type that the daemon emits: decisions caused by an event after
          the cursor are recorded after it.
        - The positions of events that an operator voided.
        """
        accounts = Accounts({self._spec.name: max(settled, self._cursor)}, self._saved.ready)
        recorded, voided = set[Recorded](), set[int]()
        types = self._spec.emits | ACCOUNTS | {EventVoided}
        async with self._ports.bus.subscribe(types, after=self._cursor) as subscription:
            end: int | None = None  # the head at the start, because later events are not past
            async for batch in subscription:
                for event in batch.events:
                    match event.data:
                        case DaemonFact() | RollCall() as fact:
                            accounts.add(fact)
                        case EventVoided(position=position):
                            voided.add(position)
                        case decision:
                            recorded.add((event.id, decision.event_type))
                end = batch.head if end is None else end
                if batch.position >= end:
                    break
                await asyncio.sleep(0)
        return accounts.settled[self._spec.name], recorded, voided

    async def _handle(self, batch: Batch) -> None:
        """Fold a batch, publish the conclusions, and save.

        While the daemon catches up, conclusions are held back. A conclusion that an earlier start published is dropped
        when the daemon reads it in the journal. The others are published once the daemon has caught up.
        """
        outcome = await self._feed(batch.events)
        self._unpublished |= {envelope.id: envelope for envelope in outcome.envelopes}
        for event in batch.events:
            self._unpublished.pop(event.id, None)
        self._cursor, self._head = batch.position, batch.head
        self._note_record(batch)
        if self._fold.to_void and not self._ready:
            return
        if self._ready or batch.position >= batch.head:
            if self._unpublished:
                await self._publish(list(self._unpublished.values()))
                self._unpublished.clear()
            if self._saved.changed:
                self._save()
            if not self._ready:
                self._ready = True
                await self._update_capacity()
                await self._announce_ready()
                self._ports.notifier.tell("READY=1", f"STATUS=caught up at {self._cursor}")
            if companion := self._ports.companion:
                companion.show(self._fold, self._head)

    def _note_record(self, batch: Batch) -> None:
        """Note a batch's last record, by which the daemon recognises a journal other than its state's."""
        if batch.checksum:
            self._saved.latest_record = KnownRecord(batch.position, batch.checksum)

    async def _update_capacity(self) -> bool:
        """Ask the engine how many jobs it can run; return whether the number has changed."""
        if (
            self._jobs is None
            or self._ports.engine is None
            or (capacity := await self._ports.engine.capacity()) is None
        ):
            return False
        changed, self._jobs.capacity = capacity != self._jobs.capacity, capacity
        return changed

    async def _announce_ready(self) -> None:
        capacity = self._jobs.capacity if self._jobs else self._spec.capacity
        await self._announce(DaemonReady(**self._who, position=self._cursor, capacity=capacity))

    async def _feed(self, events: Sequence[Event[Payload]], recorded: Collection[Recorded] | None = None) -> Outcome:
        """Fold events, hand them to the sink, and bury as dead letters those that a reducer could not fold."""
        outcome = self._fold.feed(events, recorded)
        for failure in outcome.failures:  # first, because ``_send_signs_of_life`` may save the cursor with the rows
            await self._bury(failure)
        self._saved.changed |= outcome.changed
        if SETTINGS_KEY in outcome.changed:
            self._warn_of_unhosted()
        if sink := self._ports.sink:
            for event in events:
                sink.take(event)
            sink.flush()
        return outcome

    def _warn_of_unhosted(self) -> None:
        """Report controllers that the recorded settings name and this process does not host."""
        settings, hosted = self._fold.settings, {reducer.name for reducer in self._fold.reducers}
        if self._spec.hosts_own and settings and (unhosted := settings.controllers.keys() - hosted):
            self._log.error(
                "the run's settings name controllers that this daemon does not host",
                controllers=sorted(unhosted),
                remedy="restart this daemon with the run's flyball.toml",
            )

    async def _bury(self, failure: Failure) -> None:
        event = failure.event
        self._log.error(
            "event could not be folded",
            reducer=failure.by,
            sequence=event.sequence,
            event_name=event.data.event_name,
            config_key=event.subject,
            error=failure.error,
            traceparent=traceparent_of(event.envelope),
            remedy="see: flyball journal repair",
        )
        reporter = f"{self._identity.name}/{failure.by}"
        await self._ports.bus.bury(
            DeadLetter(event.sequence, event.source, reporter, failure.error, encode(event.envelope))
        )

    def _reconcile(self, jobs: JobRunner, group: asyncio.TaskGroup) -> None:
        """Start and cancel jobs as the worker's rows require, for the run's configurations only."""
        settings = self._fold.settings
        leases = self._spec.leases
        leased = leased_to(self._fold.rows(leases.name), f"{self._spec.name}@{self._identity.node}") if leases else None
        for worker in self._fold.reducers:
            if isinstance(worker, Worker) and settings:
                rows = self._fold.rows(worker.name)
                played = {key: row for key, row in rows.items() if row.cause and row.cause.subject in settings}
                jobs.reconcile(group, worker, worker.jobs(played, self._fold.states, leased))

    async def _notify_watchdog(self) -> None:
        """Notify systemd's watchdog while the event loop runs.

        The watchdog is notified with or without a broker. Each sign of progress extends the start's timeout.
        """
        before = self._cursor
        while True:
            await asyncio.sleep(self._rhythm.heartbeat_seconds)
            self._ports.notifier.tell("WATCHDOG=1")
            if not self._ready and self._cursor != before:
                before = self._cursor
                status = f"STATUS=catching up: {self._cursor} of {self._head}"
                self._ports.notifier.tell(f"EXTEND_TIMEOUT_USEC={STARTING_USEC}", status)

    async def _follow_capacity(self) -> None:
        """Announce changes of the engine's capacity, apart from signs of life, as a cluster may answer slowly."""
        while True:
            await asyncio.sleep(self._rhythm.heartbeat_seconds)
            if await self._update_capacity() and self._ready:
                await self._announce_ready()

    async def _send_signs_of_life(self) -> None:
        """Send signs of life, and save the cursor each time."""
        while True:
            await asyncio.sleep(self._rhythm.heartbeat_seconds)
            self._save()
            jobs, requests = (self._jobs.running, self._jobs.held) if self._jobs else (0, 0)
            position, lag = self._cursor if self._ready else None, self._head - self._cursor
            self._ports.bus.show_life(Sign(position=position, lag=lag, jobs=jobs, requests=requests))

    def _save(self) -> None:
        """Save state and cursor together.

        Both are saved only once the conclusions that belong to them are published. State that contains a voided event
        is not saved, because a rebuild without the event is due.
        """
        if self._fold.to_void or self._unpublished:
            return
        if self._saved.changed or self._cursor != self._saved.cursor:
            self._saved.save(self._cursor)

    async def _announce(self, fact: DaemonFact) -> None:
        self._announced += 1
        event_id = derive_id(self._identity.name, self._boot, self._announced)
        await self._ports.bus.publish(originate(fact, event_id=event_id, time=self._ports.clock.now()))

    async def _publish_facts(self, by: str, job: Job[Any], facts: Sequence[Payload]) -> None:
        now = self._ports.clock.now()
        envelopes = [follow(fact, job.cause, by=by, index=i, time=now) for i, fact in enumerate(facts)]
        await self._publish(envelopes)

    def _described(self, envelope: Envelope[Payload]) -> dict[str, str]:
        """Return what people read about an event: its content in a line, and the controller."""
        by = emitter(envelope, self._identity.name, self._fold.settings)
        return {"summary": summarise(envelope.data)} | ({"by": by} if by else {})

    async def _publish(self, envelopes: Sequence[Envelope[Payload]]) -> None:
        positions = await self._ports.bus.publish_many(envelopes)
        for envelope, position in zip(envelopes, positions, strict=True):
            data = envelope.data
            is_shown = data.notable or data.kind is not Kind.FACT
            write = self._log.info if is_shown else self._log.debug
            write(
                data.event_name,
                event_name=data.event_type,
                event_id=envelope.id,
                causation_id=envelope.causationid,
                config_key=envelope.subject,
                sequence=position,
                traceparent=traceparent_of(envelope),
                **(self._described(envelope) if is_shown else {}),
                data=data.model_dump(mode="json"),
            )
