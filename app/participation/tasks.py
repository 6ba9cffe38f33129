"""The tasks of participants, and their answers: the JSON that crosses to programs of the user's own.

A task is made of a job of backend ``external``. It has what a program beside Flyball needs, and nothing of Flyball's
own settings. ``Task.result`` makes the job's result of an answer.
"""

from collections.abc import Callable, Mapping
from hashlib import file_digest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self, TypeVar, get_args

from pydantic import BeforeValidator, ConfigDict, Field, JsonValue, ValidationError, model_validator

from flyball.app.config import FrozenModel, GameConfig
from flyball.app.core import FlyballError, JsonObject, ModelHash, Name, ShardKey, derive_id, hashes_in
from flyball.app.engine.folder_command import BadResult
from flyball.app.events.payload import Count, Figure, Metrics, PositiveCount, Share
from flyball.app.job_specs import (
    BatchSpec,
    DistributionSpec,
    InitialiseSpec,
    InspectionSpec,
    LineupSpec,
    SelfplaySpec,
    TrainSpec,
    Verdict,
)

TaskKind = Literal["selfplay", "inspection", "training", "evaluation", "distribution"]
"""A kind of work that participants do."""

TASK_KINDS: tuple[TaskKind, ...] = get_args(TaskKind)

FailureReason = Literal["error", "diverged", "bad_data"]
"""Why a task failed. ``diverged`` is for an update that was discarded, ``bad_data`` for unusable shards or models."""

JOBS = "flyball.app.participation.jobs"
"""The module whose jobs are tasks."""

_ANSWER = "Answer with the fields of the page 'You have a loop already'."


class NotExternal(FlyballError):
    """A job that is not of backend ``external``."""


def _content_hash(value: object) -> object:
    """Return the SHA-256 that a text contains, or that of a file's content."""
    if isinstance(value, Path):
        try:
            with value.open("rb") as file:
                return file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise ValueError(f"the file cannot be read: {error}") from error
    if isinstance(value, str):
        hashes = hashes_in(value)
        if len(hashes) != 1:
            raise ValueError(
                f"{value!r} does not have the SHA-256 of a content, 64 hexadecimal digits (sha256sum FILE), in it"
            )
        return hashes[0]
    return value


class Answer(FrozenModel):
    """Base of answers."""

    model_config = ConfigDict(strict=False)  # a count may be NumPy's


class SelfplayAnswer(Answer):
    """Games were played, and their rows are stored where trainers find them.

    ``shard`` is the SHA-256 of what was stored, alone or in an address.
    """

    shard: Annotated[ShardKey, BeforeValidator(_content_hash)]
    rows: PositiveCount
    games: PositiveCount | None = Field(None, description="that were played; null: as many as the task says")
    mean_length: float | None = Field(None, ge=0, le=1e9, description="decisions a game; null: rows / games")
    truncated: Count = Field(0, description="games that were cut off")


class InspectionAnswer(Answer):
    """A shard was judged: its score, and how many of its games were played again and differ."""

    score: Share
    components: dict[Name, Figure] = Field({}, max_length=100, description="figures by name, which explain the score")
    checked: Count = Field(0, description="games played again")
    failures: tuple[str, ...] = Field((), description="one for each game that differs; then the shard is not used")


class TrainingAnswer(Answer):
    """A model was made. ``model`` is the SHA-256 of its content, alone or in an address."""

    model: Annotated[ModelHash, BeforeValidator(_content_hash)]
    metrics: Metrics = Field({}, description="figures by name, such as losses")
    rows: Count | None = Field(None, description="that it learned from; null: as many as the task says")


class EvaluationAnswer(Answer):
    """Games were played, all of the task's, in their order.

    A game's score is 1 if it was won, 1/2 if drawn, 0 if lost; with more players, the share of opponents beaten, a tie
    counting half. Games with graded outcomes score by how much.
    """

    scores: tuple[float, ...] = Field(min_length=1)
    verdicts: tuple[Verdict, ...] | None = Field(None, description="null: as the scores say")
    outcomes: tuple[float, ...] = Field((), description="of the model, in the game's own units; empty: unknown")
    fingerprints: tuple[str, ...] | None = Field(
        None, description="a text for each game, equal for equal games; null: no game is taken for another's repetition"
    )

    @model_validator(mode="after")
    def _check_scores(self) -> Self:
        if not self.outcomes and not all(0 <= score <= 1 for score in self.scores):
            raise ValueError("a score is 1 for a win, 1/2 for a draw, 0 for a loss, or between them")
        return self


class DistributionAnswer(Answer):
    """A model is where it is needed."""


class Progress(Answer):
    """The progress of a training."""

    epoch: PositiveCount
    epochs: PositiveCount
    metrics: Metrics


A = TypeVar("A", bound=Answer)


