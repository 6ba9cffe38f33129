"""True state of a simulation: strengths, learning, troubles.

It is hidden from the controllers. Strength is measured in Elo over the random bot, experience in lessons. A lesson is
the effect of one of our trainings on a laptop; ``plant.toml`` says how the curves were fitted. Strength approaches the
configuration's ceiling:

    gain = (ceiling - strength) * (1 - exp(-experience / lessons))

On the way lie plateaus. A model on a plateau stays there until a training happens to escape it; exploration makes an
escape likelier. Each model also deviates from its trend by a random jitter, its luck, which its children partly
inherit. Selection can only act on this jitter. Flawed rows, which teach something wrong, pull strength down in
proportion to their share.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from math import exp, expm1, log
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.random import Generator

from flyball.app.core import EventId, ModelHash, ShardKey, derive_seed
from flyball.app.core.clock import SECOND_US
from flyball.app.events import TrainingRequested
from flyball.app.simulation.settings import (
    CurveSettings,
    EpisodeSettings,
    LearningSettings,
    PlantSettings,
    PlateauSettings,
)

HOUR_US = 3600 * SECOND_US
DAY_US = 24 * HOUR_US
START_US = 1_767_225_600 * SECOND_US
"""Start of every simulation: 2026-01-01, 00:00 UTC."""

WORTH_PLANTING = 1.5
"""Strength from which regressions are planted, as a multiple of the strength that one costs."""


def digest(*parts: str | int) -> str:
    """Return 64 hexadecimal digits that stand for the hash of parameters or rows."""
    return sha256("/".join(map(str, parts)).encode()).hexdigest()


class Trouble(NamedTuple):
    """A trouble during [start, end), microseconds since 1970. ``severity`` is from 0 to 1."""

    start_us: int
    end_us: int
    severity: float


def draw_times(per_day: float, end_us: int, rng: Generator) -> list[int]:
    """Draw the times of a Poisson process over the simulation. Times are in microseconds since 1970."""
    times, now = [], float(START_US)
    while per_day > 0:
        now += float(rng.exponential(DAY_US / per_day))
        if now >= end_us:
            break
        times.append(int(now))
    return times


def draw_troubles(settings: EpisodeSettings, end_us: int, rng: Generator) -> tuple[Trouble, ...]:
    """Draw troubles of exponential length that do not overlap."""
    troubles: list[Trouble] = []
    for start in draw_times(settings.per_day, end_us, rng):
        length = int(rng.exponential(settings.hours * HOUR_US)) + 1
        severity = float(rng.uniform(*settings.severity))
        if not troubles or start >= troubles[-1].end_us:
            troubles.append(Trouble(start, start + length, severity))
    return tuple(troubles)


def severity_at(troubles: Sequence[Trouble], now_us: int) -> float:
    """Return the severity of the trouble at a time, 0 without one."""
    return next((trouble.severity for trouble in troubles if trouble.start_us <= now_us < trouble.end_us), 0.0)


NodeTrouble = Literal["dead", "slow", "corrupt", "parity", "failing"]


class NodeTruth(NamedTuple):
    """A node's speed (median 1), its troubles and its games' random generator."""

    speed: float
    troubles: Mapping[NodeTrouble, Sequence[Trouble]]
    rng: Generator

    def severity(self, kind: NodeTrouble, now_us: int) -> float:
        """Return the severity of a kind of trouble at a time; 0 without a trouble."""
        return severity_at(self.troubles[kind], now_us)


class ShardTruth(NamedTuple):
    """True quality of a shard.

    Attributes:
        flawed: share of rows that teach something wrong.
        unruly: severity of broken rules.
        depth: number of models in the ancestry of the one that played it.
    """

    rows: int
    flawed: float
    temperature: float
    unruly: float = 0.0
    depth: int = 0


class Exploit(NamedTuple):
    """Extra strength of a model against one opponent."""

    opponent: ModelHash
    elo: float


@dataclass(frozen=True, slots=True)
class ModelTruth:
    """True strength of a model, Elo over the random bot.

    Attributes:
        trend: strength without the jitter.
        jitter: luck, the random deviation from the trend.
        escaped: number of the configuration's plateaus that its lineage has escaped.
        exploit: extra strength against one opponent.
        planted: numbers of the planted regressions in its ancestry.
        depth: number of models in its ancestry.
    """

    trend: float = 0.0
    jitter: float = 0.0
    escaped: int = 0
    exploit: Exploit | None = None
    planted: tuple[int, ...] = ()
    depth: int = 0

    @property
    def skill(self) -> float:
        """Strength with jitter, against all but the exploited opponent."""
        return self.trend + self.jitter


def gain(curve: CurveSettings, strength: float, experience: float) -> float:
    """Return the Elo that ``experience`` (lessons, >= 0) adds to ``strength``."""
    return max(0.0, curve.ceiling - strength) * -expm1(-experience / curve.lessons)


def useful_experience(
    shards: Sequence[ShardTruth], settings: LearningSettings, learning_rate: float, epochs: int, depth: int = 0
) -> float:
    """Return the experience from the shards' sound rows, in lessons.

    Rows teach less if played at another temperature than 1, by another model than the base, which has ``depth``, or
    trained on with fewer epochs or a learning rate below the plant's.
    """

    def temperature_factor(temperature: float) -> float:
        return exp(-settings.temperature_penalty * log(temperature) ** 2)

    rows = sum(
        shard.rows
        * (1 - shard.flawed)
        * temperature_factor(shard.temperature)
        * settings.late_row ** abs(depth - shard.depth)
        for shard in shards
    )
    pace = min(1.0, learning_rate / settings.learning_rate) ** settings.learning_rate_exponent
    passes = (epochs / settings.epochs) ** settings.epochs_exponent
    return float(rows / settings.rows_per_lesson * pace * passes)


def escape_chance(settings: PlateauSettings, experience: float, temperature: float) -> float:
    """Return the chance to escape a plateau: 1 - exp(-rate * experience * temperature ** exponent)."""
    return 1 - exp(-settings.escape * experience * temperature**settings.escape_exponent)


class Pupil:
    """Learning of one configuration: its curve, plateaus and random generator. Plateaus are in Elo, lowest first."""

    def __init__(self, plant: PlantSettings, key: str, rng: Generator) -> None:
        self.curve = plant.curve(key)
        self._plant, self._rng = plant, rng
        lowest, count = plant.plateaus.lowest, int(rng.poisson(plant.plateaus.per_config))
        self.plateaus = sorted(self.curve.ceiling * (lowest + (1 - lowest) * rng.random()) for _ in range(count))

    def train(
        self, base: ModelTruth, shards: Sequence[ShardTruth], learning_rate: float, epochs: int
    ) -> ModelTruth | None:
        """Train ``base``, and return the new model; None if the training diverges."""
        settings, regressions, rng = self._plant.learning, self._plant.regressions, self._rng
        rows = sum(shard.rows for shard in shards)
        flawed = sum(shard.rows * shard.flawed for shard in shards) / max(1, rows)
        pace = learning_rate / settings.learning_rate
        chance = settings.divergence * pace**settings.divergence_exponent * (1 + settings.flawed_divergence * flawed)
        diverged = rng.random() < chance
        learned = self._grow(base, shards, useful_experience(shards, settings, learning_rate, epochs, base.depth))
        harmed = learned.trend - settings.flawed_harm * flawed * max(0.0, learned.trend)
        fresh = (1 - settings.jitter_memory**2) ** 0.5 * self.curve.jitter_elo * min(1.0, pace)
        jitter = settings.jitter_memory * base.jitter + rng.normal() * fresh
        sudden, share = rng.random() < regressions.sudden, rng.uniform(*regressions.sudden_share)
        lost = share * max(0.0, harmed) if sudden else 0.0
        grown = replace(learned, trend=harmed - lost, jitter=jitter, exploit=None, depth=base.depth + 1)
        return None if diverged else grown

    def _grow(self, base: ModelTruth, shards: Sequence[ShardTruth], experience: float) -> ModelTruth:
        """Grow up to the next plateau; on a plateau, try to escape."""
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


class ConfigTruth(NamedTuple):
    """One configuration's learning and troubles.

    ``poor`` are episodes of poor data; ``planted_us`` are the times of planted regressions, soonest first.
    """

    pupil: Pupil
    poor: Sequence[Trouble]
    planted_us: list[int]


class World:
    """True state of the modelled cluster over the simulation.

    Attributes:
        models: true strength of every model.
        shards: true quality of the shards that no training has used yet.
        planted: number of regressions planted so far.
    """

    def __init__(self, plant: PlantSettings, seed: int, end_us: int) -> None:
        self.plant, self.seed = plant, seed
        self.models: dict[ModelHash, ModelTruth] = {}
        self.shards: dict[ShardKey, ShardTruth] = {}
        self.planted = 0
        self._end_us = end_us
        self._configs: dict[str, ConfigTruth] = {}
        self._rngs: dict[tuple[str, ...], Generator] = {}

    def rng(self, *purpose: str) -> Generator:
        """Return the random generator of a purpose, independent of all others."""
        if purpose not in self._rngs:
            self._rngs[purpose] = np.random.default_rng(derive_seed(self.seed, "simulation", *purpose))
        return self._rngs[purpose]

    def config(self, key: str) -> ConfigTruth:
        """Return a configuration's true state; the first call draws it."""
        if key not in self._configs:
            self._configs[key] = ConfigTruth(
                Pupil(self.plant, key, self.rng("pupil", key)),
                draw_troubles(self.plant.troubles.poor_configs, self._end_us, self.rng("poor", key)),
                draw_times(self.plant.regressions.planted_per_day, self._end_us, self.rng("planted", key)),
            )
        return self._configs[key]

    def node(self, worker: str) -> NodeTruth:
        """Draw speed and troubles of the node of ``worker`` (``daemon@node``)."""
        rng, settings = self.rng("play", worker.partition("@")[2]), self.plant.troubles
        speed = float(2.0 ** (rng.normal() * self.plant.cluster.node_speed_sd))
        troubles: dict[NodeTrouble, Sequence[Trouble]] = {
            kind: draw_troubles(getattr(settings, f"{kind}_nodes"), self._end_us, self.rng(kind, worker))
            for kind in get_args(NodeTrouble)
        }
        return NodeTruth(speed, troubles, rng)

    def train(self, key: str, request: TrainingRequested, request_id: EventId, now_us: int) -> ModelHash | None:
        """Train a new model; ``None`` if the training diverges. The shards are removed either way."""
        model = ModelHash(digest("model", key, request_id))
        if request.base_model is None:
            self.models[model] = ModelTruth()
            return model
        base = self.models[request.base_model]
        shards = [self.shards.pop(shard.key) for shard in request.shards]
        child = self.config(key).pupil.train(base, shards, request.learning_rate, request.epochs)
        if child is None:
            return None
        self.models[model] = self._plant_regression(key, child, request.base_model, now_us)
        return model

    def _plant_regression(self, key: str, child: ModelTruth, parent: ModelHash, now_us: int) -> ModelTruth:
        """Plant a regression if one is due. The child gets weaker, except against its parent."""
        settings, due_us = self.plant.regressions, self.config(key).planted_us
        if not due_us or now_us < due_us[0] or child.trend < WORTH_PLANTING * settings.planted_elo:
            return child
        due_us.pop(0)
        self.planted += 1
        exploit = Exploit(parent, settings.planted_elo + settings.planted_exploit_elo)
        return replace(
            child, trend=child.trend - settings.planted_elo, exploit=exploit, planted=(*child.planted, self.planted)
        )

    def difference(self, model: ModelHash, opponent: ModelHash | None) -> float:
        """Return a model's strength minus its opponent's, Elo. ``None`` as the opponent is the random bot."""
        hero = self.models[model]
        if opponent is None:
            return hero.skill
        other = self.models[opponent]
        edge = hero.exploit.elo if hero.exploit and hero.exploit.opponent == opponent else 0.0
        against = other.exploit.elo if other.exploit and other.exploit.opponent == model else 0.0
        return hero.skill - other.skill + edge - against
