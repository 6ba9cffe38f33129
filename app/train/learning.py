"""One update of a policy, or what is left when it goes wrong."""

from collections.abc import Mapping
from dataclasses import dataclass
from math import cos, pi

import torch

from app.config import PipelinePpoSettings, PpoSettings
from app.learning.learner import improve
from app.learning.ppo import EpochMetrics, TrainingDiverged
from app.learning.samples import Samples
from app.store import Checkpoint
from app.train.start import successor

CAUTION = 0.5
"""Factor on learning rate and clip after a divergence."""

CURIOSITY = 1.5
"""Factor on the entropy coefficient after a divergence, because a collapsed policy needs more."""


def scheduled(settings: PipelinePpoSettings, progress: float, recoveries: int) -> PipelinePpoSettings:
    """Return the settings of one iteration.

    Args:
        settings: of the run.
        progress: 0 in the first iteration, 1 in the last.
        recoveries: updates that have diverged so far.
    """
    weight = progress if settings.schedule == "linear" else (1 - cos(pi * progress)) / 2
    calm = CAUTION**recoveries

    def between(first: float, last: float | None) -> float:
        return first if last is None else first + (last - first) * weight

    changes = {
        "learning_rate": between(settings.learning_rate, settings.learning_rate_end) * calm,
        "clip_epsilon": settings.clip_epsilon * calm,
        "entropy_coef": between(settings.entropy_coef, settings.entropy_coef_end) * CURIOSITY**recoveries,
    }
    return settings.replace(**changes)


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
