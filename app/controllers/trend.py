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

from app.core import Elo, EloPerHour
from app.events import Row

SECONDS_PER_HOUR = 3600.0
US = 1_000_000
"""Microseconds in a second."""


class RatingPoint(Row, frozen=True):
    """A rating with its standard error > 0, and its time.

    The time is shifted past times in which the run was off.
    """

    time: datetime
    elo: Elo
    stderr: float


class Slope(NamedTuple):
    """A rate of improvement with its standard error, Elo per hour."""

    velocity: EloPerHour
    stderr: float

    def upper(self, z: float) -> EloPerHour:
        """Return the upper confidence bound for a normal quantile."""
        return EloPerHour(self.velocity + z * self.stderr)

    def lower(self, z: float) -> EloPerHour:
        """Return the lower confidence bound for a normal quantile."""
        return EloPerHour(self.velocity - z * self.stderr)


def pooled(points: Sequence[RatingPoint], new: RatingPoint, spacing_seconds: float) -> tuple[RatingPoint, ...]:
    """Add a point, or pool it with the last one.

    Points are pooled if the last one began less than ``spacing_seconds`` before. A pool keeps the time of its first
    point, so that frequent points cannot extend it. Its rating is the mean weighted by precision.
    """
    if points and (new.time - points[-1].time).total_seconds() < spacing_seconds:
        return (*points[:-1], _pool(points[-1], new))
    return (*points, new)


def _pool(old: RatingPoint, new: RatingPoint) -> RatingPoint:
    a, b = old.stderr**-2, new.stderr**-2
    return RatingPoint(time=old.time, elo=Elo((a * old.elo + b * new.elo) / (a + b)), stderr=(a + b) ** -0.5)


def later(points: Sequence[RatingPoint], by: timedelta) -> tuple[RatingPoint, ...]:
    """Return the points moved later by a time span."""
    return tuple(point.replace(time=point.time + by) for point in points)


def slope_per_hour(points: Sequence[RatingPoint]) -> Slope | None:
    """Return the weighted least-squares slope of ratings over time.

    ``None`` for fewer than three points in time.
    """
    slopes = [slope for _, slope in latest_slopes(points)]
    return slopes[-1] if slopes else None


def latest_slopes(points: Sequence[RatingPoint]) -> Iterator[tuple[RatingPoint, Slope]]:
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
    """Return the slope of ``count`` points from their weighted sums.

    The sums are those of 1, t, elo, t t, t elo and elo elo.
    """
    total, t, elo, tt, t_elo, elo_elo = sums
    spread = tt - t * t / total
    slope = (t_elo - t * elo / total) / spread
    scatter = max(0.0, elo_elo - elo * elo / total - slope * slope * spread)
    inflation = max(1.0, scatter / (count - 2))
    return Slope(EloPerHour(slope), sqrt(inflation / spread))
