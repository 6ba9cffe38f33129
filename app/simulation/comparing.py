"""Compare arms over several seeds, with the same troubles and learning curves, to pair the results."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from pydantic import Field

from flyball.app.config import FrozenModel, RunSettings
from flyball.app.engine import JsonObject, Report, run_coroutine, spread
from flyball.app.simulation.arms import NONE, arms_of
from flyball.app.simulation.scoreboard import HOURS_PER_DAY, RunResult, Scoreboard, run_result
from flyball.app.simulation.settings import PlantSettings
from flyball.app.simulation.simulation import Simulation
from flyball.app.telemetry import drawn

RESAMPLES = 4000
PERCENTILES_95 = (2.5, 97.5)


class SimulationTask(FrozenModel):
    """One run to simulate: an arm, a seed, and the settings."""

    settings: RunSettings
    plant: PlantSettings
    arm: str
    seed: int
    seconds: float


class Interval(FrozenModel):
    """A mean over seeds with its 95% interval. The bounds need two seeds; they are None for one."""

    mean: float
    lower: float | None
    upper: float | None


class ArmSummary(FrozenModel):
    """Figures of one arm over all seeds.

    Attributes:
        gain: gain in strength, summed over configurations, Elo; includes the models' luck.
        ratio: ``gain`` / that of the arm without controllers, paired by seed; ``None`` if that did not run or gain.
        false_stalls: configuration-days with a false stall alarm / healthy ones; ``None`` without healthy ones. Arms
            without the controller that declares stalls have no alarms.
        noticed: share of planted regressions that raised an alarm, after ``games_to_notice`` rated games on average.
        regained: share of planted regressions that ended unnoticed, after ``games_to_regain`` rated games on average.

    ``events`` and ``trainings`` are means; other counts are sums. Floors are minima, ``rollback_seconds`` a maximum.
    """

    arm: str
    seeds: int = Field(ge=1)
    events: float
    trainings: float
    gain: Interval
    ratio: Interval | None
    stall_alarms: int
    healthy_days: float
    false_stalls: float | None
    planted: int
    noticed: float | None
    games_to_notice: float | None
    regained: float | None
    games_to_regain: float | None
    false_regressions: int
    rated_games: int
    rollback_seconds: float | None
    daily_floor: float | None
    floor: float | None


def run_task(task: SimulationTask) -> RunResult:
    """Simulate one run, and return its figures."""
    simulation = Simulation(task.settings, task.plant, arms_of(task.settings)[task.arm], task.seed, task.seconds)
    scoreboard = Scoreboard(simulation.world, [config.key for config in task.settings.configs])
    simulation.listeners.append(scoreboard.observe)
    simulation.run()
    return run_result(task.arm, simulation.settings, simulation.broker.head, scoreboard, simulation.failures)


def run_job(spec: JsonObject, _: Report) -> JsonObject:
    """Simulate one run as a job of an engine; see ``run_task``."""
    return run_task(SimulationTask.model_validate(spec)).model_dump(mode="json")


def run_tasks(tasks: Sequence[SimulationTask], jobs: int, on_result: Callable[[RunResult], None]) -> list[RunResult]:
    """Simulate ``jobs`` runs at once; a failure ends the others.

    Returns the results in the order of the tasks; ``on_result`` receives each when it is finished.
    """
    if jobs == 1 or len(tasks) == 1:
        results = []
        for task in tasks:
            results.append(run_task(task))
            on_result(results[-1])
        return results
    function, specs = f"{run_job.__module__}:{run_job.__name__}", [task.model_dump(mode="json") for task in tasks]
    work = spread(function, specs, jobs, lambda result: on_result(RunResult.model_validate(result)))
    return [RunResult.model_validate(result) for result in run_coroutine(work)]


def summarise(results: Sequence[RunResult]) -> list[ArmSummary]:
    """Summarise each arm, in the order of the arms' first results."""
    arms = dict.fromkeys(result.arm for result in results)
    by_arm = {arm: {r.seed: r for r in results if r.arm == arm} for arm in arms}
    return [_summary(runs, by_arm.get(NONE)) for runs in by_arm.values()]


