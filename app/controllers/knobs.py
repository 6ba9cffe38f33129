"""Tunable parameters: their values as configured, and the bounds that FeedbackState keeps decided ones within.

An operator may publish any number, and journals hold what was published. Payloads can't hold these bounds, because
the bounds depend on a run's settings. A value that is configured beyond them stays. The owner of the learning rate has
narrower bounds: it lowers a rate above the maximum, and never raises one above it.

No quality threshold counts for more than ``intensity.reduced``, the quality at which training begins. The smoothed
quality is a mean of scores, so where it allows training, at least one score reaches the threshold. With a higher
threshold a configuration could play for ever: too good to pause, and too poor to train on.
"""

from app.config import RunSettings
from app.config.settings import MAX_TEMPERATURE
from app.events import Parameter


def bounded(parameter: Parameter, value: float, settings: RunSettings, key: str) -> float:
    """Return a parameter of a configuration when it is set to ``value``, within its bounds."""
    limits, rates, config = settings.feedback.gauntlet, settings.feedback.learning_rate, settings.config(key)
    strictest = min(settings.feedback.intensity.reduced, max(limits.max_quality_threshold, settings.min_quality))
    games, temperature = config.selfplay.games_per_request, config.selfplay.temperature
    bounds: dict[Parameter, tuple[float, float]] = {
        "learning_rate": (min(rates.minimum, config.ppo.learning_rate), max(rates.maximum, config.ppo.learning_rate)),
        "epochs": (1, max(limits.max_epochs, config.ppo.epochs)),
        "games_per_iteration": (1, games * limits.max_games_factor),
        "quality_threshold": (0, strictest),
        "base_temperature": (min(limits.min_temperature, temperature), MAX_TEMPERATURE),
    }
    least, most = bounds[parameter]
    return min(max(value, least), most)


def configured(parameter: Parameter, settings: RunSettings, key: str) -> float:
    """Return the value of a parameter of a configuration as long as none is decided."""
    config = settings.config(key)
    match parameter:
        case "learning_rate":
            return config.ppo.learning_rate
        case "epochs":
            return config.ppo.epochs
        case "games_per_iteration":
            return config.selfplay.games_per_request
        case "quality_threshold":
            return bounded("quality_threshold", settings.min_quality, settings, key)
        case "base_temperature":
            return config.selfplay.temperature
