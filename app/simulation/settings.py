"""Settings of a simulation: the modelled cluster and presets for runs.

The modelled cluster is called the plant. ``plant.toml`` holds its values and says where each comes from.
"""

import tomllib
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import AfterValidator, Field, ValidationError, model_validator
from pydantic_core import PydanticCustomError

from flyball.app.config import GAMES, MATCHMAKING, FrozenModel
from flyball.app.core import ConfigKey, FlyballError

HEAD = "head"
"""Name of the machine with the broker and the controllers."""

Probability = Field(ge=0, le=1)
Positive = Field(gt=0)
NonNegative = Field(ge=0)


def _ascending(shares: tuple[float, float]) -> tuple[float, float]:
    if not 0 <= shares[0] <= shares[1] <= 1:
        raise PydanticCustomError("shares", "Input should be two shares from 0 to 1, the lesser first")
    return shares


Shares = Annotated[tuple[float, float], AfterValidator(_ascending)]
"""The least and the greatest share; the simulation draws between them."""


class BadPlant(FlyballError, code="usage"):
    """Unusable plant file. The message names the file and, if one is wrong, the key."""


class JobTimes(FrozenModel):
    """Durations of a configuration's jobs, seconds.

    Attributes:
        request: a request of the configured number of games, on a node of speed 1.
        inspection: of such a request's shard.
        training: the fixed duration of a training, apart from its rows.
        trained_row: a row in an epoch.
        rated_game: a game of an evaluation.
    """

    request: float = Positive
    inspection: float = Positive
    training: float = Positive
    trained_row: float = Positive
    rated_game: float = Positive


class TimeSettings(FrozenModel):
    """Durations that all configurations share, seconds.

    Attributes:
        scale: factor on the times of all configurations' jobs; 1 is the machine that they were measured on.
        distribution: time to bring a new current model to the machines that play it.
        latency: from an event to a controller's conclusion from it.
    """

    scale: float = Positive
    distribution: float = Positive
    latency: float = Positive


class MachineSettings(FrozenModel):
    """Processes of one machine by kind of job, as in ``deployment.processes``, and the cores that they share.

    0 processes of a kind: the machine has no such daemon.
    """

    selfplay: int = Field(ge=0)
    inspection: int = Field(ge=0)
    training: int = Field(ge=0)
    evaluation: int = Field(ge=0)
    cores: int = Field(ge=1)


class MachineLimits(FrozenModel):
    """Most machines that do a kind of job: the head and the first nodes; ``None``: all of them."""

    inspection: int | None = Field(None, ge=1)
    training: int | None = Field(None, ge=1)
    evaluation: int | None = Field(None, ge=1)


class ClusterSettings(FrozenModel):
    """Processes of the head and each node, and the spread of speeds.

    A machine does one evaluation at a time.
    """

    head: MachineSettings
    node: MachineSettings
    machines: MachineLimits = MachineLimits()
    node_speed_sd: float = NonNegative

    @model_validator(mode="after")
    def _each_kind_is_done(self) -> Self:
        for kind in ("selfplay", *MachineLimits.model_fields):
            if getattr(self.head, kind) + getattr(self.node, kind) == 0:
                raise PydanticCustomError("processes", "No machine has a process for {kind}", {"kind": kind})
        return self


class LearningSettings(FrozenModel):
    """Effect of trainings on strength; see ``Pupil`` in ``flyball.app.simulation.world``."""

    rows_per_lesson: float = Positive
    epochs: int = Field(ge=1)
    epochs_exponent: float = NonNegative
    learning_rate: float = Positive
    learning_rate_exponent: float = NonNegative
    temperature_penalty: float = NonNegative
    late_row: float = Probability
    jitter_memory: float = Field(ge=0, lt=1)
    flawed_harm: float = NonNegative
    divergence: float = Probability
    divergence_exponent: float = NonNegative
    flawed_divergence: float = NonNegative


class PlateauSettings(FrozenModel):
    """Plateaus, where learning gets stuck, and the rate of escapes. See ``escape_chance``."""

    per_config: float = NonNegative
    lowest: float = Probability
    escape: float = NonNegative
    escape_exponent: float = NonNegative


class RegressionSettings(FrozenModel):
    """Trainings that make a model worse."""

    sudden: float = Probability
    sudden_share: Shares
    planted_per_day: float = NonNegative
    planted_elo: float = NonNegative
    planted_exploit_elo: float = NonNegative


class EpisodeSettings(FrozenModel):
    """Frequency, mean length and severity of one kind of trouble."""

    per_day: float = NonNegative
    hours: float = Positive
    severity: Shares


class TroubleSettings(FrozenModel):
    """Troubles of nodes and of whole configurations."""

    dead_nodes: EpisodeSettings
    slow_nodes: EpisodeSettings
    corrupt_nodes: EpisodeSettings
    parity_nodes: EpisodeSettings
    failing_nodes: EpisodeSettings
    poor_configs: EpisodeSettings
    selfplay_failure: float = Probability
    evaluation_failure: float = Probability


class InspectionSettings(FrozenModel):
    """Results of a shard's inspection."""

    healthy: float = Probability
    noise_sd: float = NonNegative
    checked_games: int = Field(ge=1)