def _read(kind: type[A], fields: JsonObject, what: str) -> A:
    """Validate what a participant says. Raises ``BadResult``, which names the first bad field."""
    try:
        return kind.model_validate(fields)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "all of it"
        raise BadResult(f"{what} is unusable: {where}: {first['msg']}.", hint=_ANSWER) from None


class Task(FrozenModel):
    """Base of tasks.

    The ``id`` is the same whenever the same task is handed out again, for instance after a crash. ``options`` are the
    configuration's own.
    """

    answer: ClassVar[type[Answer]]
    codes: ClassVar[Mapping[FailureReason, str]] = {}  # of errors, by which the daemons judge
    reports: ClassVar[bool] = False  # whether its progress is shown

    kind: TaskKind
    id: str = ""
    config_key: str
    game: str
    players: int
    options: dict[str, JsonValue]

    def result(self, answer: JsonObject, seconds: float) -> JsonObject:
        """Return the job's result, which took ``seconds``. Raises ``BadResult`` for an answer that does not fit."""
        return self._fields(_read(self.answer, answer, f"The answer to a task of {self.kind}")) | {"seconds": seconds}

    def _fields(self, answer: Any) -> JsonObject:
        """Return the fields of the job's result."""
        raise NotImplementedError

    def report(self, epoch: int, epochs: int, metrics: JsonObject) -> JsonObject | None:
        """Return the job's report of progress; None for a kind of task that reports none. Raises ``BadResult``."""
        if not self.reports:
            return None
        fields = {"epoch": epoch, "epochs": epochs, "metrics": metrics}
        return _read(Progress, fields, "The progress").model_dump(mode="json")

    def error(self, reason: FailureReason, text: str) -> JsonObject:
        """Return the error of a job that failed, as engines hand it on."""
        code = self.codes.get(reason, FlyballError.code)
        return {"kind": reason, "summary": text, "hint": "", "trace": "", "code": code}


class SelfplayTask(Task):
    """Play ``games`` games of ``model`` against itself, or with the players of ``lineups``; store their rows.

    A lineup's ``opponents``, models or fixed players, sit in the seats after the model's. The model takes every seat
    in turn. In the games beyond those of the lineups, the model plays itself.
    """

    answer = SelfplayAnswer
    kind: Literal["selfplay"] = "selfplay"
    model: ModelHash
    games: int
    lineups: tuple[LineupSpec, ...]
    seed: int
    temperature: float

    def _fields(self, answer: SelfplayAnswer) -> JsonObject:
        games = answer.games or self.games
        if games > self.games or answer.truncated > games:
            raise BadResult(
                f"The answer has {games} games, {answer.truncated} of them cut off, for a task of {self.games}.",
                hint="Count the games that were played for this task.",
            )
        length = answer.rows / games if answer.mean_length is None else answer.mean_length
        return answer.model_dump() | {"games": games, "mean_length": length}


class InspectionTask(Task):
    """Judge a shard that was delivered as games of ``model``. Shards in ``discard`` may be deleted first."""

    answer = InspectionAnswer
    codes: ClassVar[Mapping[FailureReason, str]] = {"bad_data": "unfit_shard"}
    kind: Literal["inspection"] = "inspection"
    shard: ShardKey
    model: ModelHash
    earlier: tuple[ShardKey, ...]
    discard: tuple[ShardKey, ...]
    sample_games: int
    seed: int

    def _fields(self, answer: InspectionAnswer) -> JsonObject:
        return answer.model_dump() | {"checked": max(answer.checked, len(answer.failures))}


class TrainingTask(Task):
    """Make a model of ``base_model`` and ``shards``; without a base model, make the first one.

    ``step`` is the new model's: the number of trainings that led to it. ``replayed`` are shards of earlier trainings.
    """

    answer = TrainingAnswer
    codes: ClassVar[Mapping[FailureReason, str]] = {"diverged": "diverged", "bad_data": "bad_data"}
    reports: ClassVar[bool] = True
    kind: Literal["training"] = "training"
    base_model: ModelHash | None
    step: int
    shards: tuple[ShardKey, ...]
    replayed: tuple[ShardKey, ...]
    rows: int
    seed: int
    learning_rate: float
    epochs: int

    def _fields(self, answer: TrainingAnswer) -> JsonObject:
        if self.base_model is None:
            return {"model": answer.model, "parent": None, "step": 0, "rows": 0, "metrics": None}
        if answer.model == self.base_model:
            raise BadResult(
                f"The answer names the base model {self.base_model[:8]} as the new one.",
                hint="Train it, or fail the task: an update without effect is no model of its own.",
            )
        rows = self.rows if answer.rows is None else answer.rows
        return answer.model_dump() | {"parent": self.base_model, "step": self.step, "rows": rows}


