"""Settings of one game configuration. Frozen; unknown keys are errors; units are in the names."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.core import RANDOM, ConfigKey

Builtin = Literal["random", "heuristic"]
"""Players that come with Flyball; which games have a heuristic one: see ``app.games.heuristics``."""


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """Return a copy with some settings changed, validated. Raises ``ValidationError``, also for an unknown one."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}  # without cached properties
        return self.model_validate(fields | changes)

    @field_validator("*", mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse what pydantic would take for 1 or 0; numbers written as text, as in the environment, are fine."""
        if info.field_name in _numbers_of(cls) and _holds_boolean(value):
            raise PydanticCustomError("boolean", "Input should be a number, which true and false are not")
        return value


@cache
def _numbers_of(model: type[Settings]) -> frozenset[str]:
    """Return the fields that are or hold numbers, and no booleans."""
    types = {name: set(_types(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, named in types.items() if named & {int, float} and not named & {bool, Any})


def _types(annotation: Any) -> Iterator[Any]:
    """Iterate over the types that an annotation is made of."""
    for part in get_args(annotation):
        yield from (type(part),) if isinstance(part, bool) else _types(part)
    yield getattr(annotation, "__supertype__", annotation)


def _holds_boolean(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bool) or any(map(_holds_boolean, parts))


class NetworkSettings(Settings):
    """An actor-critic network with one shared trunk."""

    hidden: tuple[int, ...] = Field(default=(256, 128), min_length=1)


GAMMA = "discount of a seat's next reward"
GAE_LAMBDA = "1: judge a move by the end of its game; 0: by the critic at once"


class PpoSettings(Settings):
    """Proximal policy optimisation (Schulman et al. 2017).

    The defaults are those that, of some tried, gave the strongest players of the two-player games in 20 seconds:
    rewards come at the end of games of any length, so nothing is discounted; and later moves are explored, that is
    often bad, so a move is judged by the critic soon after it (a lambda of 0.75 rather than 0.95).
    """

    learning_rate: float = Field(default=1e-3, gt=0, le=1, description="of Adam")
    gamma: float = Field(default=1.0, gt=0, le=1, description=GAMMA)
    gae_lambda: float = Field(default=0.75, ge=0, le=1, description=GAE_LAMBDA)
    clip_epsilon: float = Field(default=0.2, gt=0, lt=1, description="ratios of probabilities count in 1 +- it")
    value_coef: float = Field(default=0.5, ge=0, description="weight of the critic's loss")
    entropy_coef: float = Field(default=0.03, ge=0, description="entropy coefficient, at first")
    entropy_coef_end: float | None = Field(
        default=None, ge=0, description="entropy coefficient in the end; unset: constant"
    )
    entropy_trainings: int = Field(
        default=100, ge=1, description="trainings of the daemons until entropy_coef_end is reached"
    )
    max_grad_norm: float = Field(default=0.5, gt=0, description="longer gradients are shortened to it")
    epochs: int = Field(default=3, ge=1, description="passes over the rows")
    batch_size: int = Field(default=256, ge=8, description="rows in a step of the optimiser")
    target_kl: float = Field(default=0.1, gt=0, description="an epoch that ends above it is the last")
    max_kl: float = Field(default=1.0, gt=0, description="an update above it has diverged and is thrown away")
    min_entropy: float = Field(default=1e-3, ge=0, description="nats; a policy below it has collapsed")
    symmetries: bool = Field(default=True, description="learn from images of the positions too, where there are any")


MAX_TEMPERATURE = 10.0
OPENINGS = "a game begins with 0 to this many random decisions"


class SelfplaySettings(Settings):
    """How a configuration makes experience."""

    games_per_request: int = Field(default=256, ge=1, le=1_000_000)
    temperature: float = Field(default=1.0, gt=0, le=MAX_TEMPERATURE, description="divides the logits before sampling")
    rewards: Literal["terminal", "per_trick", "shaped"] = Field(
        default="terminal", description="how they are spread over a game; but for Hearts there is only its end"
    )
    opening_plies: int = Field(default=0, ge=0, description=OPENINGS)


class EvaluationSettings(Settings):
    """The gauntlet played after each training."""

    random_games: int = Field(default=200, ge=1)
    model_games: int = Field(default=100, ge=1, description="against the champion and the newest lasting anchor")
    anchors: int = Field(default=2, ge=0, description="lasting anchors, the newest ones")
    members: int = Field(default=3, ge=0, description="other members of the league, drawn among those near in strength")
    anchor_games: int = Field(default=50, ge=1, description="against each other opponent")
    saturated_games: int = Field(
        default=20, ge=1, description="against opponents whose score against the champion is one-sided (over 90%)"
    )
    temperature: float = Field(
        default=0.3, ge=0, le=10, description="of both sides; 0 is greedy: only chance and openings make games differ"
    )
    batch_games: int = Field(default=256, ge=1, description="games that one process plays at once")
    batch_seconds: float = Field(default=600.0, gt=0, description="after which a batch is taken to hang")
    opening_plies: int = Field(
        default=4,
        ge=0,
        description="random decisions that every game begins with, the same for each seating; 0 where cards are dealt",
    )


class GameConfig(Settings):
    """One game configuration: what is played, by how many, with which network and which settings."""

    key: ConfigKey = Field(pattern=r"^[a-z][a-z0-9_]*_[2-7]p$")
    game: str = Field(description="an OpenSpiel game string, for instance 'hex(board_size=7)'")
    players: int = Field(ge=2, le=7)
    engine: Literal["openspiel", "flyball"] = Field(
        default="openspiel",
        description="whose rules are played; flyball's own are those of Hearts, Othello and usual connect four",
    )
    max_moves: int | None = Field(default=None, ge=1, description="a longer game is truncated, not drawn")
    rows_per_training: int = Field(
        default=8192, ge=1, le=10**9, description="fresh rows that make a training worthwhile"
    )
    builtins: tuple[Builtin, ...] = Field(default=("random",), description="built-in players of its league")
    network: NetworkSettings = NetworkSettings()
    ppo: PpoSettings = PpoSettings()
    selfplay: SelfplaySettings = SelfplaySettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _anchored(self) -> Self:
        if RANDOM not in self.builtins:
            raise ValueError(f"builtins of {self.key} lack 'random', on which all ratings are anchored: add it")
        return self
