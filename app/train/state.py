"""A training's folder, with the checkpoint that a resumed run continues."""

import fcntl
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self, TypeVar

from pydantic import Field, ValidationError, model_validator

from flyball.app.config import FrozenModel, PipelineSettings
from flyball.app.core import ConfigKey, FlyballError, ModelHash, ShardKey, reading, writing
from flyball.app.events import ShardRef
from flyball.app.store import (
    SHARDS,
    Checkpoint,
    DamagedBlob,
    FileStore,
    MissingBlob,
    Shard,
    get_checkpoint,
    put_checkpoint,
    put_shard,
)
from flyball.app.store.blobs import replace_durably
from flyball.app.train.iteration import Evaluation

S = TypeVar("S", bound=FrozenModel)

HEAD, STATE = "run.json", "state.json"


class NoRun(FlyballError, code="usage"):
    """A folder without a run that can be resumed."""


class RunExists(FlyballError, code="run_exists"):
    """A folder that already holds a run."""


class RunInUse(FlyballError):
    """A run that another process is training."""


class Best(FrozenModel):
    """The best policy so far."""

    iteration: int = Field(ge=0)
    model: ModelHash
    outcome: float = Field(description="mean, in the evaluation that made it the best")
    evaluation: dict[str, Any]

    @classmethod
    def of(cls, iteration: int, model: ModelHash, evaluation: Evaluation) -> Self:
        """Return an evaluated policy as the best one."""
        return cls(iteration=iteration, model=model, outcome=evaluation.outcome, evaluation=asdict(evaluation))


class TrainingState(FrozenModel):
    """State that an iteration needs from earlier ones, apart from the stored model."""

    iteration: int = Field(ge=0, description="that were made")
    model: ModelHash


class RunState(TrainingState):
    """State of a network's run."""

    games: int = Field(default=0, ge=0, description="that were played to learn from")
    best: Best
    recent: tuple[tuple[float, float], ...] = Field(
        default=(), description="outcomes of the latest evaluations, oldest first, and their standard errors"
    )
    recoveries: int = Field(default=0, ge=0, description="updates that diverged")
    replayed: tuple[ShardRef, ...] = Field(
        default=(), description="shards of earlier iterations to learn from again, oldest first"
    )
    rows: int = Field(default=0, ge=0, description="of all shards so far that were stored to be replayed")

    @model_validator(mode="before")
    @classmethod
    def _of_earlier_versions(cls, values: Any) -> Any:
        """Drop ``stale``, an earlier version's count of evaluations without a new best."""
        if isinstance(values, dict):
            return {name: value for name, value in values.items() if name != "stale"}
        return values


class RunHead(FrozenModel):
    """Identity and settings of a network's run: the first file of its folder."""

    config: ConfigKey
    seed: int = Field(ge=0)
    settings: PipelineSettings


class TrainingFolder:
    """A training's folder.

    That of a network holds ``run.json``, ``state.json``, the latest and the best model, and the shards that are
    replayed. That of a language model holds ``state.json``, ``report.json`` and all models.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.models, self._shards = path, path / "models", path / "shards"

    def has(self, name: str) -> bool:
        """Return True if the folder holds a file."""
        return (self.path / name).exists()

    @contextmanager
    def held(self) -> Iterator[None]:
        """Lock the folder, creating it if it is missing.

        Without the lock, two processes that train one run would delete each other's models. Raises ``RunInUse`` or
        ``UnusableFile``.
        """
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            file = (self.path / ".lock").open("wb")
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise RunInUse(f"Another process trains in {self.path}.", hint="Wait for it, or end it.") from None
            yield

    def check_new(self) -> None:
        """Raise ``RunExists`` if the folder holds a run."""
        if self.has(HEAD) or self.has(STATE):
            raise RunExists(f"{self.path} holds a run.", hint="Resume it, or choose another folder.")

    def begin(self, head: RunHead) -> None:
        """Write the head of a network's new run, in a folder that is ``held``. Raises ``RunExists``."""
        self.check_new()
        self.write(HEAD, head.model_dump_json(indent=1))

    def head(self) -> RunHead:
        """Read a network's head. Raises ``NoRun`` or ``UnusableFile``."""
        return self.read(HEAD, RunHead)

    def change(self, head: RunHead) -> None:
        """Replace a network's head; the run's remaining iterations follow the new settings."""
        self.write(HEAD, head.model_dump_json(indent=1))

    def state(self) -> RunState | None:
        """Return a network's last checkpoint, or None before the first. Raises as ``head``."""
        return self.read(STATE, RunState) if self.has(STATE) else None

    def model(self, model: ModelHash) -> Checkpoint:
        """Return a stored model with its optimiser's state."""
        return get_checkpoint(FileStore(self.models), model, optimizer=True)

    def keep(self, checkpoint: Checkpoint) -> None:
        """Store a model."""
        put_checkpoint(FileStore(self.models), checkpoint.manifest, checkpoint.parameters, checkpoint.optimizer)

    def shard(self, shard: ShardRef) -> Shard:
        """Return a stored shard. Raises ``NoRun`` if it is missing or damaged."""
        try:
            return SHARDS.get(FileStore(self._shards), shard.key)
        except (MissingBlob, DamagedBlob) as error:
            raise NoRun(
                f"{self.path} lacks a shard that its next iteration learns from: {error.message}",
                hint="Put its folder shards back from a copy, or begin a new run in another folder.",
            ) from error

    def keep_shard(self, shard: Shard) -> ShardKey:
        """Store a shard."""
        return put_shard(FileStore(self._shards), shard)

    def save(self, state: RunState, current: Checkpoint) -> None:
        """Save a network's checkpoint; models and shards that it does not need are deleted."""
        self.keep(current)
        self.write(STATE, state.model_dump_json(indent=1))
        needed: set[str] = {state.model, state.best.model}
        needed |= {key for model in (state.model, state.best.model) if (key := self.model(model).manifest.optimizer)}
        _keep_only(FileStore(self.models), needed)
        if self._shards.is_dir():
            _keep_only(FileStore(self._shards), {shard.key for shard in state.replayed})

    def read(self, name: str, kind: type[S]) -> S:
        """Read a file of the run. Raises ``NoRun`` if it is missing or damaged, or ``UnusableFile``."""
        path = self.path / name
        if not path.exists():
            raise NoRun(f"{self.path} holds no run.", hint="Look at its name; a new run is begun without resuming.")
        with reading(path):
            data = path.read_bytes()
        try:
            return kind.model_validate_json(data)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            what = f"{'.'.join(map(str, first['loc'])) or 'the whole'}: {first['msg']}"
            raise NoRun(
                f"{path} is damaged or of another version: {what}.",
                hint="Put it back from a copy, or begin a new run in another folder.",
            ) from error

    def write(self, name: str, text: str) -> None:
        """Replace a file of the run."""
        replace_durably(self.path / name, text.encode(), self.path)


def _keep_only(store: FileStore, needed: Collection[str]) -> None:
    for key in [key for key in store.keys() if key not in needed]:  # noqa: SIM118 - a store is no mapping
        store.delete(key)