class EvaluationTask(Task):
    """Play ``games`` games of ``model`` against ``opponent``: a model's hash, or the name of a fixed player.

    The games are numbered from ``first`` on. In game n the model has seat n modulo ``players``, and the opponent all
    others. A rotation is ``players`` consecutive games, the first a multiple of ``players``; its games share their
    opening or deal.
    """

    answer = EvaluationAnswer
    kind: Literal["evaluation"] = "evaluation"
    model: str
    opponent: str
    first: int
    games: int
    seed: int
    temperature: float

    def _fields(self, answer: EvaluationAnswer) -> JsonObject:
        unique = tuple(f"{self.id}.{number}" for number in range(self.first, self.first + self.games))
        columns: dict[str, tuple[object, ...]] = {
            "scores": answer.scores,
            "verdicts": answer.verdicts or tuple(map(self._verdict, answer.scores)),
            "lengths": (0,) * self.games,
            "fingerprints": answer.fingerprints or unique,
        }
        if answer.outcomes:
            columns["outcomes"] = answer.outcomes
        for name, column in columns.items():
            if len(column) != self.games:
                raise BadResult(f"The answer has {len(column)} {name} for {self.games} games.", hint=_ANSWER)
        return {"games": columns}

    def _verdict(self, score: float) -> Verdict:
        if self.players == 2:
            return "won" if score > 0.5 else "drawn" if score == 0.5 else "lost"
        return "won" if score >= 1 else "lost"


class DistributionTask(Task):
    """Bring ``model``, which has become the current one, to where it is needed. Nothing waits for it."""

    answer = DistributionAnswer
    kind: Literal["distribution"] = "distribution"
    model: ModelHash
    needed: tuple[ModelHash, ...]

    def _fields(self, answer: DistributionAnswer) -> JsonObject:
        return answer.model_dump() | {"model": self.model}


TASKS: tuple[type[Task], ...] = (SelfplayTask, InspectionTask, TrainingTask, EvaluationTask, DistributionTask)

T = TypeVar("T", bound=Task)


def _task(kind: type[T], config: GameConfig, **fields: Any) -> T:
    task = kind(config_key=config.key, game=config.game, players=config.players, options=config.options, **fields)
    return task.replace(id=derive_id(task.kind, task.model_dump_json()))


def _initialise(raw: JsonObject) -> Task:
    spec = InitialiseSpec.model_validate(raw)
    config = spec.config
    return _task(
        TrainingTask,
        config,
        base_model=None,
        step=0,
        shards=(),
        replayed=(),
        rows=0,
        seed=spec.seed,
        learning_rate=config.learning_rate,
        epochs=config.epochs,
    )


def _train(raw: JsonObject) -> Task:
    spec = TrainSpec.model_validate(raw)
    same = {name: getattr(spec, name) for name in ("shards", "replayed", "rows", "seed", "learning_rate", "epochs")}
    return _task(TrainingTask, spec.config, base_model=spec.base_model, step=spec.step + 1, **same)


def _play(raw: JsonObject) -> Task:
    spec = SelfplaySpec.model_validate(raw)
    others = tuple(lineup for lineup in spec.lineups if {*lineup.opponents} != {spec.model})
    same = {name: getattr(spec, name) for name in ("model", "games", "seed", "temperature")}
    return _task(SelfplayTask, spec.config, lineups=others, **same)


def _inspect(raw: JsonObject) -> Task:
    spec = InspectionSpec.model_validate(raw)
    names = ("shard", "model", "earlier", "discard", "sample_games", "seed")
    return _task(InspectionTask, spec.config, **{name: getattr(spec, name) for name in names})


def _match(raw: JsonObject) -> Task:
    spec = BatchSpec.model_validate(raw)
    batch = spec.batch
    return _task(
        EvaluationTask,
        spec.config,
        model=spec.model,
        opponent=batch.opponent.player,
        first=batch.first,
        games=batch.games,
        seed=spec.seed,
        temperature=spec.config.evaluation.temperature,
    )


def _distribute(raw: JsonObject) -> Task:
    spec = DistributionSpec.model_validate(raw)
    assert spec.config is not None  # this version's daemons name it
    return _task(DistributionTask, spec.config, model=spec.model, needed=spec.needed)


_MAKERS: Mapping[str, Callable[[JsonObject], Task]] = {
    "initialise": _initialise,
    "play": _play,
    "inspect": _inspect,
    "train": _train,
    "match": _match,
    "distribute": _distribute,
}


def task_of(function: str, spec: JsonObject) -> Task:
    """Return the task that a job of backend ``external`` is. Raises ``NotExternal`` for any other job."""
    module, _, name = function.partition(":")
    if module != JOBS:
        raise NotExternal(
            f"{function} is not a participant's job.", hint="Participants take part in runs with backend external."
        )
    return _MAKERS[name](spec)
