"""One training: checked inputs and a stored result, for all trainers."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import cached_property
from math import isfinite
from pathlib import Path
from time import perf_counter
from typing import NoReturn

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, TypeAdapter, ValidationError
from torch import Tensor, nn

from flyball.app.core import FlyballError
from flyball.app.engine import JsonObject, Report
from flyball.app.events.payload import Metrics
from flyball.app.games import open_table
from flyball.app.job_specs import ModelResult, TrainSpec
from flyball.app.learning.devices import decided, resolve
from flyball.app.learning.network import (
    Parameters,
    bytes_to_parameters,
    load_network,
    parameters_to_bytes,
    visible_shape,
)
from flyball.app.learning.samples import advantages
from flyball.app.store import (
    SHARDS,
    DamagedBlob,
    MissingBlob,
    Shard,
    get_checkpoint,
    get_shard,
    open_store,
    put_checkpoint,
)


class UnfitData(FlyballError, code="bad_data"):
    """A base model or shard that does not fit the requested training."""


class UnfitModel(FlyballError):
    """Parameters that are not those of the base model's network."""


class DiscardedUpdate(FlyballError, code="diverged"):
    """An update that must be discarded: its trainer says so, or one of its numbers is NaN or infinity."""


class BadProgress(FlyballError):
    """A progress report or a metric that no event can hold."""


_METRICS = TypeAdapter(Metrics, config=ConfigDict(strict=True))


