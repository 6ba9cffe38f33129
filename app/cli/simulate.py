"""``flyball simulate``: compare arms with and without controllers on a modelled cluster."""

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from app.api.runs import Place
from app.api.simulation import ordered, simulate_arms
from app.cli.options import FILE, figure_option, json_option, placed, set_option
from app.cli.output import interval_text, note, show_table, write_json
from app.config import GAMES, nest
from app.config.loading import parse
from app.core import ConfigKey
from app.simulation import ArmSummary, plot, simulated
from app.status.summary import UNKNOWN

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


def _figure(value: float | None, form: str, unit: str = "") -> str:
    return UNKNOWN if value is None else f"{value:{form}}{unit}"


COLUMNS: Mapping[str, Callable[[ArmSummary], str]] = {
    "arm": lambda arm: arm.arm,
    "gain, Elo": lambda arm: interval_text(arm.gain, "z,.0f"),
    "of none's": lambda arm: interval_text(arm.ratio, "z.2f"),
    "trainings": lambda arm: f"{arm.trainings:,.0f}",
    "false stalls": lambda arm: _figure(arm.false_stalls, ".1%") if arm.stall_alarms else UNKNOWN,
    "regressions noticed": lambda arm: f"{_figure(arm.noticed, '.0%')} of {arm.planted}",
    "after games": lambda arm: _figure(arm.games_to_notice, ",.0f"),
    "regained first": lambda arm: f"{_figure(arm.regained, '.0%')} after {_figure(arm.games_to_regain, ',.0f')}",
    "false alarms": lambda arm: f"{arm.false_regressions} in {arm.rated_games:,} games",
    "rollback": lambda arm: _figure(arm.rollback_seconds, ".3f", " s"),
    "floor": lambda arm: f"{_figure(arm.floor, '.2f')} ({_figure(arm.daily_floor, '.2f')} on a day)",
}
"""Functions that render the cells of an arm's row, by column."""


@click.command(epilog=COLUMNS_EXPLAINED)
@click.option("--nodes", default=36, type=click.IntRange(1), help="Nodes that play.")
@click.option("--configs", default="all", metavar="KEYS", help="Configurations, by commas.")
@click.option("--days", default=7.0, type=click.FloatRange(0, min_open=True), help="Virtual time.")
@click.option("--seeds", default=1, type=click.IntRange(1), help="Runs of each arm.")
@click.option("--first-seed", default=0, type=click.IntRange(0), help="Seed of the first run.")
@click.option("--ablate", is_flag=True, help="Leave out each controller in turn, too.")
@click.option("--plant", "plant_file", type=FILE, help="Your own plant.")
@set_option
@figure_option("Draw a figure")
@click.option("--jobs", default=1, type=click.IntRange(1), help="Runs at once.")
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
    run folder, with a cluster's pace. A controller of your own takes part, and is also left out in an arm of its own.
    """
    loaded = place.load(nest(simulated(nodes, _keys(configs)) | parse(assignments)))
    numbers = range(first_seed, first_seed + seeds)
    result = simulate_arms(loaded, numbers, days=days, plant=plant_file, jobs=jobs, ablate=ablate, say=note)
    if as_json:
        write_json(result.model_dump(mode="json"))
    else:
        rows = [[cell(summary) for cell in COLUMNS.values()] for summary in result.arms]
        show_table(list(COLUMNS), rows, left={"arm"})
    if figure:  # last, so that its failure cannot lose the results of hours
        plot(result.runs, result.arms, figure)


def _keys(configs: str) -> tuple[ConfigKey, ...]:
    if configs == "all":
        return tuple(GAMES)
    return ordered([key.strip() for key in configs.split(",") if key.strip()])
