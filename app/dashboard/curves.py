"""Curves of a configuration, thinned for drawing. They are the ratings with their marks, and the training metrics."""

from array import array
from collections.abc import Collection, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import SECOND_US
from flyball.app.dashboard.marks import ConfigMarks
from flyball.app.events import EvaluationCompleted, Event, Payload
from flyball.app.telemetry.curves import Curves, points

Z95 = 1.96
"""Standard errors on each side of a 95% interval."""

BAND_SHARE, BAND_ROOM = 0.25, 100.0
"""Most that bands widen the axis on each side: a share of the ratings' span, or Elo if that is more."""

CURVES_READ: frozenset[type[Payload]] = Curves.reads
"""Payload types that curves are made of."""


def thin(x: Sequence[float], y: Sequence[float], most: int) -> NDArray[np.int64]:
    """Return the indices of points that keep a curve's shape.

    At most ``most`` indices, the first and the last point included. Of each bucket, the kept point is the one that
    makes the largest triangle with the point before and the next bucket's mean. Source: largest triangle three buckets,
    S. Steinarsson, "Downsampling Time Series for Visual Representation" (2013).
    """
    count = len(x)
    if count <= most or most < 3:
        return np.arange(count)[: max(0, most)] if count > most else np.arange(count)
    px, py = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    edges = np.linspace(1, count - 1, most - 1).astype(np.int64)
    indices = np.empty(most, dtype=np.int64)
    indices[0], indices[-1], last = 0, count - 1, 0
    for number in range(most - 2):
        begin, end = edges[number], max(edges[number] + 1, edges[number + 1])
        after = slice(end, edges[number + 2]) if number < most - 3 else slice(count - 1, count)
        mean_x, mean_y = px[after].mean(), py[after].mean()
        area = (px[last] - mean_x) * (py[begin:end] - py[last]) - (px[last] - px[begin:end]) * (mean_y - py[last])
        last = begin + int(np.argmax(np.abs(area)))
        indices[number + 1] = last
    return indices


def elo_axis(elo: Collection[float], errors: Collection[float]) -> tuple[float, float]:
    """Return the ends of an axis of Elo: all ratings with their 95% bands, cut off where these would flatten the lines.

    On each side, bands widen the axis by at most ``BAND_SHARE`` of the ratings' span, or by ``BAND_ROOM`` Elo if that
    is more. The rest of a wider band is cut off at the edge. Without ratings the axis is from 0 to 1.

    Args:
        elo: the ratings.
        errors: half the widths of their bands.
    """
    if not len(elo):
        return 0.0, 1.0
    low, high = min(elo), max(elo)
    room = max(BAND_ROOM, BAND_SHARE * (high - low))
    lower = min(rating - error for rating, error in zip(elo, errors, strict=True))
    upper = max(rating + error for rating, error in zip(elo, errors, strict=True))
    return max(lower, low - room), max(min(upper, high + room), low + 1.0)


class Series:
    """Points of a curve in order of recording."""

    __slots__ = ("steps", "times", "values")

    def __init__(self) -> None:
        self.times, self.steps, self.values = array("d"), array("d"), array("d")

    def add(self, time: float, step: float, value: float) -> None:
        """Add a point: seconds since 1970, training step, value."""
        self.times.append(time)
        self.steps.append(step)
        self.values.append(value)


class ConfigCurves:
    """All curves of one configuration."""

    def __init__(self) -> None:
        self.elo, self.errors = Series(), array("d")
        self.marks = ConfigMarks()
        self.metrics: dict[str, Series] = {}

    def take(self, event: Event[Any]) -> None:
        """Fold an event of a type in ``CURVES_READ``."""
        data, time = event.data, event.recorded_us / SECOND_US
        if isinstance(data, EvaluationCompleted) and data.purpose == "rating":
            self.elo.add(time, data.step, data.elo)
            self.errors.append(data.elo_stderr)
        for tag, value, step in points(data):
            self.metrics.setdefault(tag, Series()).add(time, step, value)

    def ratings(self, most: int) -> dict[str, Any]:
        """Return the rating curve with its marks and bands, for JSON.

        The curve has times in seconds since 1970, training steps, Elo, the bounds of its 95% interval, and the ends of
        the axis.
        """
        indices = thin(self.elo.times, self.elo.values, most)
        times, elo = (np.asarray(column)[indices] for column in (self.elo.times, self.elo.values))
        error = Z95 * np.asarray(self.errors)[indices]
        return {
            "x": [round(float(time), 1) for time in times],
            "step": [int(self.elo.steps[index]) for index in indices],
            "elo": _rounded(elo),
            "low": _rounded(elo - error),
            "high": _rounded(elo + error),
            "axis": _rounded(elo_axis(elo, error)),
        } | self.marks.to_json()

    def metric_curves(self, most: int) -> dict[str, dict[str, list[float]]]:
        """Return the curves of training and evaluation for JSON, by tag. The x values are training steps."""
        curves = {}
        for tag, series in sorted(self.metrics.items()):
            indices = thin(series.steps, series.values, most)
            curves[tag] = {
                "x": [series.steps[index] for index in indices],
                "y": [float(f"{series.values[index]:.6g}") for index in indices],
            }
        return curves


def _rounded(values: Iterable[float]) -> list[float]:
    return [round(float(value), 1) for value in values]