@dataclass(frozen=True, slots=True, eq=False)
class Rows:
    """R decisions to learn from; D features, A actions. Sorted by ``game``, ``seat``, ``step`` they form episodes."""

    obs: NDArray[np.generic]  # [R, D] uint8 or float32
    mask: NDArray[np.bool_]  # [R, A] legal actions; a mask also where the shards hold lists of legal actions
    action: NDArray[np.int32]  # [R]
    temperature: NDArray[np.float32]  # [R] divisor of the logits when the action was drawn
    log_prob: NDArray[np.float32]  # [R] of the action, under the policy that played, temperature included
    value: NDArray[np.float32]  # [R] of the position before the action, by the critic that played
    reward: NDArray[np.float32]  # [R] the seat's, until its next decision or the end
    done: NDArray[np.bool_]  # [R] the game ended before the seat's next decision
    truncated: NDArray[np.bool_]  # [R] the game was cut off before the seat's next decision
    bootstrap: NDArray[np.float32]  # [R] the critic's value of the state after a truncated row, else 0
    seat: NDArray[np.int8]  # [R] the deciding seat
    game: NDArray[np.int32]  # [R] the game, numbered over all shards
    step: NDArray[np.int32]  # [R] number of the decision within its game

    def __len__(self) -> int:
        return len(self.action)

    def columns(self) -> dict[str, NDArray[np.generic]]:
        """Return the columns by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


class Training:
    """One training, made from a job's spec.

    Begin a trainer with ``training = Training(spec, report)`` and end it with ``return training.finish(parameters)``.
    Raises ``UnfitData`` when base model and shards are not of the configuration, its rules and its step,
    ``MissingDevice``, and the errors of reading the store.

    Attributes:
        config: the configuration.
        game: the game's description: sizes, players, symmetries.
        base: the checkpoint to train from.
        shards: the self-play to learn from; ``rows`` joins them.
        seed: of everything that the trainer draws.
        step: trainings that the base model has had.
        learning_rate: as the controllers set it.
        epochs: passes over the rows, as the controllers set them.
        options: the configuration's ``options``, unchanged.
        compute: device and precision, as the deployment's settings name them; never ``auto`` for the precision.
        device: where to compute.
        settings_folder: the folder of ``flyball.toml``.
    """

    def __init__(self, spec: JsonObject | TrainSpec, report: Report) -> None:
        self._begun = perf_counter()
        self._report = report
        self._epoch = 0
        arguments = TrainSpec.model_validate(spec)
        self._store = open_store(arguments.store)
        self.config, self.options = arguments.config, arguments.config.options
        self.seed, self.step = arguments.seed, arguments.step
        self.learning_rate, self.epochs = arguments.learning_rate, arguments.epochs
        self.compute, self.device = decided(arguments, arguments.config.backend), resolve(arguments.device)
        self.settings_folder = Path(arguments.settings_folder)
        self.base = get_checkpoint(self._store, arguments.base_model, optimizer=True)
        self.shards = [get_shard(self._store, key) for key in arguments.shards]
        self._replayed = arguments.replayed
        self.game = open_table(arguments.config, slots=0).spec
        self._check()

    def _check(self) -> None:
        manifest, key, network = self.base.manifest, self.config.key, self.config.network
        actual = manifest.config_key, manifest.step, manifest.network, manifest.shape
        expected = key, self.step, network, visible_shape(network, self.game.shape)
        if actual != expected:
            raise UnfitData(
                f"Model {self.base.model} is {actual}, not {expected}.",
                hint="Ask for the model's own configuration and step; with another network, begin a new run.",
            )
        played = key, self.game.rules_version, self.game.observation_size, self.game.actions
        for shard in self.shards:
            meta, sizes = shard.meta, (shard.obs.shape[1], shard.mask.shape[1])
            if (meta.config_key, meta.rules_version, *sizes) != played:
                raise UnfitData(
                    f"A shard of {meta.worker} is of {(meta.config_key, meta.rules_version, *sizes)}, not of {played}.",
                    hint="Leave it out; it was played by other rules or another version of this program.",
                )

    def replayed(self) -> list[Shard]:
        """Return the shards of earlier trainings, except those that are missing, damaged or of other rules."""
        shards = []
        for key in self._replayed:
            try:
                shard = SHARDS.get(self._store, key)
            except (MissingBlob, DamagedBlob):
                continue
            if (shard.meta.config_key, shard.meta.rules_version) == (self.config.key, self.game.rules_version):
                shards.append(shard)
        return shards

    @cached_property
    def rows(self) -> Rows:
        """The decisions of all shards."""
        names = [field.name for field in fields(Rows) if field.name not in ("temperature", "game")]
        columns = {name: np.concatenate([getattr(shard, name) for shard in self.shards]) for name in names}
        before = np.cumsum([0, *(shard.games for shard in self.shards[:-1])]).astype(np.int32)
        game = [shard.game + first for shard, first in zip(self.shards, before, strict=True)]
        temperature = [np.full(shard.rows, shard.meta.temperature, np.float32) for shard in self.shards]
        return Rows(**columns, temperature=np.concatenate(temperature), game=np.concatenate(game))

    def advantages(self, gamma: float | None = None, gae_lambda: float | None = None) -> NDArray[np.float32]:
        """Return the advantage of each row [R] by generalised advantage estimation.

        ``gamma`` and ``gae_lambda`` default to those of the settings. Add ``rows.value`` to get targets of a critic.
        Raises ``UnfinishedEpisode``.
        """
        discount = self.config.ppo.gamma if gamma is None else gamma
        decay = self.config.ppo.gae_lambda if gae_lambda is None else gae_lambda
        return np.concatenate([advantages(shard, discount, decay) for shard in self.shards])

    def parameters(self) -> Parameters:
        """Return the base model's tensors by name, on ``device``."""
        return {name: tensor.to(self.device) for name, tensor in bytes_to_parameters(self.base.parameters).items()}

    def network(self) -> nn.Module:
        """Return a network with the base model's parameters, from observations to logits and values, on ``device``."""
        return load_network(self.config.network, self.base.manifest.shape, self.parameters()).to(self.device)

    def progress(self, epoch: int, epochs: int, /, **metrics: float) -> None:
        """Publish that an epoch of ``epochs`` has ended, with any metrics.

        Epochs count from 1 and rise. Raises ``BadProgress``, or ``DiscardedUpdate`` for a metric that is not finite.
        """
        if not self._epoch < epoch <= epochs:
            raise BadProgress(
                f"Epoch {epoch} of {epochs} was reported after epoch {self._epoch}.",
                hint="Report each epoch once, from 1 to the number of epochs.",
            )
        self._epoch = epoch
        self._report({"epoch": epoch, "epochs": epochs, "metrics": _checked_metrics(metrics)})

    def discard(self, reason: str) -> NoReturn:
        """Discard a diverged update, always raising ``DiscardedUpdate``. The base model stays."""
        raise DiscardedUpdate(f"The trainer discarded its update: {reason}", hint="The base model stands.")

    def finish(self, parameters: Mapping[str, Tensor | NDArray[np.generic]], /, **metrics: float) -> JsonObject:
        """Store parameters as the base model's successor; return the job's result.

        The result has the metrics, and also ``seconds``. Names, shapes and types have to be the base model's. Raises
        ``UnfitModel``, ``BadProgress``, or ``DiscardedUpdate`` when a number is not finite; then nothing is stored.
        """
        fitting = _fitting(parameters, bytes_to_parameters(self.base.parameters))
        return self.store(parameters_to_bytes(fitting), None, metrics).model_dump(mode="json")

    def store(self, parameters: bytes, optimizer: bytes | None, metrics: Mapping[str, float]) -> ModelResult:
        """Store checked parameters as the base's successor; return the job's result.

        ``parameters`` is a safetensors file. Raises ``BadProgress`` or ``DiscardedUpdate`` for a metric; then nothing
        is stored.
        """
        checked = _checked_metrics({**metrics, "seconds": perf_counter() - self._begun})
        manifest = self.base.manifest.successor(self.base.model)
        model = put_checkpoint(self._store, manifest, parameters, optimizer)
        rows = sum(shard.rows for shard in self.shards)
        return ModelResult(model=model, parent=self.base.model, step=manifest.step, rows=rows, metrics=checked)


