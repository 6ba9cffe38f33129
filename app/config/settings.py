"""Settings of one game configuration. They are frozen, and unknown keys are errors."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator
from pydantic_core import PydanticCustomError

from app.core import RANDOM, ConfigKey

Builtin = Literal["random", "heuristic"]
"""Built-in players; not every game has a heuristic one (``app/games/catalogue.py``)."""


class Settings(BaseModel):
    """Base of all settings."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    def replace(self, **changes: Any) -> Self:
        """Return a validated copy with changes. Raises ``ValidationError``, also for an unknown setting."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}  # without cached properties
        return self.model_validate(fields | changes)

    @field_validator("*", mode="before")
    @classmethod
    def _booleans_are_no_numbers(cls, value: Any, info: ValidationInfo) -> Any:
        """Refuse booleans for numbers, which pydantic would read as 1 or 0; numbers as text stay valid."""
        if info.field_name in _numbers_of(cls) and _holds_boolean(value):
            raise PydanticCustomError("boolean", "Input should be a number, which true and false are not")
        return value


@cache
def _numbers_of(model: type[Settings]) -> frozenset[str]:
    """Return the fields whose types include numbers but not booleans."""
    types = {name: set(_types(field.annotation)) for name, field in model.model_fields.items()}
    return frozenset(name for name, named in types.items() if named & {int, float} and not named & {bool, Any})


def _types(annotation: Any) -> Iterator[Any]:
    """Iterate over the types in an annotation."""
    for part in get_args(annotation):
        yield from (type(part),) if isinstance(part, bool) else _types(part)
    yield getattr(annotation, "__supertype__", annotation)


def _holds_boolean(value: Any) -> bool:
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return isinstance(value, bool) or any(map(_holds_boolean, parts))


class NetworkSettings(Settings):
    """An actor-critic network with one shared trunk."""

    hidden: tuple[int, ...] = Field((256, 128), min_length=1)


Gamma = Annotated[float, Field(gt=0, le=1, description="discount factor from one decision of a seat to its next")]
GaeLambda = Annotated[
    float,
    Field(ge=0, le=1, description="lambda of GAE; 1: advantages from the outcome; 0: from the critic's next value"),
]


class PpoSettings(Settings):
    """Proximal policy optimisation (Schulman et al. 2017).

    Of several settings, the defaults gave the strongest players of the two-player games after 20 seconds. Rewards come
    at the end of games of any length, so nothing is discounted. Later moves are exploratory and often bad, so the
    critic judges a move soon after it (lambda 0.75 rather than 0.95).
    """

    learning_rate: float = Field(1e-3, ge=1e-12, le=1, description="learning rate of Adam")
    gamma: Gamma = 1.0
    gae_lambda: GaeLambda = 0.75
    clip_epsilon: float = Field(0.2, gt=0, lt=1, description="probability ratios are clipped to 1 ± this")
    value_coef: float = Field(0.5, ge=0, description="weight of the critic's loss")
    entropy_coef: float = Field(0.03, ge=0, description="weight of the entropy in the first training")
    entropy_coef_end: float | None = Field(
        None, ge=0, description="weight of the entropy after entropy_trainings; unset: constant"
    )
    entropy_trainings: int = Field(100, ge=1, description="trainings until entropy_coef_end is reached")
    max_grad_norm: float = Field(0.5, gt=0, description="maximum norm of a gradient; longer ones are scaled down")
    epochs: int = Field(3, ge=1, description="passes over the rows")
    batch_size: int = Field(256, ge=8, description="rows in a step of the optimiser")
    target_kl: float = Field(0.1, gt=0, description="KL divergence above which an epoch is the last")
    max_kl: float = Field(1.0, gt=0, description="KL divergence above which an update is discarded as diverged")
    min_entropy: float = Field(1e-3, ge=0, description="entropy in nats below which a policy has collapsed")
    symmetries: bool = Field(True, description="also learn from symmetric images of the positions")


Rewards = Annotated[
    Literal["terminal", "per_trick", "shaped"],
    Field(description="distribution of rewards over a game; except in Hearts only terminal"),
]
Openings = Annotated[int, Field(ge=0, description="a game begins with 0 to this many random decisions")]
MIN_TEMPERATURE, MAX_TEMPERATURE = 1e-3, 10.0


class SelfplaySettings(Settings):
    """Self-play of a configuration."""

    games_per_request: int = Field(256, ge=1, le=1_000_000)
    temperature: float = Field(
        1.0, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE, description="divides the logits before sampling"
    )
    rewards: Rewards = "terminal"
    opening_plies: Openings = 0


class EvaluationSettings(Settings):
    """The gauntlet played after each training."""

    random_games: int = Field(200, ge=1)
    model_games: int = Field(100, ge=1, description="games against the champion and the newest lasting anchor each")
    anchors: int = Field(2, ge=0, description="newest lasting anchors to play")
    members: int = Field(3, ge=0, description="other league members to play, drawn among those near in strength")
    anchor_games: int = Field(50, ge=1, description="games against each other opponent")
    saturated_games: int = Field(
        20, ge=1, description="games against opponents with a one-sided score against the champion (over 90%)"
    )
    temperature: float = Field(
        0.3, ge=0, le=10, description="of both sides; 0 is greedy: then only chance and openings vary the games"
    )
    batch_games: int = Field(256, ge=1, description="games that one process plays at once")
    batch_seconds: float = Field(600.0, gt=0, description="time after which a batch counts as hanging")
    opening_plies: int = Field(
        4, ge=0, description="random decisions that begin a game, equal for all seatings; 0 where cards are dealt"
    )


class GameConfig(Settings):
    """One game configuration: game, number of players, network and settings."""

    key: ConfigKey = Field(pattern=r"^[a-z][a-z0-9_]*_[2-7]p$")
    game: str = Field(description="an OpenSpiel game string, for instance 'hex(board_size=7)'")
    players: int = Field(ge=2, le=7)
    engine: Literal["openspiel", "flyball"] = Field(
        "openspiel", description="implementation of the rules; flyball has Hearts, Othello and standard connect four"
    )
    max_moves: int | None = Field(None, ge=1, description="a longer game is truncated, not drawn")
    rows_per_training: int = Field(
        8192, ge=1, le=10**9, description="fresh rows that start a training at normal intensity"
    )
    builtins: tuple[Builtin, ...] = Field(("random",), description="built-in players of its league")
    network: NetworkSettings = NetworkSettings()
    ppo: PpoSettings = PpoSettings()
    selfplay: SelfplaySettings = SelfplaySettings()
    evaluation: EvaluationSettings = EvaluationSettings()

    @model_validator(mode="after")
    def _anchored(self) -> Self:
        if RANDOM not in self.builtins:
            raise ValueError(f"builtins of {self.key} lack 'random', on which all ratings are anchored: add it")
        return self
