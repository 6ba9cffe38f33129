"""Requests: work that is wanted. The request's event id is its name in every result."""

from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from app.core import ModelHash
from app.events.payload import Request
from app.events.values import Lineup, Reason, ShardRef


class SelfplayRequested(Request, type="selfplay.requested", name="SELFPLAY_REQUESTED", version=2):
    """Play games with a model. ``worker`` is the one that shall do it.

    Games that are in no lineup are played by the model alone, in all seats.
    """

    worker: str = Field(min_length=1)
    model: ModelHash
    lineups: tuple[Lineup, ...]
    games: PositiveInt
    seed: NonNegativeInt
    temperature: float = Field(gt=0, description="of the model; its opponents play at the configured one")
    probe: bool = Field(description="the worker is in quarantine: the rows only show whether it still has to be")


class TrainingRequested(Request, type="training.requested", name="TRAINING_REQUESTED", version=2):
    """Train a model on these shards. Without a base model: make the initial one (then there are no shards)."""

    base_model: ModelHash | None
    shards: tuple[ShardRef, ...]
    step: NonNegativeInt
    seed: NonNegativeInt
    learning_rate: float = Field(gt=0)
    epochs: PositiveInt


class EvaluationRequested(Request, type="evaluation.requested", name="EVALUATION_REQUESTED"):
    """Play a model's gauntlet, or, as a gate, against the current model only."""

    purpose: Literal["rating", "gate"]
    model: ModelHash
    step: NonNegativeInt
    seed: NonNegativeInt


class MatchesRequested(Request, type="league.matches_requested", name="MATCHES_REQUESTED", version=2):
    """Let a model play some others: at once in a retest, in a tournament when there is nothing else to evaluate."""

    purpose: Reason
    model: ModelHash
    step: NonNegativeInt
    opponents: tuple[Annotated[str, Field(min_length=1)], ...] = Field(
        min_length=1, description="content hashes of models, names of built-in players"
    )
    games: int = Field(ge=1, le=10_000, description="against each")
    seed: NonNegativeInt


class RollbackRequested(Request, type="model.rollback_requested", name="ROLLBACK_REQUESTED"):
    """Somebody wants the model replaced by the one before it."""

    model: ModelHash
    reason: str = Field(min_length=1)