class CurveSettings(FrozenModel):
    """One configuration's learning curve and games.

    Attributes:
        ceiling: strength that training approaches, Elo over the random bot.
        lessons: experience that covers 63% of the way to the ceiling.
        jitter_elo: standard deviation of models' strength about their trend.
        rows_per_game: mean number of rows (decisions) in a game.
        draws: share of drawn games / expected score of the weaker side, which is 0.5 between equals.
        heuristic: strength of the built-in heuristic player, where there is one.
        time: durations of its jobs.
    """

    ceiling: float = Positive
    lessons: float = Positive
    jitter_elo: float = NonNegative
    rows_per_game: float = Positive
    draws: float = Probability
    heuristic: float = 0.0
    time: JobTimes


class PlantSettings(FrozenModel):
    """All parameters of the modelled cluster."""

    time: TimeSettings
    cluster: ClusterSettings
    learning: LearningSettings
    plateaus: PlateauSettings
    regressions: RegressionSettings
    troubles: TroubleSettings
    quality: InspectionSettings
    default: CurveSettings
    configs: dict[str, CurveSettings]

    def curve(self, key: str) -> CurveSettings:
        """Return a configuration's learning curve, by default the file's default curve."""
        return self.configs.get(key, self.default)


def load_plant(path: Path | None = None, keys: Collection[str] = GAMES) -> PlantSettings:
    """Read a plant file; without a path, the one shipped with Flyball.

    Raises ``BadPlant``, also if the file has a curve for a configuration that is not in ``keys``.
    """
    where = path or files("flyball.app.simulation") / "plant.toml"
    try:
        plant = PlantSettings.model_validate(tomllib.loads(where.read_text(encoding="utf-8")))
    except (FileNotFoundError, NotADirectoryError):
        hint = "Look at its name; a copy of app/simulation/plant.toml is a start."
        raise BadPlant(f"There is no plant file {where}.", hint=hint) from None
    except OSError as error:
        raise BadPlant(f"{where} cannot be read: {error.strerror}.", hint="Look at its name and mode.") from error
    except ValidationError as error:
        raise _refusal(error, where) from error
    except ValueError as error:
        raise BadPlant(f"{where} cannot be read: {error}.", hint="It has to be TOML, in UTF-8.") from error
    if (unknown := next((key for key in plant.configs if key not in keys), None)) is not None:
        raise _unknown_setting(("configs", unknown), keys, where)
    return plant


def _refusal(error: ValidationError, where: Path | Traversable) -> BadPlant:
    """Return the error to report. Unknown settings come first, because a misspelt setting is also missing."""
    errors = error.errors(include_url=False, include_input=False)
    unknown = next((problem["loc"] for problem in errors if problem["type"] == "extra_forbidden"), None)
    if unknown is None:
        key = ".".join(map(str, errors[0]["loc"]))
        return BadPlant(f"{key} in {where}: {errors[0]['msg']}.", hint="Compare it with app/simulation/plant.toml.")
    table: Any = PlantSettings
    for name in unknown[:-1]:
        table = get_args(table)[1] if get_origin(table) is dict else table.model_fields[name].annotation
    return _unknown_setting(tuple(map(str, unknown)), table.model_fields, where)


def _unknown_setting(loc: Sequence[str], names: Collection[str], where: Path | Traversable) -> BadPlant:
    *tables, name = loc
    near = get_close_matches(name, names, n=1)
    hint = f"Did you mean {'.'.join((*tables, near[0]))}?" if near else f"There are: {', '.join(sorted(names))}."
    return BadPlant(f"Unknown setting {'.'.join(loc)!r} in {where}.", hint=hint)


ROWS_PER_TRAINING = 32_768
"""Four times the laptop's, because 36 nodes deliver rows quickly and a training takes minutes."""

PACE: Mapping[str, float] = {
    "tick_seconds": 60.0,
    "feedback.scheduler.lease_seconds": 7200.0,
}
"""Longer leases, because requests take 15 minutes, two wait at a node, and slow nodes need up to 5 times as long."""

PLAYED_ALONE = {f"league.matchmaking.{name}": value for name, value in MATCHMAKING["mirror"].model_dump().items()}
"""Models play only themselves, because the plant does not model what games against others teach."""


def simulated(nodes: int, keys: Sequence[ConfigKey]) -> dict[str, Any]:
    """Return presets for a comparison of arms. The keys are dotted keys of ``flyball.toml``."""
    rows = {f"games.{key}.rows_per_training": ROWS_PER_TRAINING for key in keys}
    return {**planned(nodes), "configs": list(keys), **rows}


def planned(nodes: int) -> dict[str, Any]:
    """Return presets for a plan, by dotted key of ``flyball.toml``. The configurations stay as set."""
    return {**PACE, **PLAYED_ALONE, "selfplay_workers": workers(nodes)}


def workers(nodes: int) -> list[str]:
    """Return the names of the head's and the nodes' self-play workers."""
    width = len(str(nodes))
    names = (HEAD, *(f"node{number:0{width}}" for number in range(1, nodes + 1)))
    return [f"selfplay_worker@{name}" for name in names]
