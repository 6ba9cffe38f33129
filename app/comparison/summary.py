"""Figures of a study, by arm.

They are each arm's strength over seeds, its differences from other arms, and means of its runs' figures.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import chain
from math import sqrt

import numpy as np
from pydantic import Field

from flyball.app.comparison.run import RunFigures
from flyball.app.config import FrozenModel
from flyball.app.core import student
from flyball.app.simulation import ALL, NONE, Interval

Strengths = Mapping[str, Mapping[str, float]]
"""Each player's strength by configuration, Elo over the random bot."""


class Strength(FrozenModel):
    """Strength of an arm's champions, Elo, each with its interval over seeds.

    Attributes:
        elo: over the random bot.
        over_none: over the champions of the arm without controllers; ``None`` if that did not run.
        over_all: over those of the arm with all controllers.
    """

    elo: Interval
    over_none: Interval | None
    over_all: Interval | None


class ArmFigures(FrozenModel):
    """Figures of one arm.

    Attributes:
        strength: means over configurations.
        configs: by configuration.
        means: figures of its runs, means over seeds, sums over configurations.
        used, overhead: see ``RunFigures``; means over seeds.
    """

    arm: str
    seeds: int = Field(ge=1)
    strength: Strength
    configs: dict[str, Strength]
    means: dict[str, float]
    used: dict[str, float]
    overhead: float


def interval(values: Sequence[float]) -> Interval:
    """Return the mean of values of several seeds with Student's 95% interval, unbounded (None) for one."""
    mean, free = float(np.mean(values)), len(values) - 1
    if not free:
        return Interval(mean=mean, lower=None, upper=None)
    reach, _ = student(mean, float(np.std(values, ddof=1)) / sqrt(free + 1), free)
    return Interval(mean=mean, lower=mean - reach, upper=mean + reach)


def summarise(runs: Sequence[RunFigures], strengths: Strengths) -> list[ArmFigures]:
    """Return the figures of each arm, in order of first runs."""
    arms = dict.fromkeys(run.arm for run in runs)
    by_arm = {arm: {run.seed: run for run in runs if run.arm == arm} for arm in arms}
    elo = {  # by arm and seed, then by configuration
        arm: {seed: _elo(run, strengths) for seed, run in by_seed.items()} for arm, by_seed in by_arm.items()
    }
    return [
        ArmFigures(
            arm=arm,
            seeds=len(by_seed),
            strength=_strength(arm, elo, list(strengths)),
            configs={key: _strength(arm, elo, [key]) for key in strengths},
            means=_mean([_counts(run) for run in by_seed.values()]),
            used=_mean([run.used for run in by_seed.values()]),
            overhead=float(np.mean([run.overhead for run in by_seed.values()])),
        )
        for arm, by_seed in by_arm.items()
    ]


def _elo(run: RunFigures, strengths: Strengths) -> dict[str, float]:
    return {key: elo[run.configs[key].champion or ""] for key, elo in strengths.items()}


def _strength(arm: str, elo: Mapping[str, Mapping[int, Mapping[str, float]]], keys: Sequence[str]) -> Strength:
    """Return an arm's mean strength over configurations; differences are paired by seed."""
    mean = {
        name: {seed: float(np.mean([by_key[key] for key in keys])) for seed, by_key in by_seed.items()}
        for name, by_seed in elo.items()
    }

    def over(other: str) -> Interval | None:
        seeds = sorted(mean[arm].keys() & mean.get(other, {}).keys())
        return interval([mean[arm][seed] - mean[other][seed] for seed in seeds]) if seeds and other != arm else None

    return Strength(elo=interval(list(mean[arm].values())), over_none=over(NONE), over_all=over(ALL))


def _counts(run: RunFigures) -> dict[str, float]:
    """Return a run's figures, summed over configurations."""
    counts = Counter(run.counts)
    for config in run.configs.values():
        counts.update({**config.counts, "games": config.games, "rows": config.rows})
    return dict(counts)


def _mean(runs: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Return each figure's mean over runs; missing figures count as 0."""
    return {name: float(np.mean([run.get(name, 0.0) for run in runs])) for name in dict.fromkeys(chain(*runs))}