def _checked_metrics(metrics: Mapping[str, object]) -> dict[str, float]:
    numbers = {name: value.item() if isinstance(value, np.number) else value for name, value in metrics.items()}
    for name, value in numbers.items():
        if isinstance(value, float) and not isfinite(value):
            raise DiscardedUpdate(f"The metric {name} is {value}.", hint="The update has diverged: train more gently.")
    try:
        return _METRICS.validate_python(numbers)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        raise BadProgress(
            f"The metric {'.'.join(map(str, first['loc']))} is {first['input']!r:.100}: {first['msg']}.",
            hint="Metrics are at most 100 floats, with seconds, of at most a million million, by name.",
        ) from error


def _fitting(parameters: Mapping[str, Tensor | NDArray[np.generic]], base: Parameters) -> Parameters:
    """Return parameters as tensors, checked against ``base``.

    Names, shapes and types must be those of ``base``, and all numbers finite. Raises ``UnfitModel`` or
    ``DiscardedUpdate``.
    """
    if parameters.keys() != base.keys():
        lacking, unknown = sorted(base.keys() - parameters.keys()), sorted(parameters.keys() - base.keys())
        raise UnfitModel(
            f"The model's tensors are not its base's: missing {lacking or 'none'}, unknown {unknown or 'none'}.",
            hint="A trained model has the tensors of its base, by the same names.",
        )
    tensors = {name: _tensor(name, value) for name, value in parameters.items()}
    for name, tensor in tensors.items():
        actual, expected = (tuple(tensor.shape), tensor.dtype), (tuple(base[name].shape), base[name].dtype)
        if actual != expected:
            raise UnfitModel(
                f"{name} is {_shape_text(*actual)}, not {_shape_text(*expected)}.",
                hint="A trained model has the shapes and types of its base; convert it before you return it.",
            )
        if not tensor.isfinite().all():
            raise DiscardedUpdate(f"{name} holds a NaN or an infinity.", hint="The update has diverged.")
    return tensors


def _tensor(name: str, value: Tensor | NDArray[np.generic]) -> Tensor:
    try:
        return value if isinstance(value, Tensor) else torch.from_numpy(np.array(value, order="C"))
    except TypeError as error:
        raise UnfitModel(f"{name} is not a tensor ({error}).", hint="Return tensors or arrays of numbers.") from error


def _shape_text(shape: tuple[int, ...], dtype: torch.dtype) -> str:
    return f"{str(dtype).removeprefix('torch.')} {list(shape)}"
