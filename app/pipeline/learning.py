"""One update of a policy, or what is left when it goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass

import torch

from app.config import PpoSettings
from app.pipeline.start import successor
from app.store import Checkpoint
from app.training import EpochMetrics, Samples, TrainingDiverged, improve


@dataclass(frozen=True, slots=True)
class Learned:
    """The result of an update.

    Attributes:
        checkpoint: the new policy; the old one where the update diverged.
        metrics: of the last epoch.
        epochs: that were made.
        gradients: norms of the last batch's gradient by parameter; none where the update diverged.
        complaint: why the update was thrown away, None where it was not.
    """

    checkpoint: Checkpoint
    metrics: EpochMetrics
    epochs: int
    gradients: Mapping[str, float]
    complaint: str | None = None


def learn(base: Checkpoint, samples: Samples, settings: PpoSettings, seed: int, device: str) -> Learned:
    """Improve ``base`` by PPO; an update that diverges is thrown away."""
    epochs = 0

    def count(number: int, _metrics: EpochMetrics) -> None:
        nonlocal epochs
        epochs = number

    try:
        result = improve(base, samples, settings, seed=seed, device=torch.device(device), report=count)
    except TrainingDiverged as error:
        return Learned(base, error.metrics, epochs, {}, error.message)
    return Learned(successor(base, result.parameters, result.optimizer), result.metrics, epochs, result.gradients)
