"""Facts: what happened, in the past tense.

A failure is a separate fact.
"""

from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, JsonValue, model_validator

from flyball.app.core import DaemonName, EventId, ModelHash, Name, NodeName, PlayerName, ShardKey
from flyball.app.events.payload import (
    MOST_ITEMS,
    AgentRating,
    Count,
    Fact,
    Figure,
    LeagueRole,
    MatchResult,
    Metrics,
    Period,
    Position,
    PositiveCount,
    Purpose,
    Rating,
    RatingError,
    SampledOpponent,
    Scope,
    Seconds,
    Severity,
    ShardRef,
    ShardWorker,
    Share,
    Temperature,
    Text,
    Value,
    Velocity,
)


class SelfplayComplete(Fact, type="selfplay.completed", name="SELFPLAY_COMPLETE", version=4):
    """A worker finished the games of a request and stored their rows."""

    request_id: EventId
    probe: bool
    shard: ShardRef
    opponents: tuple[PlayerName, ...] = Field(max_length=MOST_ITEMS)
    temperature: Temperature | None = Field(description="null: unknown, as of games that were only observed")
    mean_length: float = Field(ge=0, le=1e9)
    truncated_games: Count | None = Field(description="null: unknown")
    seconds: Seconds | None = Field(description="null: unknown")


class SelfplayFailed(Fact, type="selfplay.failed", name="SELFPLAY_FAILED", notable=True):
    """A worker could not finish a request."""

    request_id: EventId
    worker: Name
    error: Text


class QualityScoreUpdated(Fact, type="quality.score_updated", name="QUALITY_SCORE_UPDATED", version=4):
    """A shard was inspected; ``components`` explain its ``score`` in [0, 1]."""

    request_id: EventId
    shard: ShardRef
    score: Share
    components: dict[Name, Figure] = Field(max_length=100)
    seconds: Seconds | None = Field(description="of the inspection; null: recorded before it was measured")


class QualityDegraded(Fact, type="quality.degraded", name="QUALITY_DEGRADED", version=2, notable=True):
    """A shard must not be trained on."""

    request_id: EventId
    worker: ShardWorker
    shard: ShardKey
    reason: Text


class ParityChecked(Fact, type="quality.parity_checked", name="PARITY_CHECKED", version=3):
    """Recorded games were played again by the rules ``against`` (None: unknown)."""

    request_id: EventId
    worker: ShardWorker
    shard: ShardKey
    against: Name | None
    checked: PositiveCount
    failures: Count

    @model_validator(mode="after")
    def _failures_are_of_the_checked(self) -> Self:
        if self.failures > self.checked:
            raise ValueError(f"{self.failures} failures are more than {self.checked} checked games")
        return self


class InspectionFailed(Fact, type="quality.inspection_failed", name="INSPECTION_FAILED", notable=True):
    """A shard could not be inspected; it is never trained on."""

    request_id: EventId
    shard: ShardKey
    error: Text


class TrainingStarted(Fact, type="training.started", name="TRAINING_STARTED"):
    """The trainer took up a request."""

    request_id: EventId
    base_model: ModelHash | None
    rows: Count


class TrainingProgress(Fact, type="training.progress", name="TRAINING_PROGRESS", version=2):
    """An epoch of a training ended."""

    request_id: EventId
    epoch: PositiveCount
    epochs: PositiveCount
    metrics: Metrics


class TrainingCompleted(Fact, type="training.completed", name="TRAINING_COMPLETED", version=4):
    """A new model is stored.

    ``step`` counts updates since the initial model, which has step 0 and no metrics.
    """

    request_id: EventId
    model: ModelHash
    parent: ModelHash | None = Field(description="null: an initial model's, or unknown")
    step: Count
    rows: Count | None = Field(description="null: unknown")
    metrics: Metrics | None
    seconds: Seconds | None = Field(description="of the training; null: recorded before it was measured")


