"""The slope of a rating over the worker time spent on a configuration, with its standard error.

Progress is measured by worker time, not by the clock, because a configuration that gets fewer workers gains more slowly
but learns no worse. Differences of online Elo say nothing, because at K = 32 it wanders with a standard deviation of 53
Elo. Here evaluations close in time are pooled, each fitted rating is weighted by its precision, and the gain is the
weighted least-squares slope. Its error is the larger of two: the one implied by the ratings' errors, and the one shown
by the scatter about the line.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import sqrt
from typing import NamedTuple

from flyball.app.core import SECONDS_PER_HOUR, Elo, EloPerHour, ModelHash
from flyball.app.events import Row


class RatingPoint(Row, frozen=True):
    """A trained model's rating.

    Attributes:
        time: of the rating.
        elo: the rating.
        stderr: its standard error, above 0.
        model: the model.
        base: the model that was current then.
        root: the root of that model, see ``Champion``.
        spent: worker time spent on the configuration until then, seconds.
    """

    time: datetime
    elo: Elo
    stderr: float
    model: ModelHash | None
    base: ModelHash | None
    root: ModelHash | None = None
    spent: float = 0.0

    def follows(self, earlier: "RatingPoint") -> bool:
        """Return whether training alone lies between two ratings.

        Otherwise an operator's model, whose strength no training brought, has become current in between.
        """
        return self.root == earlier.root


class RatingPool(Row, frozen=True):
    """Ratings close in time, as one: their mean weighted by precision.

    Attributes:
        time: of the first rating, shifted past times in which the run was off.
        last: time of the last rating.
        elo: the mean.
        stderr: its standard error.
        spent: worker time spent on the configuration until the first rating, seconds.
    """

    time: datetime
    last: datetime
    elo: Elo
    stderr: float
    spent: float = 0.0


class Slope(NamedTuple):
    """A rate of improvement.

    Attributes:
        gain: Elo per second of worker time.
        gain_stderr: its standard error.
        spent_per_hour: worker seconds spent per hour of the clock, over the same ratings.
    """

    gain: float
    gain_stderr: float
    spent_per_hour: float

    @property
    def velocity(self) -> EloPerHour:
        """The improvement per hour of the clock."""
        return EloPerHour(self.gain * self.spent_per_hour)

    @property
    def stderr(self) -> float:
        """The standard error of ``velocity``."""
        return self.gain_stderr * self.spent_per_hour

    def upper(self, z: float) -> EloPerHour:
        """Return the upper confidence bound of ``velocity`` for a normal quantile."""
        return EloPerHour(self.velocity + z * self.stderr)


def pooled(pools: Sequence[RatingPool], new: RatingPoint, spacing_seconds: float) -> tuple[RatingPool, ...]:
    """Add a rating to the last pool, or begin another one.

    It is added if the last pool began less than ``spacing_seconds`` before. A pool keeps the time of its first
    rating, so that frequent ratings cannot extend it.
    """
    if pools and (new.time - pools[-1].time).total_seconds() < spacing_seconds:
        return (*pools[:-1], _pool(pools[-1], new))
    return (*pools, RatingPool(time=new.time, last=new.time, elo=new.elo, stderr=new.stderr, spent=new.spent))


def _pool(old: RatingPool, new: RatingPoint) -> RatingPool:
    a, b = old.stderr**-2, new.stderr**-2
    elo = Elo((a * old.elo + b * new.elo) / (a + b))
    return old.replace(last=new.time, elo=elo, stderr=(a + b) ** -0.5)


def later(pools: Sequence[RatingPool], by: timedelta) -> tuple[RatingPool, ...]:
    """Return pools moved later by a time span."""
    return tuple(pool.replace(time=pool.time + by) for pool in pools)


def connected(history: Sequence[RatingPoint]) -> tuple[RatingPoint, ...]:
    """Return the latest ratings of a history that follow from each other by training."""
    first = next((n for n in range(len(history) - 1, 0, -1) if not history[n].follows(history[n - 1])), 0)
    return tuple(history[first:])


def present_slope(pools: Sequence[RatingPool], confidence: float) -> Slope | None:
    """Return the present slope; ``None`` before the third pool.

    Learning curves flatten, so that over any time up to now the slope is at least the present one. Hence each upper
    bound is one of the present slope, too, and the slope with the lowest counts. Its time is short where a curve has
    just flattened, and long where ratings are noisy.
    """
    slopes = (slope for _, slope in latest_slopes(pools))
    return min(slopes, key=lambda slope: slope.gain + confidence * slope.gain_stderr, default=None)


def latest_slopes(pools: Sequence[RatingPool]) -> Iterator[tuple[RatingPool, Slope]]:
    """Yield the slopes of ever more of the latest pools.

    The first slope is that of the latest three pools between which worker time was spent, the next that of the latest
    four, and so on. Each slope comes with its first pool.
    """
    if not pools:
        return
    last, spent = pools[-1], set[float]()
    sums: tuple[float, ...] = (0.0,) * 6
    for count, pool in enumerate(reversed(pools), start=1):
        seconds, elo, weight = pool.spent - last.spent, pool.elo - last.elo, pool.stderr**-2
        terms = (1.0, seconds, elo, seconds * seconds, seconds * elo, elo * elo)
        sums = tuple(total + weight * term for total, term in zip(sums, terms, strict=True))
        spent.add(pool.spent)
        hours = (last.time - pool.time).total_seconds() / SECONDS_PER_HOUR
        if len(spent) >= 3 and hours > 0:
            gain, stderr = _gain(sums, count)
            yield pool, Slope(gain, stderr, -seconds / hours)


def _gain(sums: Sequence[float], count: int) -> tuple[float, float]:
    """Return slope and error of ``count`` points from their weighted sums of 1, t, elo, t t, t elo and elo elo."""
    total, t, elo, tt, t_elo, elo_elo = sums
    spread = tt - t * t / total
    slope = (t_elo - t * elo / total) / spread
    scatter = max(0.0, elo_elo - elo * elo / total - slope * slope * spread)
    inflation = max(1.0, scatter / (count - 2))
    return slope, sqrt(inflation / spread)
