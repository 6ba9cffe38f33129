"""Within what bounds trainings and self-play may be set: whoever takes in a value that was decided bounds it here.

An operator may publish any number, and journals hold what was published. The bounds are of a run's settings, which
payloads know nothing of; what is configured beyond them may stay. The learning rate is not among these: its owner alone
takes it in, and bounds it.
"""

from typing import Literal

from app.config import RunSettings
from app.config.settings import MAX_TEMPERATURE

Parameter = Literal["epochs", "games_per_iteration", "quality_threshold", "base_temperature"]


def bounded(parameter: Parameter, value: float, settings: RunSettings, key: str) -> float:
    """Return the value that a parameter of a configuration gets when it is set to ``value``."""
    limits, config = settings.feedback.gauntlet, settings.config(key)
    games, temperature = config.selfplay.games_per_request, config.selfplay.temperature
    bounds: dict[Parameter, tuple[float, float]] = {
        "epochs": (1, max(limits.max_epochs, config.ppo.epochs)),
        "games_per_iteration": (1, games * limits.max_games_factor),
        "quality_threshold": (0, max(limits.max_quality_threshold, settings.min_quality)),
        "base_temperature": (min(limits.min_temperature, temperature), MAX_TEMPERATURE),
    }
    least, most = bounds[parameter]
    return min(max(value, least), most)