class TrainingFailed(Fact, type="training.failed", name="TRAINING_FAILED", version=2, notable=True):
    """An update was thrown away; the base model stands."""

    request_id: EventId
    reason: Literal["diverged", "bad_data", "timed_out", "error"]
    error: Text


class LossAnomalyDetected(
    Fact, type="training.loss_anomaly_detected", name="LOSS_ANOMALY_DETECTED", version=2, notable=True
):
    """A training metric left its usual range."""

    metric: Name
    value: Figure
    expected: Figure
    deviations: Figure
    consecutive: PositiveCount = Field(description="trainings in a row with a metric out of range, including this one")


class EvaluationCompleted(Fact, type="evaluation.completed", name="EVALUATION_COMPLETED", version=4):
    """A model played its gauntlet; the random bot's rating is 0."""

    request_id: EventId
    purpose: Purpose
    model: ModelHash
    step: Count
    results: tuple[MatchResult, ...] = Field(min_length=1, max_length=MOST_ITEMS)
    elo: Rating
    elo_stderr: RatingError
    lost_games: Count | None = Field(
        description="games planned but not played: their processes died, hung or failed; null: unknown"
    )
    undecided_games: Count | None = Field(
        description="games in which no player had a decision to make; null: recorded before they were counted"
    )
    seconds: Seconds | None = Field(description="of computing, all processes together; null: unknown")


class EvaluationProgress(Fact, type="evaluation.progress", name="EVALUATION_PROGRESS"):
    """A part of a long evaluation is done."""

    request_id: EventId
    model: ModelHash
    opponent: Name
    games: PositiveCount
    planned_games: PositiveCount


class EvaluationFailed(Fact, type="evaluation.failed", name="EVALUATION_FAILED", version=2, notable=True):
    """No game of a gauntlet could be played."""

    request_id: EventId
    purpose: Purpose
    model: ModelHash
    error: Text


class RegressionDetected(
    Fact, type="evaluation.regression_detected", name="REGRESSION_DETECTED", version=2, notable=True
):
    """The current model plays worse than earlier models did.

    ``last_good`` was current before the decline began.
    """

    model: ModelHash
    last_good: ModelHash | None
    elo_drop: float = Field(ge=0, le=200_000, description="below good models, by these games; ratings count others too")
    severity: Severity
    games: PositiveCount = Field(description="against the fixed opponent since the decline began")
    opponent: PlayerName | None = Field(description="the fixed one; null: recorded before it was named")


class RegressionCleared(Fact, type="evaluation.regression_cleared", name="REGRESSION_CLEARED", notable=True):
    """A regression is over."""

    model: ModelHash


class PlateauDetected(Fact, type="evaluation.plateau_detected", name="PLATEAU_DETECTED", version=2, notable=True):
    """Improvement has been below the threshold for the whole window."""

    velocity: Velocity
    upper_bound: Velocity
    window_hours: float = Field(gt=0, le=1e6, description="of the rule; where least_gain is null, of the slope")
    least_gain: Figure | None = Field(description="Elo in a window, the threshold; null: recorded before it was named")


class EvaluationOverdue(Fact, type="evaluation.overdue", name="EVALUATION_OVERDUE", notable=True):
    """No evaluation came for the whole stall window, so improvement is unknown."""

    hours: float = Field(gt=0, le=1e6, description="of running without an evaluation")
    model: ModelHash | None = Field(description="whose evaluation is awaited; None: none was asked for")
    attempts: Count = Field(description="how often its evaluation was asked for")


class ModelAdvised(Fact, type="model.advised", name="MODEL_ADVISED", notable=True):
    """Advice about models, by a run that only advises; nothing changes.

    Take ``model`` as the current one, by a promotion or a rollback, or keep ``current`` and reject ``model``.
    """

    advice: Literal["promote", "reject", "roll_back"]
    model: ModelHash
    current: ModelHash | None
    step: Count
    reason: Text


