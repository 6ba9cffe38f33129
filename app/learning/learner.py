"""One training: from a model and samples to the next model, all in memory."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch

from app.config import CloningSettings, PpoSettings
from app.learning.cloning import CloningMetrics, clone
from app.learning.inference import load_network
from app.learning.network import ActorCritic, bytes_to_parameters, parameters_to_bytes
from app.learning.optimizer import VectorAdam
from app.learning.ppo import EpochMetrics, update
from app.learning.samples import Samples
from app.store import Checkpoint

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Improvement(Generic[M]):
    """The result of a training: two safetensors files, and the metrics of the last epoch.

    ``gradients`` are the norms of the last batch's gradient, clipped, by parameter.
    """

    parameters: bytes
    optimizer: bytes
    metrics: M
    gradients: dict[str, float]


def improve(
    base: Checkpoint,
    samples: Samples,
    settings: PpoSettings,
    *,
    seed: int,
    device: torch.device,
    report: Callable[[int, EpochMetrics], None],
) -> Improvement[EpochMetrics]:
    """Train a copy of ``base`` by PPO, with its optimiser's state if it has one. Raises ``TrainingDiverged``.

    On the CPU, the same arguments and number of threads give the same bytes.
    """
    network, optimizer = _learner(base, settings.learning_rate, device)
    generator = torch.Generator().manual_seed(seed)
    metrics = update(network, optimizer, samples.to(device), settings, generator=generator, report=report)
    return _improvement(network, optimizer, metrics)


def imitate(
    base: Checkpoint, samples: Samples, settings: CloningSettings, *, seed: int, device: torch.device
) -> Improvement[CloningMetrics]:
    """Train a copy of ``base`` to do what was done in ``samples``; otherwise as ``improve``."""
    network, optimizer = _learner(base, settings.learning_rate, device)
    generator = torch.Generator().manual_seed(seed)
    metrics = clone(network, optimizer, samples.to(device), settings, generator=generator)
    return _improvement(network, optimizer, metrics)


def _learner(base: Checkpoint, learning_rate: float, device: torch.device) -> tuple[ActorCritic, VectorAdam]:
    manifest, parameters = base.manifest, bytes_to_parameters(base.parameters)
    network = load_network(manifest.network, manifest.obs_size, manifest.actions, parameters).to(device)
    return network, VectorAdam(network, learning_rate, base.optimizer)


def _improvement(network: ActorCritic, optimizer: VectorAdam, metrics: M) -> Improvement[M]:
    named = network.named_parameters()
    return Improvement(
        parameters=parameters_to_bytes(network.state_dict()),
        optimizer=optimizer.to_bytes(),
        metrics=metrics,
        gradients={name: float(p.grad.norm()) for name, p in named if p.grad is not None},
    )
