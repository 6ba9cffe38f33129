"""The slope of a rating over time, with its standard error.

Differences of online Elo say nothing, because at K = 32 it wanders with a standard deviation of 53 Elo. Here
evaluations close in time are pooled, each fitted rating is weighted by its precision, and the velocity is the weighted
least-squares slope. Its error is the larger of two: the one implied by the ratings' errors, and the one shown by the
scatter about the line.
"""

from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from math import sqrt
from typing import NamedTuple

from app.core import Elo, EloPerHour, ModelHash
from app.events import Row

SECONDS_PER_HOUR = 3600.0


class RatingPoint(Row, frozen=True):
    """A trained model's rating, with its standard error > 0; ``base``, of this ``root``, was current then."""

    time: datetime
    elo: Elo
    stderr: float
    model: ModelHash | None
    base: ModelHash | None
    root: ModelHash | None = None

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
    """

    time: datetime
    last: datetime
    elo: Elo
    stderr: float


class Slope(NamedTuple):
    """A rate of improvement with its standard error, Elo per hour."""

    velocity: EloPerHour
    stderr: float

    def upper(self, z: float) -> EloPerHour:
        """Return the upper confidence bound for a normal quantile."""
        return EloPerHour(self.velocity + z * self.stderr)


def pooled(pools: Sequence[RatingPool], new: RatingPoint, spacing_seconds: float) -> tuple[RatingPool, ...]:
    """Add a rating to the last pool, or begin another one.

    It is added if the last pool began less than ``spacing_seconds`` before. A pool keeps the time of its first
    rating, so that frequent ratings cannot extend it.
    """
    if pools and (new.time - pools[-1].time).total_seconds() < spacing_seconds:
        return (*pools[:-1], _pool(pools[-1], new))
    return (*pools, RatingPool(time=new.time, last=new.time, elo=new.elo, stderr=new.stderr))


def _pool(old: RatingPool, new: RatingPoint) -> RatingPool:
    a, b = old.stderr**-2, new.stderr**-2
    elo = Elo((a * old.elo + b * new.elo) / (a + b))
    return RatingPool(time=old.time, last=new.time, elo=elo, stderr=(a + b) ** -0.5)


def later(pools: Sequence[RatingPool], by: timedelta) -> tuple[RatingPool, ...]:
    """Return pools moved later by a time span."""
    return tuple(pool.replace(time=pool.time + by) for pool in pools)


def connected(history: Sequence[RatingPoint]) -> tuple[RatingPoint, ...]:
    """Return the latest ratings of a history that follow from each other by training."""
    first = next((n for n in range(len(history) - 1, 0, -1) if not history[n].follows(history[n - 1])), 0)
    return tuple(history[first:])


def slope_per_hour(points: Sequence[RatingPool]) -> Slope | None:
    """Return the weighted least-squares slope of ratings over time; ``None`` for fewer than three points in time."""
    slopes = [slope for _, slope in latest_slopes(points)]
    return slopes[-1] if slopes else None


def latest_slopes(points: Sequence[RatingPool]) -> Iterator[tuple[RatingPool, Slope]]:
    """Yield the slopes of ever more of the latest points.

    The first slope is that of the latest three points in time, the next that of the latest four, and so on. Each slope
    comes with its first point.
    """
    if not points:
        return
    last, times = points[-1], set[datetime]()
    sums: tuple[float, ...] = (0.0,) * 6
    for count, point in enumerate(reversed(points), start=1):
        hours = (point.time - last.time).total_seconds() / SECONDS_PER_HOUR
        elo, weight = point.elo - last.elo, point.stderr**-2
        terms = (1.0, hours, elo, hours * hours, hours * elo, elo * elo)
        sums = tuple(total + weight * term for total, term in zip(sums, terms, strict=True))
        times.add(point.time)
        if len(times) >= 3:
            yield point, _slope(sums, count)


def _slope(sums: Sequence[float], count: int) -> Slope:
    """Return the slope of ``count`` points from their weighted sums of 1, t, elo, t t, t elo and elo elo."""
    total, t, elo, tt, t_elo, elo_elo = sums
    spread = tt - t * t / total
    slope = (t_elo - t * elo / total) / spread
    scatter = max(0.0, elo_elo - elo * elo / total - slope * slope * spread)
    inflation = max(1.0, scatter / (count - 2))
    return Slope(EloPerHour(slope), sqrt(inflation / spread))
