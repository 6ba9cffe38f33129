"""The figure of a comparison: strength over time, and the gain of every arm."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from app.simulation.comparing import ArmSummary, Interval
from app.simulation.results import HOURS_PER_DAY, RunResult
from app.telemetry import drawn

if TYPE_CHECKING:
    from matplotlib.axes import Axes

BAND = (2.5, 97.5)
INCHES = (11.0, 4.5)


def plot(results: Sequence[RunResult], summaries: Sequence[ArmSummary], path: Path) -> None:
    """Draw a comparison into a file; its suffix says how (.svg, .png, .pdf).

    Raises ``NoPlots``, or ``UnusableFile`` when the file cannot be written.
    """
    with drawn(path, INCHES) as figure:
        curves, bars = figure.subplots(1, 2)
        for summary in summaries[:2]:
            _curve(curves, summary.arm, [result.total for result in results if result.arm == summary.arm])
        several = all(summary.seeds > 1 for summary in summaries)
        curves.set(xlabel="days", ylabel="strength apart from models' luck, Elo")
        curves.set_title("all current models" + ", mean and 95% of seeds" * several)
        curves.legend()
        _bars(bars, summaries, several=several)


def _curve(axes: "Axes", arm: str, totals: Sequence[Sequence[float]]) -> None:
    values = np.array([total[: min(map(len, totals))] for total in totals])
    days = np.arange(1, values.shape[1] + 1) / HOURS_PER_DAY
    (line,) = axes.plot(days, values.mean(axis=0), label=arm)
    if len(totals) > 1:
        lower, upper = np.percentile(values, BAND, axis=0)
        axes.fill_between(days, lower, upper, alpha=0.2, color=line.get_color())


def _bars(axes: "Axes", summaries: Sequence[ArmSummary], *, several: bool) -> None:
    names = [summary.arm for summary in summaries]
    means = [summary.gain.mean for summary in summaries]
    reach = np.array([_reach(summary.gain) for summary in summaries]).T if several else None
    axes.barh(names, means, xerr=reach, capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="gain in strength, models' luck included, Elo", title="total gain" + ", 95% intervals" * several)


def _reach(interval: Interval) -> tuple[float, float]:
    """Return how far an interval reaches below and above its mean."""
    if interval.lower is None or interval.upper is None:
        return 0.0, 0.0
    return max(0.0, interval.mean - interval.lower), max(0.0, interval.upper - interval.mean)