class ModelDistributed(Fact, type="model.distributed", name="MODEL_DISTRIBUTED"):
    """A promoted model is verified and ready on these nodes."""

    model: ModelHash
    step: Count
    nodes: tuple[NodeName, ...] = Field(min_length=1, max_length=MOST_ITEMS)


class ModelCached(Fact, type="model.cached", name="MODEL_CACHED"):
    """A node beside the head has verified the distributed model.

    If the store is a URL, the node's cache keeps the model.
    """

    model: ModelHash
    step: Count
    node: NodeName


class DistributionLate(Fact, type="model.distribution_late", name="MODEL_DISTRIBUTION_LATE", notable=True):
    """Live nodes have not acknowledged the distributed model for a while.

    Their jobs fetch the model when they need it.
    """

    model: ModelHash
    nodes: tuple[NodeName, ...] = Field(min_length=1, max_length=MOST_ITEMS)
    seconds: Period


class DistributionFailed(
    Fact, type="model.distribution_failed", name="MODEL_DISTRIBUTION_FAILED", version=3, notable=True
):
    """The current model could not be brought to a node, or is not in the store any more as it was.

    The node's distributor tries again later.
    """

    model: ModelHash
    step: Count
    node: NodeName | None = Field(description="None: not recorded, by an earlier version")
    attempt: PositiveCount = Field(description="in a row, this one included")
    retry_seconds: Period
    damaged: bool | None = Field(description="the store lacks the model or has it changed; null: not recorded")
    readable: ModelHash | None = Field(
        description="the latest earlier champion that the store has unchanged; null: it has none, or was not asked yet"
    )
    error: Text


class CheckpointAdded(Fact, type="league.checkpoint_added", name="CHECKPOINT_ADDED"):
    """A model entered the league.

    ``parent`` is the model's nearest ancestor in the league. The rating rests on ``games`` games.
    """

    model: ModelHash
    parent: ModelHash | None
    step: Count
    elo: Rating
    elo_stderr: RatingError
    games: PositiveCount
    roles: tuple[LeagueRole, ...] = Field(min_length=1, max_length=MOST_ITEMS)

    @model_validator(mode="after")
    def _parent_is_another_model(self) -> Self:
        if self.parent == self.model:
            raise ValueError("a model is not its own parent")
        return self


class CheckpointRetired(Fact, type="league.checkpoint_retired", name="CHECKPOINT_RETIRED"):
    """A model left the league; it is nobody's opponent any more."""

    model: ModelHash
    step: Count
    reason: Literal["expired", "evicted", "rolled_back"]


class EloUpdated(Fact, type="league.elo_updated", name="ELO_UPDATED", version=3):
    """An evaluation changed ratings of agents other than the evaluated model."""

    ratings: tuple[AgentRating, ...] = Field(min_length=1, max_length=MOST_ITEMS)


class OpponentSampled(Fact, type="league.opponent_sampled", name="OPPONENT_SAMPLED", version=2):
    """Matchmaking chose the opponents of a model's self-play.

    There is one entry for each draw, mirrors included.
    """

    request_id: EventId
    model: ModelHash
    opponents: tuple[SampledOpponent, ...] = Field(min_length=1, max_length=MOST_ITEMS)


class SystemFact(Fact):
    """Base of facts about the whole system."""

    scope: ClassVar[Scope] = Scope.SYSTEM


class DaemonFact(SystemFact):
    """Base of daemons' facts about themselves."""

    daemon: DaemonName
    node: NodeName


class DaemonStarted(DaemonFact, type="daemon.started", name="DAEMON_STARTED"):
    """A daemon process began; it has not caught up yet."""

    pid: PositiveCount
    version: Name


class DaemonReady(DaemonFact, type="daemon.ready", name="DAEMON_READY"):
    """A daemon has caught up with the journal.

    The daemon runs up to ``capacity`` jobs at once.
    """

    position: Position
    capacity: Count


