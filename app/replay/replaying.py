"""Replay a history through the controllers and compare their conclusions with the recorded ones. Pure."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from hashlib import sha256
from itertools import chain
from typing import NamedTuple, cast

from pydantic import TypeAdapter

from flyball.app.config import ForeignSettings, RunSettings
from flyball.app.controllers import FeedbackFold
from flyball.app.controllers.fold import VOIDED_KEY, Conclusion, Factory, Fold, Outcome, RowKey, VoidedEvents, voided_in
from flyball.app.core import FlyballError
from flyball.app.events import Event, Payload, Row, RunConfigured
from flyball.app.events.frames import DeadLetter, Stored, stored_in
from flyball.app.journal import JournalReader, StateStore, history
from flyball.app.journal.history import past_settings, voided_events
from flyball.app.replay.reconcile import Difference, Handover, Reconciliation
from flyball.daemons.registry import DAEMONS, daemons_of
from flyball.daemons.saved_state import ACCOUNTS, SCHEMAS_KEY, readable, schemas_of
from flyball.daemons.spec import DaemonSpec

LEDGER_KEY: RowKey = ("replay", "ledger")
RUN_KEY: RowKey = ("replay", "run")
UNFOLDED_KEY: RowKey = ("replay", "unfolded")


class ForeignCheckpoint(FlyballError):
    """A checkpoint of another run or version, or from before a voiding, that the replay cannot continue from."""


class Unfolded(NamedTuple):
    """A skipped event. ``by`` is the reducer that failed, or the producer of an unreadable event."""

    position: int
    by: str
    error: str


_UNFOLDED: TypeAdapter[list[Unfolded]] = TypeAdapter(list[Unfolded])


@dataclass(frozen=True, slots=True)
class Report:
    """The result of a replay.

    Attributes:
        position: of the last event read.
        matched: number of conclusions that agree with their record, by event name.
        foreign: recorded decisions, requests and observations of operators, which are not recomputed.
        in_flight: conclusions that their daemon may not have published yet when the journal ends.
        unfolded: events that a controller could not fold, or that cannot be decoded.
        voided: positions of voided events, which are skipped.
        differences: the first differences, in journal order.
        differing: number of all differences, without those counted in ``handovers``.
        handovers: changes of daemons' programs, with the number of differences before each.
        state_hash: SHA-256 over all rows of all controllers.
    """

    position: int
    matched: Mapping[str, int]
    foreign: int
    in_flight: tuple[Conclusion, ...]
    unfolded: tuple[Unfolded, ...]
    voided: tuple[int, ...]
    differences: tuple[Difference, ...]
    differing: int
    handovers: tuple[Handover, ...]
    state_hash: str


def controllers(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> tuple[Factory, ...]:
    """Return the factories of all the daemons' controllers."""
    return cast("tuple[Factory, ...]", tuple(chain.from_iterable(spec.controllers for spec in daemons.values())))


def state_hash(tables: Mapping[str, Mapping[str, Row]]) -> str:
    """Return the SHA-256 of all rows as canonical JSON lines, by reducer and key."""
    digest = sha256()
    for name, rows in sorted(tables.items()):
        for key, row in sorted(rows.items()):
            line = json.dumps([name, key, row.to_builtins()], sort_keys=True, separators=(",", ":"))
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


