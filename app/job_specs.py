"""The typed boundary of jobs: their context, and the spec and result of each kind.

A job is a function ``job(spec, report) -> result``, JSON in and JSON out, which runs in a process of its own. ``job``
makes one of a function with typed arguments. A spec is validated where its job begins, a result where it returns.
"""

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Annotated, Literal, Self, TypeVar

from pydantic import ConfigDict, Field, model_validator

from flyball.app.config import Compute, FrozenModel, GameConfig, StoreName
from flyball.app.core import FlyballError, JsonObject, ModelHash, Name, Report, ShardKey, is_judge
from flyball.app.events.payload import Count, Figure, Metrics, PositiveCount, Seconds, Share


class JobContext(Compute):
    """A job's place, of which every spec has the fields: store, device, the user's files and servers."""

    store: StoreName


class JobResult(FrozenModel):
    """Base of results. Fields that a backend adds are left out."""

    model_config = ConfigDict(extra="ignore", strict=True)


S = TypeVar("S", bound=FrozenModel)
R = TypeVar("R", bound=FrozenModel)


def job(function: Callable[[S, Report], R]) -> Callable[[JsonObject, Report], JsonObject]:
    """Return the job that calls ``function``, whose argument ``spec`` has a spec's type."""
    kind: type[S] = function.__annotations__["spec"]

    @wraps(function)
    def run(spec: JsonObject, report: Report) -> JsonObject:
        return function(kind.model_validate(spec), report).model_dump(mode="json")

    return run


def read_results(kind: type[R], parts: Sequence[JsonObject | FlyballError]) -> list[R | FlyballError]:
    """Validate the results of a job's parts. Failed parts stay errors. Raises ``ValidationError``."""
    return [part if isinstance(part, FlyballError) else kind.model_validate(part) for part in parts]


class InitialiseSpec(JobContext):
    """Spec of ``initialise``, which makes a configuration's first model.

    A network's parameters are drawn on the CPU for every device, so that a seed gives the same ones everywhere.
    """

    config: GameConfig
    seed: int = Field(ge=0)


class TrainSpec(JobContext):
    """Spec of ``train``, which makes a model of another one and shards.

    ``step`` is the base model's; the new model's is one higher. The feedback controllers set ``learning_rate`` and
    ``epochs``. Each report has ``epoch``, ``epochs`` and ``metrics``.
    """

    config: GameConfig
    base_model: ModelHash
    shards: tuple[ShardKey, ...] = Field(min_length=1)
    replayed: tuple[ShardKey, ...] = Field(
        default=(), description="shards of earlier trainings, oldest first, as many as ``replay_rows`` says"
    )
    rows: int = Field(0, ge=0, description="of ``shards``, together")
    seed: int = Field(ge=0)
    step: int = Field(ge=0)
    learning_rate: float = Field(ge=1e-12, le=1)
    epochs: int = Field(ge=1)


class ModelResult(JobResult):
    """Result of ``initialise`` and ``train``: a stored model. A first model has no parent and no metrics."""

    model: ModelHash
    parent: ModelHash | None = Field(description="the base model")
    step: Count = Field(description="number of trainings: 0, or one more than the base model's")
    rows: Count = Field(description="that it learned from")
    metrics: Metrics | None


class LineupSpec(FrozenModel):
    """Games with the same players; the hero's seat rotates. ``opponents`` sit in the seats after the hero's."""

    opponents: tuple[str, ...] = Field(min_length=1)
    games: int = Field(ge=1)

    @model_validator(mode="after")
    def _no_judges(self) -> Self:
        for name in self.opponents:
            if is_judge(name):
                raise ValueError(f"{name} is a judge, and judges are not trained against")
        return self


class SelfplaySpec(JobContext):
    """Spec of ``play``, which plays games and stores their rows as a shard."""

    config: GameConfig
    model: ModelHash
    lineups: tuple[LineupSpec, ...] = Field(
        default=(), description="seatings with other players; empty: self-play alone"
    )
    games: int = Field(ge=1)
    seed: int = Field(ge=0)
    temperature: float = Field(gt=0, description="of the model; the others play at the configured one")
    worker: str

    @model_validator(mode="after")
    def _lineups_fit(self) -> Self:
        if sum(lineup.games for lineup in self.lineups) > self.games:
            raise ValueError(f"the lineups take more than {self.games} games")
        if any(len(lineup.opponents) != self.config.players - 1 for lineup in self.lineups):
            raise ValueError(f"{self.config.key} has {self.config.players} seats: a lineup fills all but the hero's")
        return self

    @property
    def opponents(self) -> tuple[str, ...]:
        """The names of the other players, built-in ones and models, each once."""
        names = dict.fromkeys(name for lineup in self.lineups for name in lineup.opponents)
        return tuple(name for name in names if name != self.model)


