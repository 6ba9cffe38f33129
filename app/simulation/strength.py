"""The plant: how strong models really are, and what training does to them. No controller can see any of it.

Strength is measured in Elo over the random bot, experience in lessons: a lesson is what one of our own trainings on a
laptop teaches (``plant.toml`` says how the curves were fitted). Strength approaches the configuration's ceiling:

    gain = (ceiling - strength) * (1 - exp(-experience / lessons))

On the way lie plateaus: a model that has reached one stays there until a training happens to escape, which exploration
makes likelier. Each model also deviates from its trend by a jitter that its children partly inherit; selection can only
work on that. Flawed rows pull strength down in proportion to their share.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import exp, expm1, log
from typing import NamedTuple

from numpy.random import Generator

from app.core import ModelHash
from app.simulation.plant_settings import CurveSettings, LearningSettings, PlantSettings, PlateauSettings


class ShardTruth(NamedTuple):
    """True worth of a shard of experience.

    ``flawed`` is the share of rows that teach the wrong thing, ``unruly`` how bad it is that games broke the rules.
    """

    rows: int
    flawed: float
    temperature: float
    unruly: float = 0.0


class Exploit(NamedTuple):
    """A weakness of one opponent that a model has learned to use."""

    opponent: ModelHash
    elo: float


@dataclass(frozen=True, slots=True)
class ModelTruth:
    """True strength of a model, Elo over the random bot.

    Attributes:
        trend: what it has learned: its strength apart from its luck.
        jitter: by how much it happens to be stronger: its luck.
        escaped: how many of the configuration's plateaus lie behind it.
        exploit: what makes it look stronger against one opponent than it is.
        planted: the planted regressions that it descends from, by their numbers.
    """

    trend: float = 0.0
    jitter: float = 0.0
    escaped: int = 0
    exploit: Exploit | None = None
    planted: tuple[int, ...] = ()

    @property
    def skill(self) -> float:
        """Strength against anybody but the exploited opponent, luck included."""
        return self.trend + self.jitter


def gain(curve: CurveSettings, strength: float, experience: float) -> float:
    """Return the Elo that ``experience`` >= 0 (in lessons) adds at a strength; see the module's text."""
    return max(0.0, curve.ceiling - strength) * -expm1(-experience / curve.lessons)


def useful_experience(
    shards: Sequence[ShardTruth], settings: LearningSettings, learning_rate: float, epochs: int
) -> float:
    """Return what the sound rows of some shards are worth, in lessons.

    Colder or hotter play than at temperature 1 teaches less; a lower learning rate and fewer epochs get less out of the
    same rows.
    """
    rows = sum(shard.rows * (1 - shard.flawed) * _temperature_factor(shard, settings) for shard in shards)
    pace = min(1.0, learning_rate / settings.learning_rate) ** settings.learning_rate_exponent
    passes = (epochs / settings.epochs) ** settings.epochs_exponent
    return float(rows / settings.rows_per_lesson * pace * passes)


def _temperature_factor(shard: ShardTruth, settings: LearningSettings) -> float:
    return exp(-settings.temperature_penalty * log(shard.temperature) ** 2)


def flawed_share(shards: Sequence[ShardTruth]) -> float:
    """Return the share of flawed rows in [0, 1]."""
    return sum(shard.rows * shard.flawed for shard in shards) / max(1, sum(shard.rows for shard in shards))


def escape_chance(settings: PlateauSettings, experience: float, temperature: float) -> float:
    """Return the chance that a training escapes a plateau: 1 - exp(-rate * experience * temperature ** exponent)."""
    return 1 - exp(-settings.escape * experience * temperature**settings.escape_exponent)


def draw_plateaus(settings: PlateauSettings, ceiling: float, rng: Generator) -> tuple[float, ...]:
    """Draw a configuration's plateaus, Elo, lowest first."""
    count = int(rng.poisson(settings.per_config))
    return tuple(sorted(ceiling * (settings.lowest + (1 - settings.lowest) * rng.random()) for _ in range(count)))


class Pupil:
    """One configuration's learning: its curve, its plateaus and its luck."""

    def __init__(self, plant: PlantSettings, key: str, rng: Generator) -> None:
        self.curve = plant.curve(key)
        self._plant, self._rng = plant, rng
        self.plateaus = draw_plateaus(plant.plateaus, self.curve.ceiling, rng)

    def trained(
        self, base: ModelTruth, shards: Sequence[ShardTruth], learning_rate: float, epochs: int
    ) -> ModelTruth | None:
        """Return the model that a training makes of ``base``; ``None`` when it diverges."""
        settings = self._plant.learning
        flawed, pace = flawed_share(shards), learning_rate / settings.learning_rate
        chance = settings.divergence * pace**settings.divergence_exponent * (1 + settings.flawed_divergence * flawed)
        diverged = self._rng.random() < chance
        experience = useful_experience(shards, settings, learning_rate, epochs)
        learned = self._learned(base, shards, experience)
        harmed = learned.trend - settings.flawed_harm * flawed * max(0.0, learned.trend)
        jitter = self._jitter(base.jitter, min(1.0, pace))
        child = replace(learned, trend=harmed - self._sudden() * max(0.0, harmed), jitter=jitter, exploit=None)
        return None if diverged else child

    def _learned(self, base: ModelTruth, shards: Sequence[ShardTruth], experience: float) -> ModelTruth:
        """Grow, as far as the next plateau; on one, try to escape."""
        luck = self._rng.random()
        ahead = self.plateaus[base.escaped :]
        grown = base.trend + gain(self.curve, base.trend, experience)
        if not ahead or grown < ahead[0]:
            return replace(base, trend=grown)
        temperature = sum(shard.rows * shard.temperature for shard in shards) / sum(shard.rows for shard in shards)
        on_it = base.trend >= ahead[0]
        if on_it and luck < escape_chance(self._plant.plateaus, experience, temperature):
            return replace(base, trend=grown, escaped=base.escaped + 1)
        return replace(base, trend=max(base.trend, ahead[0]))

    def _jitter(self, inherited: float, pace: float) -> float:
        settings = self._plant.learning
        fresh = (1 - settings.jitter_memory**2) ** 0.5 * self.curve.jitter_elo * pace
        return float(settings.jitter_memory * inherited + self._rng.normal() * fresh)

    def _sudden(self) -> float:
        settings = self._plant.regressions
        hit, share = self._rng.random() < settings.sudden, self._rng.uniform(*settings.sudden_share)
        return float(share) if hit else 0.0
