"""One training: from a model and samples to the next model, all in memory."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from app.config import PpoSettings
from app.policy import bytes_to_parameters, load_network, parameters_to_bytes
from app.store import Checkpoint
from app.training.optimizer import make_optimizer, optimizer_bytes
from app.training.ppo import EpochMetrics, update
from app.training.samples import Samples


@dataclass(frozen=True, slots=True)
class Improvement:
    """What came of a training: two safetensors files, and the metrics of the last epoch."""

    parameters: bytes
    optimizer: bytes
    metrics: EpochMetrics


def improve(
    base: Checkpoint,
    samples: Samples,
    settings: PpoSettings,
    *,
    seed: int,
    device: torch.device,
    report: Callable[[int, EpochMetrics], None],
) -> Improvement:
    """Train a copy of ``base``, with its optimiser's state if it has one. Raises ``TrainingDiverged``.

    On the CPU, the same arguments and number of threads give the same bytes.
    """
    manifest, parameters = base.manifest, bytes_to_parameters(base.parameters)
    network = load_network(manifest.network, manifest.obs_size, manifest.actions, parameters).to(device)
    optimizer = make_optimizer(network, settings.learning_rate, base.optimizer)
    generator = torch.Generator().manual_seed(seed)
    metrics = update(network, optimizer, samples.to(device), settings, generator=generator, report=report)
    return Improvement(
        parameters=parameters_to_bytes(network.state_dict()),
        optimizer=optimizer_bytes(optimizer, network),
        metrics=metrics,
    )
