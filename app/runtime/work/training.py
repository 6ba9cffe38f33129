"""The trainer: one PPO update for each request, or a configuration's initial model."""

from collections.abc import Iterable, Mapping
from typing import ClassVar, Literal

from app.core import FlyballError, ModelHash, ShardKey
from app.engine import JobFailed
from app.events import (
    Cause,
    Event,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayComplete,
    ShardRef,
    Step,
    TrainingCompleted,
    TrainingFailed,
    TrainingMetrics,
    TrainingProgress,
    TrainingRequested,
    TrainingStarted,
    Value,
)
from app.runtime.work.worker import Job, Json, QuietWorker

TrainingJob = Job[TrainingRequested]
DIVERGED = "TrainingDiverged"
"""The name of the job's error when an update blew up."""

BAD_DATA = frozenset({"DamagedBlob", "MissingBlob", "NoModel", "UnfinishedEpisode", "UnfitData"})
"""Names of the job's errors when the shards or the base model cannot be used: gone, damaged, or of another game."""


class PlayedShard(Value):
    """A shard that was not trained on yet, and whose games it holds.

    Attributes:
        inspected: whether the quality monitor has read it; until then nobody may delete it.
    """

    key: ShardKey
    model: ModelHash
    inspected: bool = False


class TrainingPending(Value):
    """One configuration's request, if any; the shards it may still train on; those that can go."""

    cause: Cause | None = None
    request: TrainingRequested | None = None
    fresh: tuple[PlayedShard, ...] = ()
    spent: tuple[ShardKey, ...] = ()


class Trainer(QuietWorker[TrainingRequested]):
    """Runs ``app.training.job:train`` or ``:initialise`` for each request."""

    name: ClassVar[str] = "Trainer"
    row: ClassVar[type[TrainingPending]] = TrainingPending
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            SelfplayComplete,
            QualityScoreUpdated,
            QualityDegraded,
            TrainingRequested,
            TrainingCompleted,
            TrainingFailed,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {TrainingStarted, TrainingProgress, TrainingCompleted, TrainingFailed}
    )

    def step(self, rows: Mapping[str, TrainingPending], event: Event[Payload]) -> Step[TrainingPending]:
        """Take up a request; with its result its shards are spent, like inspected ones of models left behind."""
        row = rows.get(event.subject, TrainingPending())
        match event.data:
            case SelfplayComplete(shard=shard) if shard.key not in {known.key for known in row.fresh}:
                # One that is delivered twice is the first: the second must not have it deleted as left behind.
                fresh = (*row.fresh, PlayedShard(key=shard.key, model=shard.model))
                return Step({event.subject: row.model_copy(update={"fresh": fresh})})
            case QualityScoreUpdated(shard=ShardRef(key=inspected)) | QualityDegraded(shard=inspected):
                return Step({event.subject: _inspected(row, inspected)})
            case TrainingRequested() as request:
                return Step({event.subject: _taken_up(row, event.cause, request)})
            case TrainingCompleted(request_id=done) | TrainingFailed(request_id=done):
                if row.request and row.cause and row.cause.id == done:
                    kept = () if isinstance(event.data, TrainingCompleted) else row.spent  # a failure deletes nothing
                    spent = (*kept, *(shard.key for shard in row.request.shards))
                    finished = {"cause": None, "request": None, "spent": spent}
                    return Step({event.subject: row.model_copy(update=finished)})
        return Step()

    def jobs(self, rows: Mapping[str, TrainingPending]) -> Iterable[TrainingJob]:
        """Return the pending requests, oldest first."""
        pending = [(row.cause, row.request, row.spent) for row in rows.values() if row.cause and row.request]
        for cause, request, spent in sorted(pending, key=lambda one: one[0].recorded_us):
            yield self._job(cause, request, spent)

    def _job(self, cause: Cause, request: TrainingRequested, spent: tuple[ShardKey, ...]) -> TrainingJob:
        spec: Json = {"store": self.place.store, "config": self.config_json(cause), "seed": request.seed}
        if request.base_model is None:
            return Job(cause, request, "app.training.job:initialise", (spec,))
        settings = {"learning_rate": request.learning_rate, "epochs": request.epochs}
        spec |= {
            "base_model": request.base_model,
            "shards": [shard.key for shard in request.shards],
            "step": request.step,
            "ppo": spec["config"]["ppo"] | settings,
            "discard": list(spent),
        }
        return Job(cause, request, "app.training.job:train", (spec,))

    def started(self, job: TrainingJob) -> tuple[Payload, ...]:
        """Say that a training began."""
        rows = sum(shard.rows for shard in job.request.shards)
        return (TrainingStarted(request_id=job.id, base_model=job.request.base_model, rows=rows),)

    def progressed(self, job: TrainingJob, report: Json) -> tuple[Payload, ...]:
        """Say how an epoch went."""
        return (TrainingProgress(request_id=job.id, **report),)

    def completed(self, job: TrainingJob, result: Json) -> tuple[Payload, ...]:
        """Say which model came out."""
        metrics = result["metrics"]
        complete = TrainingCompleted(
            request_id=job.id,
            model=result["model"],
            parent=result["parent"],
            step=result["step"],
            rows=result["rows"],
            metrics=None if metrics is None else TrainingMetrics.model_validate(metrics),
        )
        return (complete,)

    def failed(self, job: TrainingJob, error: FlyballError) -> tuple[Payload, ...]:
        """Say that the update was thrown away, and why: it diverged, its data were bad, or something else."""
        return (TrainingFailed(request_id=job.id, reason=_reason(error), error=str(error)),)


def _reason(error: FlyballError) -> Literal["diverged", "bad_data", "error"]:
    kind = error.kind if isinstance(error, JobFailed) else ""
    if kind == DIVERGED:
        return "diverged"
    return "bad_data" if kind in BAD_DATA else "error"


def _inspected(row: TrainingPending, key: ShardKey) -> TrainingPending:
    fresh = (shard.model_copy(update={"inspected": True}) if shard.key == key else shard for shard in row.fresh)
    return row.model_copy(update={"fresh": tuple(fresh)})


def _taken_up(row: TrainingPending, cause: Cause, request: TrainingRequested) -> TrainingPending:
    asked = {shard.key for shard in request.shards}
    superseded = {shard.key for shard in row.request.shards} if row.request else set()
    left_behind = {shard.key for shard in row.fresh if shard.model != request.base_model and shard.inspected}
    return TrainingPending(
        cause=cause,
        request=request,
        fresh=tuple(shard for shard in row.fresh if shard.key not in asked | left_behind),
        spent=(*row.spent, *sorted((superseded | left_behind) - asked)),
    )