class SelfplayResult(JobResult):
    """Result of ``play``."""

    shard: ShardKey
    rows: PositiveCount
    games: PositiveCount
    mean_length: float = Field(ge=0, le=1e9, description="decisions a game, of all seats; forced moves not counted")
    truncated: Count = Field(description="games that were cut off")
    seconds: Seconds


class InspectionSpec(JobContext):
    """Spec of ``inspect``, which judges a shard."""

    config: GameConfig
    shard: ShardKey
    model: ModelHash = Field(description="that the request named")
    earlier: tuple[ShardKey, ...] = Field(default=(), description="the configuration's shards before it, oldest first")
    discard: tuple[ShardKey, ...] = Field(default=(), description="spent shards, to delete from the store first")
    seed: int = Field(ge=0, description="of the sample of games")
    sample_games: int = Field(default=16, ge=1, description="games that are played again for the parity check")


class InspectionResult(JobResult):
    """Result of ``inspect``. A shard with failures must not be trained on, whatever its score."""

    score: Share
    components: dict[Name, Figure] = Field(max_length=100, description="figures by name, which explain the score")
    checked: Count = Field(description="games played again")
    against: Name | None = Field(default=None, description="the rules that played them again")
    failures: tuple[str, ...] = Field(
        strict=False, description="one for each game that differs, with its first difference"
    )


MODEL = "model"
"""The kind of an opponent that is a model."""


class Opponent(FrozenModel):
    """An opponent of a gauntlet, and the number of games against it."""

    name: str = Field(min_length=1, description="its role, for instance 'champion'; a bot's name")
    kind: str = Field(min_length=1, description="'model', or which bot it is")
    model: ModelHash | None = None
    games: int = Field(ge=1)

    @model_validator(mode="after")
    def _model_when_it_is_one(self) -> Self:
        if (self.model is None) != (self.kind != MODEL):
            raise ValueError(f"an opponent has a model exactly when its kind is {MODEL!r}, not {self.kind!r}")
        return self

    @property
    def player(self) -> str:
        """The hash of the opponent's model, or the bot's name."""
        return self.model or self.kind


class GameBatch(FrozenModel):
    """Consecutive games of one match, in whole rotations. ``first`` is the number of the first game."""

    opponent: Opponent
    first: int = Field(ge=0)
    games: int = Field(ge=1)


class MatchContext(JobContext):
    """The model under evaluation, and how its games are played."""

    config: GameConfig
    model: str = Field(description="a hash, or a bot's name")
    judges: bool = Field(False, description="judges may play: in evaluations by an operator, and never for a league")
    seed: int = Field(ge=0, description="of the gauntlet: each opponent and each batch derives its own")


class BatchSpec(MatchContext):
    """Spec of ``match``: a batch of a model's games against an opponent. A report has ``opponent`` and ``games``."""

    batch: GameBatch

    @model_validator(mode="after")
    def _never_itself(self) -> Self:
        if self.batch.opponent.player == self.model:
            raise ValueError(f"{self.model} cannot be its own opponent")
        return self


Verdict = Literal["won", "drawn", "lost", "truncated"]


class Columns(FrozenModel):
    """Base of results that are stored in columns: tuples of equal length."""

    def plus(self, later: Self) -> Self:
        """Return these columns followed by those of ``later``, which must begin with a new rotation."""
        return self.replace(**{name: getattr(self, name) + getattr(later, name) for name in type(self).model_fields})


class MatchGames(Columns):
    """Results of a match's games for the hero.

    P consecutive games are a rotation. ``scores`` are from ``game_scores``; ``fingerprints`` are hashes of whole
    histories. ``outcomes`` are the hero's, in the game's own units; a backend that does not know them leaves them out.
    """

    scores: tuple[float, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    lengths: tuple[int, ...] = ()
    decided: tuple[bool, ...] = Field(default=(), description="a player made a decision; empty: in all games")
    fingerprints: tuple[str, ...] = ()
    outcomes: tuple[float, ...] = ()


class BatchResult(JobResult):
    """Result of ``match``."""

    games: Annotated[MatchGames, Field(strict=False)]
    seconds: float = Field(ge=0, description="that its process needed")


class DistributionSpec(JobContext):
    """Spec of ``distribute``, which verifies a model and deletes superseded ones. It runs on each node."""

    model: ModelHash | None = Field(description="to verify")
    discard: tuple[ModelHash, ...] = Field(description="models to delete")
    needed: tuple[ModelHash, ...] = Field(default=(), description="models that this node's cache has to keep")
    config: GameConfig | None = Field(default=None, description="whose model it is")


class DistributionResult(JobResult):
    """Result of ``distribute``."""

    model: ModelHash | None = None