class Replay:
    """Folds a history and compares the conclusions with the recorded ones.

    Args:
        daemons: specifications of the daemons whose controllers are replayed.
        first: differences before this position are ignored, but the fold begins at 1.
        saved: rows from ``changes`` to continue from.
        voids: the position of each voided event, mapped to the position where it was voided.
        run: id of the run's first event; empty for an empty journal.

    Raises:
        ForeignCheckpoint: the saved rows are of another version or run, or hold an event that was voided since.
    """

    def __init__(
        self,
        daemons: Mapping[str, DaemonSpec] = DAEMONS,
        *,
        first: int = 1,
        saved: Mapping[RowKey, bytes] | None = None,
        voids: Mapping[int, int] | None = None,
        run: str = "",
    ) -> None:
        rows, self._voids = dict(saved or {}), dict(voids or {})
        reducers = (FeedbackFold, *controllers(daemons))
        if not readable(rows, reducers):
            raise ForeignCheckpoint("The checkpoint is of another version of flyball.", hint="Remove it.")
        if rows and voided_in(rows) != self._voids.keys():
            raise ForeignCheckpoint("An event was voided since the checkpoint was saved.", hint="Remove it.")
        saved_run = rows.pop(RUN_KEY, b"").decode()
        if run and saved_run not in ("", run):
            raise ForeignCheckpoint(
                f"The checkpoint is of the run {saved_run}, not of {run}.", hint="Remove it, or name another file."
            )
        self._run, self._schemas = run or saved_run, schemas_of(reducers)
        self._unfolded = _UNFOLDED.validate_json(rows.pop(UNFOLDED_KEY, b"[]"))
        ledger = rows.pop(LEDGER_KEY, None)
        self._records = Reconciliation(daemons, first=first, saved=ledger, voids=self._voids.items())
        self._fold = Fold(controllers(daemons), rows, self._voids)
        read = (controller.reads for spec in daemons.values() for controller in spec.controllers)
        folded = frozenset[type[Payload]]({RunConfigured}).union(FeedbackFold.reads, ACCOUNTS, *read)
        self._opened = frozenset(payload.event_type for payload in folded)
        self.reads: frozenset[type[Payload]] = folded | self._records.reads
        self._collected = Outcome()

    def feed(self, events: list[Event[Payload]], *, keep: bool = False) -> None:
        """Fold events in order and reconcile them. ``keep`` collects row changes for ``changes``."""
        outcome = self._fold.feed(events)
        self._records.expect(outcome.conclusions)
        self._unfolded += [Unfolded(failure.event.sequence, failure.by, failure.error) for failure in outcome.failures]
        if keep:
            self._collected.changed |= outcome.changed
        for event in events:
            self._records.enter(event)

    def feed_stored(self, stored: list[Stored], *, keep: bool = False) -> None:
        """Fold and reconcile undecoded events; see ``feed``.

        Events that no controller reads are a third of a journal. Their bytes are compared with the recomputed
        conclusions. Only those without an equal conclusion are decoded.
        """
        self.feed(self._read(event for event in stored if event.type in self._opened), keep=keep)
        others = (event for event in stored if event.type not in self._opened)
        for decoded in self._read(event for event in others if not self._records.settles(event)):
            self._records.enter(decoded)

    def _read(self, stored: Iterable[Stored]) -> list[Event[Payload]]:
        events = (event.open("replay", self._leave_out) for event in stored)
        return [event for event in events if event is not None]

    def _leave_out(self, dead: DeadLetter) -> None:
        self._unfolded.append(Unfolded(dead.position, dead.producer, dead.error))

    def changes(self) -> dict[RowKey, bytes | None]:
        """Return the rows changed since the last call, ready to save."""
        collected, self._collected = self._collected, Outcome()
        own = {LEDGER_KEY: self._records.dump(), RUN_KEY: self._run.encode(), SCHEMAS_KEY: self._schemas}
        own[UNFOLDED_KEY] = _UNFOLDED.dump_json(self._unfolded)
        own[VOIDED_KEY] = VoidedEvents(positions=tuple(sorted(self._voids))).to_json()
        return collected.saved() | own

    def tables(self) -> Mapping[str, Mapping[str, Row]]:
        """Return all rows by reducer."""
        return self._fold.tables()

    def report(self, position: int) -> Report:
        """Return the result up to a position."""
        self._records.settle()
        findings = self._records.findings
        return Report(
            position=position,
            matched=dict(sorted(findings.matched.items())),
            foreign=findings.foreign,
            in_flight=self._records.in_flight(),
            unfolded=tuple(self._unfolded),
            voided=tuple(sorted(self._voids)),
            differences=tuple(self._records.differences()),
            differing=findings.differing.total(),
            handovers=tuple(sorted(findings.handovers.values(), key=lambda handover: handover.position)),
            state_hash=state_hash(self.tables()),
        )


EVERY = 50_000
"""Events between checkpoints."""

PART = 64
"""Records read at once. They are so few that their events stay in the processor's cache until folded."""


class CheckpointAhead(FlyballError):
    """A checkpoint lies beyond the replay's end."""


def all_settings(reader: JournalReader) -> list[RunSettings]:
    """Return all readable settings of a run, the latest first."""
    settings = list[RunSettings]()
    with suppress(ForeignSettings):  # raised after the last one if none is readable; the replay reports it
        settings.extend(past_settings(reader))
    return settings


def replay_journal(
    reader: JournalReader,
    *,
    first: int = 1,
    last: int | None = None,
    checkpoints: StateStore | None = None,
    every: int = EVERY,
) -> Report:
    """Fold a journal through all controllers, and compare the conclusions.

    User-defined controllers are included.

    Args:
        reader: the journal.
        first: differences before this position are ignored.
        last: the last position to fold; ``None``: the journal's present end.
        checkpoints: store for all state; the replay continues from the position saved there.
        every: events between checkpoints.

    Raises:
        CheckpointAhead: the saved position is beyond the last one to fold.
        ForeignCheckpoint: see ``Replay``.
        BadSettings: a user-defined controller, which the run's settings name, cannot be used.
        DamagedRecord: the journal is damaged.
    """
    end = reader.head if last is None else min(last, reader.head)
    position, saved = checkpoints.load() if checkpoints else (0, dict[RowKey, bytes]())
    voids = {voided: void.sequence for voided, void in voided_events(reader).items() if void.sequence <= end}
    run = next((event.id for event in history(reader, on_dead=lambda _: None)), "")
    replay = Replay(daemons_of(*all_settings(reader)), first=first, saved=saved, voids=voids, run=run)
    if position > end:
        raise CheckpointAhead(
            f"The checkpoint is at position {position}, beyond the replay's end at {end}.",
            hint="Remove it, or go further.",
        )
    saved_at, types = position, frozenset(payload.event_type for payload in replay.reads)
    # All records are read, because choosing among them by their headers is slower when most of them are wanted.
    while position < end and (chunk := reader.read(position, limit=PART)).position > position:
        events = chain.from_iterable(stored_in(record, after=position, types=types) for record in chunk.records)
        stored = [event for event in events if event.sequence <= end]
        position = min(chunk.position, end)
        replay.feed_stored(stored, keep=checkpoints is not None)
        if checkpoints and (position - saved_at >= every or position == end):
            checkpoints.save(position, replay.changes())
            saved_at = position
    return replay.report(end)
