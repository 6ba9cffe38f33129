"""The quality monitor: inspects every shard before a training uses it.

An inspection compares a shard with earlier ones. The list of earlier shards follows from the journal alone, so a
monitor that was killed or lost its state compares the shard with the same ones.

Each inspection also deletes the shards that no training will use. Deletion does not wait for a training, because games
go on while training is blocked or paused, and would fill the disk.
"""

from collections.abc import Iterable, Mapping
from typing import Any

from flyball.app.config import GameConfig, RunSettings
from flyball.app.controllers import Controller, FeedbackState, States, state_of
from flyball.app.controllers.needs import ReplayBuffer, is_fresh, is_usable, latest_shards
from flyball.app.core import EventId, FlyballError, ShardKey
from flyball.app.engine import JobFailed
from flyball.app.events import (
    Cause,
    Event,
    InspectionFailed,
    NodeProbed,
    NodeQuarantined,
    ParityChecked,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    Row,
    SelfplayComplete,
    ShardRef,
    Step,
    TrainingCompleted,
    TrainingFailed,
    TrainingRequested,
    handles,
)
from flyball.app.job_specs import InspectionResult
from flyball.daemons.jobs import Job, Worker
from flyball.daemons.leases import Leases
from flyball.daemons.spec import DaemonSpec

Inspection = Job[SelfplayComplete]

REMEMBERED = 256
"""Number of each configuration's latest shards whose keys are remembered."""

UNFIT = frozenset({"lost_blob", "unfit_shard"})
"""Codes of errors caused by the shard: missing, damaged, mislabelled, or a duplicate."""

STAYING = 16
"""Number of latest shards that are always kept, because ``flyball.app.play.inspection`` compares games with them."""

WINDOWS = 2
"""Number of training windows whose shards are kept: more may be inspected before the trigger's request is recorded.
A still later request finds its shards deleted; its training fails, and the next one uses newer shards."""


class Shelf(Row, frozen=True):
    """One configuration's inspected shards, no more than trainings need.

    A shard that waits for its inspection is not included, so it is not deleted.

    Attributes:
        fit: the latest usable shards that no training has requested yet. Their number is limited for each model, or
            in all where rows outlive their model.
        request: the requested training, which has not ended.
        asked: the shards of that training.
        replay: shards of earlier trainings that did not fail.
        spent: shards to delete, because no training will use them.
    """

    fit: tuple[ShardRef, ...] = ()
    request: EventId | None = None
    asked: tuple[ShardRef, ...] = ()
    replay: ReplayBuffer = ReplayBuffer()
    spent: tuple[ShardKey, ...] = ()

    def without(self, keys: Iterable[ShardKey]) -> "Shelf":
        """Mark shards as spent, except those in use, which the refusal of a second delivery must not delete."""
        used = {shard.key for shard in (*self.fit, *self.asked, *self.replay.shards)}
        gone = (key for key in keys if key not in used)
        return self.replace(spent=tuple(dict.fromkeys((*self.spent, *gone))))

    def with_judged(self, shard: ShardRef, score: float, settings: RunSettings, state: FeedbackState) -> "Shelf":
        """Add a usable shard, or mark it as spent. Shards that are too old for any training become spent, too."""
        if not is_usable(state, settings, score):
            return self.without([shard.key])
        replays = settings.config(state.config_key).replays
        same = (*(other for other in self.fit if replays or other.model == shard.model), shard)
        retained = latest_shards(state, settings, same, windows=WINDOWS)
        compared, kept = {other.key for other in same}, {other.key for other in retained}
        others = tuple(other for other in self.fit if other.key not in compared)
        dropped = [other.key for other in same if other.key not in kept]
        spent = tuple(key for key in self.spent if key != shard.key)  # may have been refused under another request
        return self.replace(fit=(*others, *retained), spent=spent).without(dropped)

    def for_training(
        self, request_id: EventId, request: TrainingRequested, settings: RunSettings, state: FeedbackState
    ) -> "Shelf":
        """Reserve a training's shards. Those of an earlier request become spent, and those that are not fresh."""
        replays, requested = settings.config(state.config_key).replays, {shard.key for shard in request.shards}

        def stays(shard: ShardRef) -> bool:
            return replays or shard.model == request.base_model or is_fresh(state, settings, shard.model)

        rest = [shard for shard in self.fit if shard.key not in requested]
        shelf = self.replace(
            fit=tuple([shard for shard in rest if stays(shard)]),
            request=request_id,
            asked=request.shards,
            spent=tuple(key for key in self.spent if key not in requested),
        )
        return shelf.without((*(shard.key for shard in self.asked), *(shard.key for shard in rest if not stays(shard))))

    def after_training(self, config: GameConfig, *, good: bool) -> "Shelf":
        """Keep a good training's shards as far as later trainings replay them. All others become spent."""
        learned = (*self.replay.shards, *self.asked)
        shelf = self.replace(request=None, asked=(), replay=self.replay.plus(self.asked if good else (), config))
        return shelf.without(shard.key for shard in learned)


