"""The trainer: runs one training for each request, or makes a configuration's initial model."""

from collections.abc import Mapping
from typing import Literal

from flyball.app.backends import backend_of
from flyball.app.config import GameConfig
from flyball.app.controllers import States
from flyball.app.controllers.needs import ReplayBuffer
from flyball.app.core import FlyballError, JsonObject
from flyball.app.engine import JobFailed, JobTimedOut
from flyball.app.events import (
    Cause,
    Event,
    Payload,
    Row,
    Step,
    TrainingCompleted,
    TrainingFailed,
    TrainingProgress,
    TrainingRequested,
    TrainingStarted,
    handles,
)
from flyball.app.job_specs import ModelResult
from flyball.daemons.jobs import Job, Worker
from flyball.daemons.leases import JobOutcome, Leases
from flyball.daemons.spec import DaemonSpec

TrainingJob = Job[TrainingRequested]
BAD_DATA = frozenset({"bad_data", "lost_blob", "no_model"})
"""Codes of the job's errors for unusable shards or base models: missing, damaged, or of another game."""


class TrainerRow(Row, frozen=True):
    """The trainer's row of one configuration.

    Attributes:
        cause: the latest request, which replaces earlier ones; None once it has ended.
        request: its payload.
        replay: shards of earlier trainings that did not fail.
    """

    cause: Cause | None = None
    request: TrainingRequested | None = None
    replay: ReplayBuffer = ReplayBuffer()


Rows = Mapping[str, TrainerRow]


def train_job(config: GameConfig) -> str:
    """Return the job that trains a configuration: the user's own trainer, or the backend's job."""
    if config.train_command is not None:
        return "flyball.app.learning.own_trainers:train_by_command"
    if config.trainer is not None:
        return "flyball.app.learning.own_trainers:train_by_function"
    return backend_of(config).train


class Trainer(Worker[TrainingRequested]):
    """Runs a job for each request, which trains a model or draws a first one."""

    name = "Trainer"
    kind = "training"
    row = TrainerRow
    returns = ModelResult
    emits = frozenset({TrainingStarted, TrainingProgress, TrainingCompleted, TrainingFailed})

    @handles(TrainingRequested)
    def requested(self, rows: Rows, event: Event[TrainingRequested]) -> Step[TrainerRow]:
        """Queue a request, which replaces an older one."""
        row = rows.get(event.subject, TrainerRow())
        return Step({event.subject: row.replace(cause=event.cause, request=event.data)})

    @handles(TrainingCompleted, TrainingFailed)
    def ended(self, rows: Rows, event: Event[TrainingCompleted] | Event[TrainingFailed]) -> Step[TrainerRow]:
        """Drop a finished request.

        A successful training's shards may be learned from again. The shards of a failed training may not, because they
        may have caused the failure.
        """
        row = rows.get(event.subject)
        if row is None or row.cause is None or row.request is None or row.cause.id != event.data.request_id:
            return Step()
        good = row.request.shards if isinstance(event.data, TrainingCompleted) else ()
        replay = row.replay.plus(good, self.settings.config(event.subject))
        return Step({event.subject: TrainerRow(replay=replay)})

    def job(self, cause: Cause, pending: TrainerRow, states: States) -> TrainingJob:
        """Return the job that trains a model, or makes the initial one."""
        request = pending.request
        assert request is not None  # because ``pending`` returns only rows with a cause
        function, spec = self.backend(cause).initialise, self.spec(cause, seed=request.seed)
        if request.base_model is not None:
            function = train_job(self.settings.config(cause.subject or ""))
            spec |= {
                "base_model": request.base_model,
                "shards": [shard.key for shard in request.shards],
                "replayed": [shard.key for shard in pending.replay.shards],
                "rows": sum(shard.rows for shard in request.shards),
                "step": request.step,
                "learning_rate": request.learning_rate,
                "epochs": request.epochs,
            }
        return Job(cause, request, function, (spec,), self.settings.deadlines.training_seconds)

    def started(self, job: TrainingJob) -> tuple[Payload, ...]:
        """Report the start of a training."""
        rows = sum(shard.rows for shard in job.request.shards)
        return (TrainingStarted(request_id=job.id, base_model=job.request.base_model, rows=rows),)

    def progressed(self, job: TrainingJob, report: JsonObject) -> tuple[Payload, ...]:
        """Report a training's progress."""
        return (TrainingProgress(request_id=job.id, **report),)

    def completed(self, job: TrainingJob, result: ModelResult, seconds: float) -> tuple[Payload, ...]:
        """Report the trained model."""
        return (TrainingCompleted(request_id=job.id, **dict(result), seconds=seconds),)

    def failed(self, job: TrainingJob, error: FlyballError) -> tuple[Payload, ...]:
        """Report that the update was discarded, with the reason."""
        reason: Literal["diverged", "bad_data", "timed_out", "error"] = "error"
        match error:
            case JobTimedOut():
                reason = "timed_out"
            case JobFailed(code="diverged"):
                reason = "diverged"
            case JobFailed(code=code) if code in BAD_DATA:
                reason = "bad_data"
        return (TrainingFailed(request_id=job.id, reason=reason, error=str(error)),)


class TrainingLeases(Leases):
    """Leases of trainings."""

    name = "TrainingLeases"
    worker = Trainer
    daemon = "training"
    failed = frozenset({TrainingFailed})

    def outcome(self, data: Payload) -> JobOutcome | None:
        """See ``Leases.outcome``. A diverged update and bad data say nothing about the daemon."""
        if isinstance(data, TrainingFailed) and data.reason in ("diverged", "bad_data"):
            return None
        return super().outcome(data)


DAEMON = DaemonSpec(TrainingLeases.daemon, "trains models", worker=Trainer, leases=TrainingLeases, capacity=1)
