"""Decisions: a knob was set, by its one owner."""

from typing import Annotated, ClassVar

from pydantic import Field

from flyball.app.config import Parameter
from flyball.app.core import ConfigKey, ModelHash, Name
from flyball.app.events.payload import (
    MOST_ITEMS,
    Count,
    Decision,
    Evidence,
    Figure,
    Intensity,
    LearningRate,
    OpponentPick,
    PositiveCount,
    Rating,
    Scope,
    Seconds,
    Share,
    Text,
)


class ExplorationBoost(Decision, type="selfplay.exploration_boosted", name="EXPLORATION_BOOST", notable=True):
    """The sampling temperature is multiplied; 1 lifts the boost."""

    multiplier: float = Field(ge=1, le=10)
    lasts_seconds: Seconds
    reason: Text


class QualityPenaltyApplied(
    Decision, type="selfplay.quality_penalty_applied", name="QUALITY_PENALTY_APPLIED", notable=True
):
    """The rate of self-play is multiplied; 1 lifts the penalty."""

    rate_multiplier: float = Field(ge=1e-6, le=1)
    quality_score: Share
    threshold: Share


class TrainingBlockedByQuality(
    Decision, type="quality.training_blocked", name="TRAINING_BLOCKED_BY_QUALITY", notable=True
):
    """No training until the cause is gone."""

    reason: Text


class TrainingUnblocked(Decision, type="quality.training_unblocked", name="TRAINING_UNBLOCKED", notable=True):
    """The cause of the block is gone."""

    reason: Text


class NodeQuarantined(Decision, type="node.quarantined", name="NODE_QUARANTINED", notable=True):
    """A worker that delivered bad shards plays only probes.

    The worker's untrained shards are dropped.
    """

    scope: ClassVar[Scope] = Scope.SYSTEM

    worker: Name
    lasts_seconds: Seconds = Field(description="until the quarantine's first probe")
    reason: Text


class NodeReleased(Decision, type="node.released", name="NODE_RELEASED", notable=True):
    """A quarantine is over."""

    scope: ClassVar[Scope] = Scope.SYSTEM

    worker: Name
    reason: Text


class AdaptiveParamsChanged(Decision, type="training.adaptive_params_changed", name="ADAPTIVE_PARAMS_CHANGED"):
    """All settings of coming trainings at once, by an operator.

    Controllers of earlier versions published it, too. Now each sets its own parameter by HYPERPARAMETER_UPDATED.
    """

    epochs: PositiveCount
    games_per_iteration: PositiveCount
    learning_rate: LearningRate
    reason: Text


class HyperparameterUpdated(Decision, type="training.hyperparameter_updated", name="HYPERPARAMETER_UPDATED"):
    """One hyperparameter was set."""

    parameter: Parameter
    value: Figure
    previous: Figure
    reason: Text


class TrainingIntensityChanged(Decision, type="training.intensity_changed", name="TRAINING_INTENSITY_CHANGED"):
    """Eagerness of a configuration to train."""

    intensity: Intensity
    previous: Intensity
    quality_score: Share | None


class CurriculumRebalanced(Decision, type="curriculum.rebalanced", name="CURRICULUM_REBALANCED", version=2):
    """The share of worker time of every configuration; weights average 1."""

    scope: ClassVar[Scope] = Scope.SYSTEM

    weights: dict[ConfigKey, Annotated[float, Field(ge=1e-6, le=1e6)]] = Field(max_length=MOST_ITEMS)
    plateaued: tuple[ConfigKey, ...] = Field(
        max_length=MOST_ITEMS, description="configurations whose gain is done, which keep the lowest weight"
    )
    reason: Text


class MatchmakingUpdated(Decision, type="league.matchmaking_updated", name="MATCHMAKING_UPDATED", version=2):
    """A model's new opponents in self-play; the probabilities sum to 1."""

    model: ModelHash
    picks: tuple[OpponentPick, ...] = Field(min_length=1, max_length=MOST_ITEMS)


class ModelPromoted(Decision, type="model.promoted", name="MODEL_PROMOTED"):
    """A model is current from now on."""

    model: ModelHash
    previous: ModelHash | None
    step: Count
    elo: Rating
    evidence: Evidence


class PromotionRejected(Decision, type="model.promotion_rejected", name="PROMOTION_REJECTED"):
    """The current model stays."""

    model: ModelHash
    current: ModelHash
    step: Count
    evidence: Evidence


class ModelRolledBack(Decision, type="model.rolled_back", name="MODEL_ROLLED_BACK", notable=True):
    """An earlier model replaces the current one, whose shards are dropped."""

    from_model: ModelHash
    to_model: ModelHash
    step: Count
    reason: Text

    def applies_to(self, current: str | None) -> bool:
        """Return whether the rollback applies to the current model.

        A repeated or late rollback does not apply. If no current model is known, the rollback applies.
        """
        return current in (None, self.from_model)
