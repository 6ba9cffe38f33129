"""Tunable parameters: configured values, and bounds that FeedbackState applies to decided values.

An operator may publish any number, and payloads can't check these bounds, because the bounds depend on a run's
settings. All but the quality threshold's include the configured value. The owner of the learning rate has narrower
bounds: it may lower a rate that is above the maximum, but never raises one above it.

The quality threshold is capped at ``intensity.reduced``, the quality at which training begins. The smoothed quality is
a mean of scores, so when it allows training, at least one score reaches the threshold. With a higher threshold a
configuration could play for ever, with data too good for a pause and too poor for a training.
"""

from flyball.app.config import Parameter, RunSettings
from flyball.app.config.settings import MAX_TEMPERATURE


def bounded(parameter: Parameter, value: float, settings: RunSettings, key: str) -> float:
    """Return ``value`` clamped to the bounds of a configuration's parameter."""
    limits, rates, config = settings.feedback.gauntlet, settings.feedback.learning_rate, settings.config(key)
    strictest = min(settings.feedback.intensity.reduced, max(limits.max_quality_threshold, settings.min_quality))
    games, temperature = config.selfplay.games_per_request, config.selfplay.temperature
    bounds: dict[Parameter, tuple[float, float]] = {
        "learning_rate": (min(rates.minimum, config.learning_rate), max(rates.maximum, config.learning_rate)),
        "epochs": (1, max(limits.max_epochs, config.epochs)),
        "games_per_iteration": (1, games * limits.max_games_factor),
        "quality_threshold": (0, strictest),
        "base_temperature": (min(limits.min_temperature, temperature), MAX_TEMPERATURE),
    }
    least, most = bounds[parameter]
    return min(max(value, least), most)


def is_turned(parameter: Parameter, settings: RunSettings, key: str) -> bool:
    """Return whether decisions change a parameter; otherwise it stays as configured.

    The broker records in ``knobs`` only parameters that the configuration's backend understands.
    """
    return parameter in settings.config(key).knobs


def configured(parameter: Parameter, settings: RunSettings, key: str) -> float:
    """Return a parameter's configured value, which holds until another is decided."""
    config = settings.config(key)
    match parameter:
        case "learning_rate":
            return config.learning_rate
        case "epochs":
            return config.epochs
        case "games_per_iteration":
            return config.selfplay.games_per_request
        case "quality_threshold":
            return bounded("quality_threshold", settings.min_quality, settings, key)
        case "base_temperature":
            return config.selfplay.temperature
