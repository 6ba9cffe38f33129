"""``flyball simulate``: compare arms with and without controllers on a modelled cluster."""

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

import click

from app.cli.options import FILE, Place, figure_option, json_option, placed
from app.cli.output import note, show_table, write_json
from app.config import GAMES, nest
from app.config.loading import parse
from app.core import ConfigKey
from app.simulation import (
    ALL,
    ARMS,
    NONE,
    ArmSummary,
    Interval,
    RunResult,
    Task,
    load_plant,
    plot,
    run_tasks,
    simulated,
    summarise,
)

SECONDS_PER_DAY = 86_400
UNKNOWN = "-"
COLUMNS_EXPLAINED = """\b
Columns; "-" is what cannot be told, [low, high] a 95% interval over seeds:
gain, Elo       strength gained in all configurations, models' luck included
of none's       that gain over the gain of the arm without controllers
trainings       of a run
false stalls    share of days with healthy growth when a stall was declared
regressions     noticed, of those planted; "- of 0": none was planted
after games     rated games until a regression was noticed
regained first  planted ones that were over, mostly as what was lost had been
                learned again, before they were noticed; after rated games
false alarms    of regressions, and in how many rated games
rollback        longest time from the evidence to the decision
floor           least share of workers' time of any configuration, at all and
                on a day; 1 is as much as the others have

The curve of --plot, total in --json, is strength apart from models' luck.
"""
COLUMNS = (
    "arm",
    "gain, Elo",
    "of none's",
    "trainings",
    "false stalls",
    "regressions noticed",
    "after games",
    "regained first",
    "false alarms",
    "rollback",
    "floor",
)


@click.command(epilog=COLUMNS_EXPLAINED)
@click.option("--nodes", default=36, show_default=True, type=click.IntRange(1), help="Nodes that play.")
@click.option("--configs", default="all", show_default=True, metavar="KEYS", help="Configurations, by commas.")
@click.option("--days", default=7.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Virtual time.")
@click.option("--seeds", default=1, show_default=True, type=click.IntRange(1), help="Runs of each arm.")
@click.option("--first-seed", default=0, show_default=True, type=click.IntRange(0), help="Seed of the first run.")
@click.option("--ablate", is_flag=True, help="Leave out each controller in turn, too.")
@click.option("--plant", "plant_file", type=FILE, help="Your own plant.")
@click.option("--set", "assignments", multiple=True, metavar="KEY=VALUE", help="Change a setting; repeatable.")
@figure_option("Draw a figure")
@click.option("--jobs", default=1, show_default=True, type=click.IntRange(1), help="Runs at once.")
@json_option
@placed
def simulate(
    place: Place,
    *,
    nodes: int,
    configs: str,
    days: float,
    seeds: int,
    first_seed: int,
    ablate: bool,
    plant_file: Path | None,
    assignments: tuple[str, ...],
    figure: Path | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Run all controllers, and none, on a modelled cluster; compare what strength comes of it.

    The controllers are the real ones; the cluster, its troubles and how strength grows are modelled
    (app/simulation/plant.toml; --plant takes your own). The same seed gives the same events. Settings are those of the
    run folder, with a cluster's pace.
    """
    loaded = place.load(nest(simulated(nodes, _keys(configs)) | parse(assignments)))
    settings, plant = loaded.run, load_plant(plant_file, loaded.games)
    arms = tuple(ARMS) if ablate else (ALL, NONE)
    tasks = [
        Task(settings=settings, plant=plant, arm=arm, seed=seed, seconds=days * SECONDS_PER_DAY)
        for seed in range(first_seed, first_seed + seeds)
        for arm in arms
    ]
    results = _run(tasks, jobs)
    summaries = summarise(results)
    if as_json:
        runs = [result.model_dump(mode="json") for result in results]
        write_json({"arms": [summary.model_dump(mode="json") for summary in summaries], "runs": runs})
    else:
        show_table(COLUMNS, map(_cells, summaries), left=COLUMNS[:1])
    if figure:  # last: if it fails, the results of hours have been written
        plot(results, summaries, figure)


def _keys(configs: str) -> tuple[ConfigKey, ...]:
    """Return the configurations in a fixed order, so that the same ones give the same run."""
    if configs == "all":
        return tuple(GAMES)
    named = [ConfigKey(key.strip()) for key in configs.split(",") if key.strip()]
    if not named:
        raise click.UsageError("--configs names no configuration: give at least one, or all.")
    if len(set(named)) < len(named):
        raise click.UsageError(f"--configs names a configuration twice: {configs}.")
    return (*(key for key in GAMES if key in named), *sorted(set(named) - GAMES.keys()))


def _run(tasks: Sequence[Task], jobs: int) -> list[RunResult]:
    """Do all runs, and say how it goes."""
    began, results = perf_counter(), list[RunResult]()

    def take(result: RunResult) -> None:
        results.append(result)
        seconds = perf_counter() - began
        note(
            f"{len(results)}/{len(tasks)}: seed {result.seed}, {result.arm}: {result.total_gain:+z,.0f} Elo, "
            f"{result.events:,} events, {seconds:.0f} s"
        )
        for unfolded in result.unfolded:
            note(f"Not folded: {unfolded}")

    run_tasks(tasks, jobs, take)
    return results


def _cells(summary: ArmSummary) -> tuple[str, ...]:
    return (
        summary.arm,
        _interval(summary.gain, "z,.0f"),
        UNKNOWN if summary.ratio is None else _interval(summary.ratio, "z.2f"),
        f"{summary.trainings:,.0f}",
        _figure(summary.false_stalls, ".1%") if summary.stall_alarms else UNKNOWN,
        f"{_figure(summary.noticed, '.0%')} of {summary.planted}",
        _figure(summary.games_to_notice, ",.0f"),
        f"{_figure(summary.regained, '.0%')} after {_figure(summary.games_to_regain, ',.0f')}",
        f"{summary.false_regressions} in {summary.rated_games:,} games",
        _figure(summary.rollback_seconds, ".3f", " s"),
        f"{_figure(summary.floor, '.2f')} ({_figure(summary.daily_floor, '.2f')} on a day)",
    )


def _figure(value: float | None, form: str, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:{form}}{unit}"


def _interval(interval: Interval, form: str) -> str:
    if interval.lower is None:
        return f"{interval.mean:{form}}"
    return f"{interval.mean:{form}} [{interval.lower:{form}}, {interval.upper:{form}}]"
