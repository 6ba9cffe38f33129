"""Requests: work that is wanted.

Every result names its request by the request's event id.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from flyball.app.core import ModelHash, Name, PlayerName
from flyball.app.events.payload import (
    MOST_ITEMS,
    Count,
    LearningRate,
    Lineup,
    PositiveCount,
    Reason,
    Request,
    Seed,
    ShardRef,
    Temperature,
    Text,
)


class SelfplayRequested(Request, type="selfplay.requested", name="SELFPLAY_REQUESTED", version=3):
    """Play games with a model on ``worker``.

    Games that are in no lineup are played by the model alone, in all seats.
    """

    worker: Name
    model: ModelHash
    lineups: tuple[Lineup, ...] = Field(max_length=MOST_ITEMS)
    games: PositiveCount
    seed: Seed
    temperature: Temperature = Field(description="of the model; its opponents play at the configured one")
    probe: bool = Field(description="a probe of a quarantined worker: its rows decide only about the quarantine")


class TrainingRequested(Request, type="training.requested", name="TRAINING_REQUESTED", version=3):
    """Train a model on these shards.

    Without a base model, make the initial model; then there are no shards.
    """

    base_model: ModelHash | None
    shards: tuple[ShardRef, ...] = Field(max_length=MOST_ITEMS)
    step: Count
    seed: Seed
    learning_rate: LearningRate
    epochs: PositiveCount


class EvaluationRequested(Request, type="evaluation.requested", name="EVALUATION_REQUESTED"):
    """Play a model's gauntlet, or a gate against the current model."""

    purpose: Literal["rating", "gate"]
    model: ModelHash
    step: Count
    seed: Seed


class MatchesRequested(Request, type="league.matches_requested", name="MATCHES_REQUESTED", version=3):
    """Play a model against some others.

    A retest is played at once, a tournament when there is nothing else to evaluate.
    """

    purpose: Reason
    model: ModelHash
    step: Count
    opponents: tuple[PlayerName, ...] = Field(
        min_length=1, max_length=MOST_ITEMS, description="content hashes of models, names of bots"
    )
    games: int = Field(ge=1, le=10_000, description="against each")
    seed: Seed

    @model_validator(mode="after")
    def _opponents_are_others(self) -> Self:
        if self.model in self.opponents:
            raise ValueError("a model is not its own opponent")
        return self


class RollbackRequested(Request, type="model.rollback_requested", name="ROLLBACK_REQUESTED"):
    """Somebody wants the model replaced by the one before it."""

    model: ModelHash
    reason: Annotated[Text, Field(min_length=1)]