class InspectionRow(Row, frozen=True):
    """A waiting shard, or a configuration's state.

    A shard is keyed by its request, a configuration's state by the configuration.

    Attributes:
        cause: the shard's delivery; ``None`` for a configuration.
        played: the payload of the delivery; ``None`` for a configuration.
        earlier: for a configuration its latest shards, oldest first; for a shard those before it.
        discard: for a shard, the spent shards that its inspection deletes.
        shelf: for a configuration, its inspected shards.
    """

    cause: Cause | None = None
    played: SelfplayComplete | None = None
    earlier: tuple[ShardKey, ...] = ()
    discard: tuple[ShardKey, ...] = ()
    shelf: Shelf = Shelf()


Rows = Mapping[str, InspectionRow]


class QualityMonitor(Worker[SelfplayComplete], Controller):
    """Runs the backend's ``inspect`` on each new shard."""

    name = "QualityMonitor"
    row = InspectionRow
    returns = InspectionResult
    emits = frozenset({InspectionFailed, NodeProbed, ParityChecked, QualityDegraded, QualityScoreUpdated})

    @handles(SelfplayComplete)
    def delivered(self, rows: Rows, event: Event[SelfplayComplete], states: States) -> Step[InspectionRow]:
        """Queue a shard's inspection, which also deletes the configuration's spent shards."""
        row, played = rows.get(event.subject, InspectionRow()), event.data
        earlier = tuple(dict.fromkeys((*row.earlier, played.shard.key)))[-REMEMBERED:]
        staying = tuple(key for key in row.shelf.spent if key in row.earlier[-STAYING:])
        discard = tuple(key for key in row.shelf.spent if key not in staying)
        waiting = InspectionRow(cause=event.cause, played=played, earlier=row.earlier, discard=discard)
        config = InspectionRow(earlier=earlier, shelf=row.shelf.replace(spent=staying))
        return Step({played.request_id: waiting, event.subject: config})

    @handles(NodeQuarantined)
    def quarantined(self, rows: Rows, event: Event[NodeQuarantined], states: States) -> Step[InspectionRow]:
        """Drop a quarantined worker's uninspected shards; the next inspection deletes them."""
        changed: dict[str, InspectionRow | None] = {}
        for name, row in rows.items():
            if row.cause and row.played and row.played.shard.worker == event.data.worker and not row.played.probe:
                key = row.cause.subject or ""
                config = changed.get(key) or rows[key]
                changed |= {name: None, key: config.replace(shelf=config.shelf.without([row.played.shard.key]))}
        return Step(changed)

    @handles(QualityScoreUpdated)
    def scored(self, rows: Rows, event: Event[QualityScoreUpdated], states: States) -> Step[InspectionRow]:
        """Keep a shard for training if it is good enough."""
        data = event.data
        shelf = _shelf(rows, event).with_judged(data.shard, data.score, self.settings, state_of(states, event.subject))
        return _shelved(rows, event, shelf, data.request_id)

    @handles(QualityDegraded, InspectionFailed, NodeProbed)
    def refused(self, rows: Rows, event: Event[Any], states: States) -> Step[InspectionRow]:
        """Drop a shard that must not be trained on."""
        shelf = _shelf(rows, event).without([event.data.shard])
        return _shelved(rows, event, shelf, event.data.request_id)

    @handles(TrainingRequested)
    def training_requested(self, rows: Rows, event: Event[TrainingRequested], states: States) -> Step[InspectionRow]:
        """Reserve the shards of a requested training."""
        state, shelf = state_of(states, event.subject), _shelf(rows, event)
        return _shelved(rows, event, shelf.for_training(event.cause.id, event.data, self.settings, state))

    @handles(TrainingCompleted, TrainingFailed)
    def training_ended(self, rows: Rows, event: Event[Any], states: States) -> Step[InspectionRow]:
        """Mark the shards that no later training learns from as spent."""
        shelf = _shelf(rows, event)
        if event.data.request_id != shelf.request:
            return Step()
        config, good = self.settings.config(event.subject), isinstance(event.data, TrainingCompleted)
        return _shelved(rows, event, shelf.after_training(config, good=good))

    def job(self, cause: Cause, pending: InspectionRow, states: States) -> Inspection:
        """Return the inspection of a waiting shard."""
        played = pending.played
        assert played is not None  # because ``pending`` returns only rows with a cause
        spec = self.spec(
            cause,
            shard=played.shard.key,
            model=played.shard.model,
            earlier=list(pending.earlier),
            discard=list(pending.discard),
            seed=played.shard.seed or 0,  # unknown only of observed shards, which are not inspected
        )
        deadline_seconds = self.settings.deadlines.inspection_seconds
        return Job(cause, played, self.backend(cause).inspect, (spec,), deadline_seconds)

    def completed(self, job: Inspection, result: InspectionResult, seconds: float) -> tuple[Payload, ...]:
        """Report the shard's quality. A shard with games that cannot be replayed is unfit."""
        played, failures, shard = job.request, result.failures, job.request.shard
        verdict: Payload
        if failures:
            verdict = _unfit(played, f"parity: {failures[0]}")
        elif played.probe:
            verdict = _probed(played, result.score, None)
        else:
            verdict = QualityScoreUpdated(
                request_id=played.request_id,
                shard=shard,
                score=result.score,
                components=result.components,
                seconds=seconds,
            )
        if played.probe or not result.checked:
            return (verdict,)
        parity = ParityChecked(
            request_id=played.request_id,
            worker=shard.worker,
            shard=shard.key,
            against=result.against,
            checked=result.checked,
            failures=len(failures),
        )
        return parity, verdict

    def failed(self, job: Inspection, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the shard is unfit, or that its inspection failed."""
        played = job.request
        if isinstance(error, JobFailed) and error.code in UNFIT:
            return (_unfit(played, f"{error.kind}: {error.summary}"),)
        return (InspectionFailed(request_id=played.request_id, shard=played.shard.key, error=str(error)),)


def _shelf(rows: Rows, event: Event[Any]) -> Shelf:
    return rows.get(event.subject, InspectionRow()).shelf


def _shelved(rows: Rows, event: Event[Any], shelf: Shelf, *answered: EventId) -> Step[InspectionRow]:
    """Return the step that replaces the shelf and drops the answered requests."""
    row = rows.get(event.subject, InspectionRow()).replace(shelf=shelf)
    return Step({event.subject: row, **{request: None for request in answered if request in rows}})


def _unfit(played: SelfplayComplete, reason: str) -> QualityDegraded | NodeProbed:
    """Return the fact of an unfit shard or a failed probe."""
    if played.probe:
        return _probed(played, None, reason)
    shard = played.shard
    return QualityDegraded(request_id=played.request_id, worker=shard.worker, shard=shard.key, reason=reason)


def _probed(played: SelfplayComplete, score: float | None, error: str | None) -> NodeProbed:
    shard = played.shard
    return NodeProbed(request_id=played.request_id, worker=shard.worker, shard=shard.key, score=score, error=error)


class InspectionLeases(Leases):
    """Leases of inspections."""

    name = "InspectionLeases"
    worker = QualityMonitor
    daemon = "quality_monitor"
    ahead = 2
    failed = frozenset({InspectionFailed})


DAEMON = DaemonSpec(
    InspectionLeases.daemon,
    "inspects every shard of experience",
    worker=QualityMonitor,
    leases=InspectionLeases,
    capacity=1,
)