def _summary(runs: Mapping[int, RunResult], baseline: Mapping[int, RunResult] | None) -> ArmSummary:
    every = list(runs.values())
    stalls, regressions = [r.stalls for r in every], [r.regressions for r in every]
    healthy, planted = sum(s.healthy_days for s in stalls), sum(r.planted for r in regressions)
    noticed, regained = sum(r.noticed for r in regressions), sum(r.regained for r in regressions)
    gains = [r.total_gain for r in every]
    return ArmSummary(
        arm=every[0].arm,
        seeds=len(every),
        events=float(np.mean([r.events for r in every])),
        trainings=float(np.mean([r.trainings for r in every])),
        gain=bootstrap(gains, [1.0] * len(gains)),
        ratio=_ratio(runs, baseline) if baseline else None,
        stall_alarms=sum(s.alarms for s in stalls),
        healthy_days=healthy,
        false_stalls=sum(s.false_days for s in stalls) / healthy if healthy else None,
        planted=planted,
        noticed=noticed / planted if planted else None,
        games_to_notice=sum(r.games for r in regressions) / noticed if noticed else None,
        regained=regained / planted if planted else None,
        games_to_regain=sum(r.regained_games for r in regressions) / regained if regained else None,
        false_regressions=sum(r.false_alarms for r in regressions),
        rated_games=sum(r.rated_games for r in regressions),
        rollback_seconds=max(_not_none(r.rollback_seconds for r in regressions), default=None),
        daily_floor=min(_not_none(r.daily_floor for r in every), default=None),
        floor=min(_not_none(r.floor for r in every), default=None),
    )


def _not_none(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]


def _ratio(runs: Mapping[int, RunResult], baseline: Mapping[int, RunResult]) -> Interval | None:
    seeds = sorted(runs.keys() & baseline.keys())
    below = [baseline[seed].total_gain for seed in seeds]
    return bootstrap([runs[seed].total_gain for seed in seeds], below) if sum(below) > 0 else None


def bootstrap(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Return sum(above) / sum(below) with its 95% interval.

    The interval is the percentile interval from resampled pairs (Efron 1979). It needs two pairs.
    """
    pairs = np.array([above, below])
    mean = float(pairs[0].sum() / pairs[1].sum())
    if len(above) < 2:
        return Interval(mean=mean, lower=None, upper=None)
    drawn = np.random.default_rng(0).integers(0, len(above), size=(RESAMPLES, len(above)))
    sums = pairs[:, drawn].sum(axis=2)
    lower, upper = np.percentile(sums[0] / sums[1], PERCENTILES_95)
    return Interval(mean=mean, lower=float(lower), upper=float(upper))


if TYPE_CHECKING:
    from matplotlib.axes import Axes

INCHES = (11.0, 4.5)


def plot(results: Sequence[RunResult], summaries: Sequence[ArmSummary], path: Path) -> None:
    """Plot a comparison into a file.

    The file's suffix decides its format (.svg, .png, .pdf). Raises ``NoPlots``, or ``UnusableFile`` when the file
    cannot be written.
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
        lower, upper = np.percentile(values, PERCENTILES_95, axis=0)
        axes.fill_between(days, lower, upper, alpha=0.2, color=line.get_color())


def _bars(axes: "Axes", summaries: Sequence[ArmSummary], *, several: bool) -> None:
    gains = [summary.gain for summary in summaries]
    reach = [(g.mean - g.lower, g.upper - g.mean) for g in gains if g.lower is not None and g.upper is not None]
    errors = np.maximum(0.0, reach).T if several else None
    axes.barh([summary.arm for summary in summaries], [gain.mean for gain in gains], xerr=errors, capsize=3)
    axes.invert_yaxis()
    axes.set(xlabel="gain in strength, models' luck included, Elo", title="total gain" + ", 95% intervals" * several)
