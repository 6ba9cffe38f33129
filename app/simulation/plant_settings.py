"""The parameters of the modelled cluster. ``plant.toml`` holds their values and says where each comes from."""

import tomllib
from collections.abc import Collection, Sequence
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, Field, ValidationError
from pydantic_core import PydanticCustomError

from app.config import GAMES, Settings
from app.core import FlyballError

Probability = Field(ge=0, le=1)
Positive = Field(gt=0)
NonNegative = Field(ge=0)


def _ascending(shares: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= shares[0] <= shares[1] <= 1:
        raise PydanticCustomError("shares", "Input should be two shares from 0 to 1, the lesser first")
    return shares


Shares = Annotated[tuple[float, float], AfterValidator(_ascending)]
"""The least and the greatest share; one between them is drawn."""


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
    """The cluster's nodes."""

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
    sudden_share: Shares
    planted_per_day: float = NonNegative
    planted_elo: float = NonNegative
    planted_exploit_elo: float = NonNegative


class EpisodeSettings(Settings):
    """Troubles that begin at random and last for a while."""

    per_day: float = NonNegative
    hours: float = Positive
    severity: Shares


class TroubleSettings(Settings):
    """Troubles of nodes and of whole configurations."""

    dead_nodes: EpisodeSettings
    slow_nodes: EpisodeSettings
    corrupt_nodes: EpisodeSettings
    parity_nodes: EpisodeSettings
    failing_nodes: EpisodeSettings
    poor_configs: EpisodeSettings
    selfplay_failure: float = Probability
    evaluation_failure: float = Probability


class QualitySettings(Settings):
    """Results of a shard's inspection."""

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


def load_plant(path: Path | None = None, known: Collection[str] = GAMES) -> PlantSettings:
    """Read a plant file; without a path, the one that comes with Flyball.

    Args:
        path: of the file.
        known: all configurations there are, for a curve of any other is a slip of the pen.

    Raises ``BadPlant``.
    """
    where = path or files("app.simulation") / "plant.toml"
    try:
        plant = PlantSettings.model_validate(_read(where))
    except ValidationError as error:
        raise _refusal(error, where) from error
    if (unknown := next((key for key in plant.configs if key not in known), None)) is not None:
        raise _unknown(("configs", unknown), known, where)
    return plant


def _read(where: Path | Traversable) -> dict[str, Any]:
    try:
        return tomllib.loads(where.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        hint = "Look at --plant; a copy of app/simulation/plant.toml is a start."
        raise BadPlant(f"There is no plant file {where}.", hint=hint) from None
    except OSError as error:
        raise BadPlant(f"{where} cannot be read: {error.strerror}.", hint="Look at its name and mode.") from error
    except ValueError as error:
        raise BadPlant(f"{where} cannot be read: {error}.", hint="It has to be TOML, in UTF-8.") from error


def _refusal(error: ValidationError, where: Path | Traversable) -> BadPlant:
    """Tell the first error: an unknown setting if there is one, as that may be why another one is missing."""
    errors = error.errors(include_url=False, include_input=False)
    unknown = [one for one in errors if one["type"] == "extra_forbidden"]
    if unknown:
        loc = tuple(map(str, unknown[0]["loc"]))
        return _unknown(loc, _settings_in(loc[:-1]), where)
    key = ".".join(map(str, errors[0]["loc"]))
    return BadPlant(f"{key} in {where}: {errors[0]['msg']}.", hint="Compare it with app/simulation/plant.toml.")


def _unknown(loc: Sequence[str], known: Collection[str], where: Path | Traversable) -> BadPlant:
    *tables, name = loc
    near = get_close_matches(name, known, n=1)
    hint = f"Did you mean {'.'.join((*tables, near[0]))}?" if near else f"There are: {', '.join(sorted(known))}."
    return BadPlant(f"Unknown setting {'.'.join(loc)!r} in {where}.", hint=hint)


def _settings_in(tables: Sequence[str]) -> Collection[str]:
    """Return what can be set in a table."""
    table: Any = PlantSettings
    for name in tables:
        table = CurveSettings if "configs" in tables else table.model_fields[name].annotation
    return frozenset(table.model_fields)
