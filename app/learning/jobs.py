"""Engine jobs: draw a first model, or train one on shards. Results depend on the spec alone."""

import time
from dataclasses import asdict
from pathlib import Path
from typing import Literal

import torch
from pydantic import Field

from app.config import GameConfig, PpoSettings, Settings
from app.core import FlyballError, ModelHash, ShardKey, derive_seed
from app.engine import JsonObject, Report
from app.games import TableSpec, open_table
from app.learning.learner import improve
from app.learning.network import init_policy, parameters_to_bytes
from app.learning.ppo import EpochMetrics
from app.learning.samples import explained_variance, prepare
from app.store import FileStore, Manifest, get_checkpoint, get_shard, put_checkpoint


def first_model(config: GameConfig, game: TableSpec, seed: int) -> tuple[Manifest, bytes]:
    """Draw parameters from a seed; return the manifest, at step 0, and the parameters' safetensors file."""
    parameters = init_policy(config.network, game.observation_size, game.actions, seed)
    manifest = Manifest(
        config_key=config.key,
        network=config.network,
        obs_size=game.observation_size,
        actions=game.actions,
        step=0,
        parent=None,
        optimizer=None,
    )
    return manifest, parameters_to_bytes(parameters)


class UnfitData(FlyballError):
    """A base model or a shard that does not belong to the training asked for."""


class InitialiseSpec(Settings):
    """Arguments of ``initialise``; ``store`` is the folder of the blob store."""

    store: str
    config: GameConfig
    seed: int = Field(ge=0)


class TrainSpec(Settings):
    """Arguments of ``train``. ``step`` is the base model's; the new model's is one higher."""

    store: str
    config: GameConfig
    base_model: ModelHash
    shards: tuple[ShardKey, ...] = Field(min_length=1)
    seed: int = Field(ge=0)
    step: int = Field(ge=0)
    ppo: PpoSettings
    device: Literal["cpu", "cuda"] = "cpu"


def initialise(spec: JsonObject, report: Report) -> JsonObject:  # noqa: ARG001  # a job, with nothing to report
    """Draw a configuration's first parameters and store them; return the model, at step 0."""
    wanted = InitialiseSpec.model_validate(spec)
    config = wanted.config
    seed = derive_seed(wanted.seed, config.key, "parameters")
    manifest, parameters = first_model(config, open_table(config, slots=0).spec, seed)
    model = put_checkpoint(FileStore(Path(wanted.store)), manifest, parameters, None)
    return {"model": model, "parent": None, "step": 0, "rows": 0, "metrics": None}


def train(spec: JsonObject, report: Report) -> JsonObject:
    """Train a model on shards and store the result; return it with the metrics of its last epoch.

    Reports ``epoch``, ``epochs`` and the losses after each epoch. Nothing is stored after an error. The same
    spec gives the same model. Raises ``UnfitData``, ``UnfinishedEpisode``, ``TrainingDiverged``, and what
    reading the store raises.
    """
    begun = time.perf_counter()
    wanted = TrainSpec.model_validate(spec)
    store, key, network = FileStore(Path(wanted.store)), wanted.config.key, wanted.config.network
    base = get_checkpoint(store, wanted.base_model, optimizer=True)
    shards = [get_shard(store, key) for key in wanted.shards]
    game = open_table(wanted.config, slots=0).spec
    found, expected = (base.manifest.config_key, base.manifest.step, base.manifest.network), (key, wanted.step, network)
    if found != expected:
        raise UnfitData(
            f"Model {base.model} is {found}, not {expected}.",
            hint="Ask for the model's own configuration and step; with another network, begin a new run.",
        )
    played = (key, game.rules_version, game.observation_size, game.actions)
    for shard in shards:
        meta, sizes = shard.meta, (shard.obs.shape[1], shard.mask.shape[1])
        if (meta.config_key, meta.rules_version, *sizes) != played:
            raise UnfitData(
                f"A shard of {meta.worker} is of {(meta.config_key, meta.rules_version, *sizes)}, not of {played}.",
                hint="Leave it out; it was played by other rules or another version of this program.",
            )
    ppo = annealed(wanted.ppo, wanted.step)
    samples = prepare(shards, ppo, game.symmetries, wanted.seed)

    def tell(epoch: int, metrics: EpochMetrics) -> None:
        report({"epoch": epoch, "epochs": ppo.epochs, **_published(metrics)})

    device = torch.device(wanted.device if torch.cuda.is_available() else "cpu")
    result = improve(base, samples, ppo, seed=wanted.seed, device=device, report=tell)
    manifest = base.manifest.successor(base.model)
    model = put_checkpoint(store, manifest, result.parameters, result.optimizer)
    return {
        "model": model,
        "parent": base.model,
        "step": manifest.step,
        "rows": len(samples),
        "metrics": {
            **_published(result.metrics),
            "explained_variance": explained_variance(samples),
            "seconds": time.perf_counter() - begun,
        },
    }


def annealed(ppo: PpoSettings, step: int) -> PpoSettings:
    """Return the settings at ``step``, with the entropy coefficient annealed linearly.

    The step belongs to the model, so a rollback also restores the entropy coefficient.
    """
    if ppo.entropy_coef_end is None:
        return ppo
    progress = min(1.0, step / ppo.entropy_trainings)
    change = progress * (ppo.entropy_coef_end - ppo.entropy_coef)
    return ppo.replace(entropy_coef=ppo.entropy_coef + change)


def _published(metrics: EpochMetrics) -> dict[str, float]:
    """Return the metrics of an epoch that are published in events."""
    return {name: value for name, value in asdict(metrics).items() if name != "gradient_norm"}
