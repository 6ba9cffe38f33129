"""The parameters of the modelled cluster. ``plant.toml`` holds their values and says where each comes from."""

import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

from pydantic import Field, ValidationError

from app.config import Settings
from app.core import FlyballError

Probability = Field(ge=0, le=1)
Positive = Field(gt=0)
NonNegative = Field(ge=0)


class BadPlant(FlyballError):
    """A plant file that cannot be used; the message names the file, and the key."""


class TimeSettings(Settings):
    """How long things take, seconds."""

    request: float = Positive
    training: float = Positive
    trained_row: float = Positive
    rated_game: float = Positive
    inspection: float = Positive
    distribution: float = Positive
    latency: float = Positive


class ClusterSettings(Settings):
    """What the cluster is made of."""

    trainers_per_config: float = Positive
    evaluators_per_config: float = Positive
    node_speed_sd: float = NonNegative


class LearningSettings(Settings):
    """How training changes strength."""

    rows_per_lesson: float = Positive
    epochs: int = Field(ge=1)
    epochs_exponent: float = NonNegative
    learning_rate: float = Positive
    learning_rate_exponent: float = NonNegative
    temperature_penalty: float = NonNegative
    jitter_memory: float = Field(ge=0, lt=1)
    flawed_harm: float = NonNegative
    divergence: float = Probability
    divergence_exponent: float = NonNegative
    flawed_divergence: float = NonNegative


class PlateauSettings(Settings):
    """Levels at which learning gets stuck."""

    per_config: float = NonNegative
    lowest: float = Probability
    escape: float = NonNegative
    escape_exponent: float = NonNegative


class RegressionSettings(Settings):
    """Trainings that make a model worse."""

    sudden: float = Probability
    sudden_share: tuple[float, float]
    planted_per_day: float = NonNegative
    planted_elo: float = NonNegative
    planted_exploit_elo: float = NonNegative


class EpisodeSettings(Settings):
    """Troubles that begin at random and last for a while."""

    per_day: float = NonNegative
    hours: float = Positive
    severity: tuple[float, float]


class TroubleSettings(Settings):
    """What goes wrong: on nodes, and in whole configurations."""

    dead_nodes: EpisodeSettings
    slow_nodes: EpisodeSettings
    corrupt_nodes: EpisodeSettings
    parity_nodes: EpisodeSettings
    poor_configs: EpisodeSettings
    selfplay_failure: float = Probability
    evaluation_failure: float = Probability


class QualitySettings(Settings):
    """What the inspection of a shard finds."""

    healthy: float = Probability
    noise_sd: float = NonNegative
    checked_games: int = Field(ge=1)


class CurveSettings(Settings):
    """One configuration's learning curve, and the games it plays.

    Attributes:
        ceiling: strength that training approaches, Elo over the random bot.
        lessons: experience that covers 63% of the way there.
        jitter_elo: standard deviation of models about their trend.
        rows_per_game: decisions a game.
        draws: share of drawn games between equals.
        heuristic: strength of the built-in heuristic player, where there is one.
    """

    ceiling: float = Positive
    lessons: float = Positive
    jitter_elo: float = NonNegative
    rows_per_game: float = Positive
    draws: float = Probability
    heuristic: float = 0.0


class PlantSettings(Settings):
    """All of it."""

    time: TimeSettings
    cluster: ClusterSettings
    learning: LearningSettings
    plateaus: PlateauSettings
    regressions: RegressionSettings
    troubles: TroubleSettings
    quality: QualitySettings
    default: CurveSettings
    configs: dict[str, CurveSettings]

    def curve(self, key: str) -> CurveSettings:
        """Return a configuration's learning curve; those the file does not name have the default one."""
        return self.configs.get(key, self.default)


def load_plant(path: Path | None = None) -> PlantSettings:
    """Read a plant file; without a path, the one that comes with Flyball.

    Raises ``BadPlant``.
    """
    where = path or files("app.simulation") / "plant.toml"
    try:
        tree: dict[str, Any] = tomllib.loads(where.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise BadPlant(f"{where} cannot be read: {error}.", hint="It has to be TOML, in UTF-8.") from error
    try:
        return PlantSettings.model_validate(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        key = ".".join(map(str, first["loc"]))
        raise BadPlant(
            f"{key} in {where}: {first['msg']}.", hint="Compare it with app/simulation/plant.toml."
        ) from error
