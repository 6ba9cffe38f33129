"""Settings of PPO that change in the course of a run."""

from math import cos, pi

from app.config import PipelinePpoSettings

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
    return settings.model_copy(update=changes)
