"""Jobs that run a user-defined trainer: a function or a command."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np
import structlog
import torch
from numpy.typing import NDArray
from pydantic import ConfigDict, ValidationError
from torch import Tensor

from flyball.app.config import Compute
from flyball.app.core import FlyballError, ModelHash, load_plugin
from flyball.app.engine import JsonObject, Report
from flyball.app.engine.folder_command import REQUEST, RESULT, BadResult, Hints, private_folder, run_in_folder
from flyball.app.events.payload import Metrics
from flyball.app.job_specs import ModelResult, TrainSpec, job
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.training import Training
from flyball.app.store import get_checkpoint, open_store, scratch_folder

FORMAT: Final = 1
"""Version of the folder's format; it rises when users' commands have to change."""

BASE, BASE_NPZ, ROWS = "base.safetensors", "base.npz", "rows.npz"
MODEL, MODEL_NPZ = "model.safetensors", "model.npz"

NO_NUMPY_TYPE = frozenset({torch.bfloat16})
"""Types of tensors that NumPy lacks."""


class TrainerExited(FlyballError):
    """A trainer's function asked its process to exit."""


class TrainResult(ModelResult):
    """Result of a trainer's function, whose model has a parent and metrics."""

    model_config = ConfigDict(extra="forbid", strict=False)  # a row count may be NumPy's

    parent: ModelHash
    metrics: Metrics


@job
def train_by_function(spec: TrainSpec, report: Report) -> TrainResult:
    """Run the configuration's ``trainer`` (a job).

    Its result has to be a successor of the base model. Raises ``UnknownPlugin``, ``BadResult``, ``TrainerExited``, and
    whatever the function raises.
    """
    name = spec.config.trainer
    assert name is not None
    _warn_of_processes(spec, name)
    try:
        returned = load_plugin("flyball.trainers", name)(spec.model_dump(mode="json"), report)
    except SystemExit as error:
        raise TrainerExited(
            f"The trainer {name} called sys.exit({error.code!r}).", hint="Raise an error, or call training.discard."
        ) from error
    try:
        result = TrainResult.model_validate(returned)
    except ValidationError as error:
        raise BadResult(
            f"The trainer {name} returned {returned!r:.200}, which is not a result of a training.",
            hint="End it with: return training.finish(parameters).",
        ) from error
    store = open_store(spec.store)
    successor = get_checkpoint(store, spec.base_model).manifest.successor(spec.base_model)
    found = get_checkpoint(store, result.model).manifest
    if found.replace(optimizer=None) != successor.replace(optimizer=None):
        raise BadResult(
            f"The trainer {name} returned model {result.model}, which is not a successor of {spec.base_model}.",
            hint="End it with: return training.finish(parameters).",
        )
    return result


def train_by_command(spec: JsonObject, report: Report) -> JsonObject:
    """Run the configuration's ``train_command`` on a folder (a job).

    The model that the command writes there is stored. The folder's path is the command's last argument. The command's
    working directory is the folder of ``flyball.toml``. Raises ``CommandFailed``, ``BadResult``, and what ``Training``
    raises; then nothing is stored.
    """
    training = Training(spec, report)
    command = training.config.train_command
    assert command is not None
    _warn_of_processes(training.compute, command[0])

    def on_progress(epoch: int, epochs: int, metrics: dict[str, Any]) -> None:
        training.progress(epoch, epochs, **metrics)

    with private_folder(scratch_folder(spec["store"]) / "trainings") as folder:
        write_request(training, folder)
        result = run_in_folder(command, folder, str(training.settings_folder), on_progress, HINTS)
        metrics = metrics_of(training, result)
        return training.finish(read_model(folder), **metrics)


def _warn_of_processes(compute: Compute, trainer: str) -> None:
    if compute.processes > 1:
        text = "deployment.processes_per_training does not apply to a trainer of the user's own"
        structlog.get_logger("trainer").warning(text, trainer=trainer)


HINTS = Hints(
    "The base model stands. Its output is in logs/training.stderr.",
    'Write {"metrics": {"policy_loss": 0.1}}, or {"discard": "why"} when the update diverged.',
)


def write_request(training: Training, folder: Path) -> None:
    """Write a training's request, base model and rows into a folder.

    The base is written twice: as safetensors, which keep every type, and as ``.npz``, which NumPy alone can read. NumPy
    lacks bfloat16, so a model with such a tensor has no ``base.npz``.
    """
    config, game, rows = training.config, training.game, training.rows
    (folder / BASE).write_bytes(training.base.parameters)
    names = {"base": BASE, "rows": ROWS, "result": RESULT, "model": MODEL, "model_npz": MODEL_NPZ}
    base = bytes_to_parameters(training.base.parameters)
    if not any(tensor.dtype in NO_NUMPY_TYPE for tensor in base.values()):
        arrays = {name: tensor.numpy() for name, tensor in base.items()}
        np.savez(folder / BASE_NPZ, **arrays)  # type: ignore[arg-type]  # its stubs take names for options
        names["base_npz"] = BASE_NPZ
    np.savez(folder / ROWS, advantage=training.advantages(), **rows.columns())  # type: ignore[arg-type]
    request = {
        "format": FORMAT,
        "config_key": config.key,
        "game": config.game,
        "players": config.players,
        "obs_size": game.observation_size,
        "actions": game.actions,
        "network": config.network.model_dump(mode="json"),
        "rows": len(rows),
        "base_model": training.base.model,
        "step": training.step,
        "seed": training.seed,
        "learning_rate": training.learning_rate,
        "epochs": training.epochs,
        "options": training.options,
        "device": str(training.device),
        "precision": training.compute.precision,
        "paths": {name: str(folder / file) for name, file in names.items()},
    }
    (folder / REQUEST).write_text(json.dumps(request, indent=2))


def metrics_of(training: Training, result: JsonObject) -> dict[str, Any]:
    """Return the metrics in a command's result.

    Raises ``BadResult``, or ``DiscardedUpdate`` if the result asks for it.
    """
    match result:
        case {"discard": str(reason), **rest} if not rest:
            training.discard(reason)
        case {"metrics": dict(metrics), **rest} if not rest:
            return metrics
    raise BadResult(f"{RESULT} is {result!r:.200}.", hint=HINTS.result)


def read_model(folder: Path) -> Mapping[str, Tensor | NDArray[np.generic]]:
    """Return the tensors of the model that a command wrote. Raises ``BadResult``."""
    written = [path for path in (folder / MODEL, folder / MODEL_NPZ) if path.exists()]
    if len(written) != 1:
        raise BadResult(
            f"The command wrote {'both' if written else 'neither'} {MODEL} {'and' if written else 'nor'} {MODEL_NPZ}.",
            hint="Write one of them, with the tensors of the base model.",
        )
    (path,) = written
    try:
        if path.name == MODEL:
            return bytes_to_parameters(path.read_bytes())
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return dict(arrays)
    except Exception as error:  # NumPy and zipfile raise a dozen kinds for damaged files
        raise BadResult(f"{path.name} cannot be read: {error}.", hint="Write it before the command ends.") from error