class DaemonHeartbeat(DaemonFact, type="daemon.heartbeat", name="DAEMON_HEARTBEAT", version=2):
    """A daemon's event loop runs; ``lag`` events are still unread."""

    position: Position
    lag: Count
    jobs: Count
    requests: tuple[EventId, ...] = Field(
        max_length=MOST_ITEMS,
        description="whose jobs run or come next, most urgent first: at most twice as many as run at once",
    )


class DaemonStopped(DaemonFact, type="daemon.stopped", name="DAEMON_STOPPED"):
    """A daemon drained and left."""

    position: Position


class DaemonFailed(DaemonFact, type="daemon.failed", name="DAEMON_FAILED", notable=True):
    """A daemon leaves after an unhandled error; its supervisor restarts it."""

    error: Text


class RollEntry(Value):
    """A daemon in a roll call: it started and has not stopped."""

    daemon: DaemonName
    node: NodeName
    position: Position | None = Field(description="up to which it has published everything; null: it is not ready")
    lost: bool


class RollCall(SystemFact, type="daemon.roll_call", name="ROLL_CALL"):
    """All daemons that the broker knows; any others are gone.

    The broker publishes a roll call at its start, each hour, and after many events.
    """

    daemons: tuple[RollEntry, ...] = Field(max_length=MOST_ITEMS)


class NodeLost(SystemFact, type="node.lost", name="NODE_LOST", version=2, notable=True):
    """A daemon that did not stop is silent.

    Its process, machine or network failed.
    """

    daemon: DaemonName
    node: NodeName
    silent_seconds: Period


class NodeReturned(SystemFact, type="node.returned", name="NODE_RETURNED", notable=True):
    """The broker hears a lost daemon again, in the same process."""

    daemon: DaemonName
    node: NodeName
    silent_seconds: Period


class NodeDegraded(SystemFact, type="node.degraded", name="NODE_DEGRADED", notable=True):
    """A worker pauses, because its requests failed in a row.

    After the pause, the worker gets one request at a time until one succeeds.
    """

    worker: Name
    failures: PositiveCount = Field(description="in a row")
    pause_seconds: Period
    error: Text = Field(description="of the last one")


class NodeRecovered(SystemFact, type="node.recovered", name="NODE_RECOVERED", notable=True):
    """A paused worker delivered a good shard: it gets requests as before."""

    worker: Name


class NodeProbed(Fact, type="node.probed", name="NODE_PROBED"):
    """A quarantined worker's probe was inspected; its rows count for nothing else."""

    request_id: EventId
    worker: ShardWorker
    shard: ShardKey
    score: Share | None = Field(description="null: the shard is unfit")
    error: Text | None = Field(description="why it is unfit")


class ClockTick(SystemFact, type="clock.tick", name="CLOCK_TICK"):
    """Periodic tick, journaled so that actions that depend on time replay exactly."""

    period_seconds: Period


class EventVoided(SystemFact, type="event.voided", name="EVENT_VOIDED"):
    """An operator voided a recorded event, which every fold then skips."""

    position: Annotated[Position, Field(ge=1)]
    reason: Annotated[Text, Field(min_length=1)]


class RunConfigured(SystemFact, type="run.configured", name="RUN_CONFIGURED", version=4):
    """All settings of a run, so that replay needs no file.

    This is the first record of a journal. Changed settings are recorded at a later start.
    """

    run_id: Name
    settings: dict[Name, JsonValue] = Field(max_length=1000)


RefusalReason = Literal["unknown_key", "ended", "revoked", "producer", "rights", "connections"]
"""Reason for refusal: an unknown, ended or revoked key, another's name, a forbidden type, too many connections."""


class AccessRefused(SystemFact, type="access.refused", name="ACCESS_REFUSED", notable=True):
    """The broker refused a connection or a message.

    One event stands for all refusals of a minute with one key and reason.
    """

    key: Name | None = Field(description="the node or person; null: an unknown key")
    role: Name | None
    reason: RefusalReason
    address: Name = Field(description="of the last one")
    detail: Text = Field(description="of the last one")
    count: PositiveCount
