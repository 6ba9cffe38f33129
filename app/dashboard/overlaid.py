"""Ratings of two runs over each other, as the shapes of an SVG picture, which needs no script."""

from collections.abc import Iterator, Sequence
from math import ceil, floor, log10
from typing import NamedTuple

from flyball.app.core import ConfigKey
from flyball.app.dashboard.curves import Z95, elo_axis, thin
from flyball.app.replay.run_comparison import HourlyRating, RunComparison

MOST_POINTS = 400
TICKS = 5


class Picture(NamedTuple):
    """The size of a picture, and the edges of its curves, which leave room for the texts of the axes."""

    width: int = 480
    height: int = 220
    left: int = 46
    right: int = 470
    top: int = 10
    bottom: int = 192


PICTURE = Picture()


class Scale(NamedTuple):
    """Maps values between ``low`` and ``high`` to a picture from ``begin`` to ``end``."""

    low: float
    high: float
    begin: float
    end: float

    def at(self, value: float) -> float:
        """Return the place of a value in the picture."""
        share = (value - self.low) / (self.high - self.low)
        return round(self.begin + share * (self.end - self.begin), 1)

    def ticks(self) -> list[tuple[float, str]]:
        """Return places and texts of about ``TICKS`` round values."""
        raw = (self.high - self.low) / TICKS
        power = 10.0 ** floor(log10(raw))
        step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
        digits = max(0, -floor(log10(step)))
        values = (number * step for number in range(ceil(self.low / step), floor(self.high / step) + 1))
        return [(self.at(value), f"{value:,.{digits}f}") for value in values]


class Curve(NamedTuple):
    """One run's ratings: the points of its line and of its 95% band, as SVG writes them. Wide bands leave it."""

    line: str
    band: str


class Overlay(NamedTuple):
    """A picture of one configuration's ratings in two runs; ``None`` in ``curves``: the run has not rated it."""

    key: ConfigKey
    hours: list[tuple[float, str]]
    elo: list[tuple[float, str]]
    curves: tuple[Curve | None, Curve | None]


def overlaid(made: RunComparison) -> Iterator[Overlay]:
    """Iterate over the pictures of all configurations that both runs have and one of them has rated."""
    for key in made.a.ratings:
        both = [_thinned(run.ratings[key]) for run in (made.a, made.b)]
        if every := [rating for ratings in both for rating in ratings]:
            low, high = elo_axis([rating.elo for rating in every], [Z95 * rating.stderr for rating in every])
            x = Scale(0.0, max(rating.hours for rating in every) or 1.0, PICTURE.left, PICTURE.right)
            y = Scale(low, high, PICTURE.bottom, PICTURE.top)
            a, b = (_curve(ratings, x, y) for ratings in both)
            yield Overlay(key, x.ticks(), y.ticks(), (a, b))


def _thinned(ratings: Sequence[HourlyRating]) -> list[HourlyRating]:
    indices = thin([rating.hours for rating in ratings], [rating.elo for rating in ratings], MOST_POINTS)
    return [ratings[index] for index in indices]


def _curve(ratings: Sequence[HourlyRating], x: Scale, y: Scale) -> Curve | None:
    if not ratings:
        return None
    upper = [(rating.hours, rating.elo + Z95 * rating.stderr) for rating in ratings]
    lower = [(rating.hours, rating.elo - Z95 * rating.stderr) for rating in reversed(ratings)]
    line = [(rating.hours, rating.elo) for rating in ratings]
    return Curve(*(" ".join(f"{x.at(hour)},{y.at(elo)}" for hour, elo in points) for points in (line, upper + lower)))
