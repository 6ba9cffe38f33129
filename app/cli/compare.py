"""``flyball compare``: measure what controllers are worth on real games. All runs get equal processor time."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeVar

import click

from flyball.app.api.comparison import ComparisonRequest, compare_arms
from flyball.app.api.runs import RunLocation
from flyball.app.api.simulation import ordered_keys
from flyball.app.cli.options import FOLDER, json_option, run_options, set_option, workers_option
from flyball.app.cli.output import interval_text, note, show_table, write_json
from flyball.app.comparison.fitting import Prediction
from flyball.app.comparison.summary import ArmFigures, Strength
from flyball.app.comparison.troubles import TROUBLES
from flyball.app.core import ConfigKey

T = TypeVar("T")

COLUMNS_EXPLAINED = """\b
Columns; [low, high] is Student's 95% interval over seeds:
Elo             of the final champions over the random bot, from one round robin
                of all of them; the mean of the configurations
v. none, v. all that less the same seed's of these arms
rows            played, in all configurations of a run
self-play, training, evaluation
                share of the processor's time that these jobs had; busy: all jobs
overhead        processor time of the daemons themselves, which is not counted
"""

TROUBLES_EXPLAINED = "\b\nTroubles:\n" + "\n".join(f"{name:<21} {entry.purpose}" for name, entry in TROUBLES.items())

COUNTS = ("trainings", "promotions", "rejections", "rollbacks", "boosts", "quarantines")

STRENGTH: Mapping[str, Callable[[Strength], str]] = {
    "Elo": lambda strength: interval_text(strength.elo, "z,.0f"),
    "v. none": lambda strength: interval_text(strength.over_none, "+z,.0f"),
    "v. all": lambda strength: interval_text(strength.over_all, "+z,.0f"),
}
"""Functions that render the cells of an arm's strength, by column."""

RUNS: Mapping[str, Callable[[ArmFigures], str]] = {
    "seeds": lambda arm: str(arm.seeds),
    "rows": lambda arm: f"{arm.means['rows']:,.0f}",
    **{name: lambda arm, name=name: f"{arm.means[name]:,.1f}" for name in COUNTS},  # type: ignore[misc]
    "self-play": lambda arm: f"{arm.used.get('selfplay_worker', 0):.0%}",
    "training": lambda arm: f"{arm.used.get('training', 0):.0%}",
    "evaluation": lambda arm: f"{arm.used.get('evaluation', 0):.0%}",
    "busy": lambda arm: f"{sum(arm.used.values()):.0%}",
    "overhead": lambda arm: f"{arm.overhead:.1%}",
}
"""Functions that render the cells of an arm's runs, by column."""


@click.command(epilog=f"{COLUMNS_EXPLAINED}\n{TROUBLES_EXPLAINED}")
@click.option("--configs", required=True, metavar="KEYS", help="Configurations, by commas; all share each run.")
@click.option("--minutes", default=10.0, type=click.FloatRange(0, min_open=True), help="Processor time of a run.")
@click.option("--seeds", default=1, type=click.IntRange(1), help="Runs of each arm.")
@click.option("--first-seed", default=0, type=click.IntRange(0), help="Seed of the first run.")
@click.option("--arm", "arms", multiple=True, metavar="ARM", help="all, none, 'without NAME'; repeatable.")
@click.option("--ablate", is_flag=True, help="All, none, and each controller missing in turn.")
@click.option("--trouble", "troubles", multiple=True, metavar="NAME[=KEY]", help="Plant one; repeatable.")
@click.option("--nodes", default=2, type=click.IntRange(1), help="Workers that play in a run.")
@click.option("--cores", default=1, type=click.IntRange(1), help="Of the virtual processor of a run.")
@click.option("--games", default=40, type=click.IntRange(2), help="Of each pair of final champions.")
@click.option("--refit", is_flag=True, help="Fit the simulation's plant to the runs; compare its predictions.")
@set_option
@click.option("--output", "folder", default=Path("compared"), type=FOLDER, help="Folder of the study; continued.")
@workers_option
@json_option
@run_options
def compare(
    location: RunLocation,
    *,
    configs: str,
    minutes: float,
    seeds: int,
    first_seed: int,
    arms: tuple[str, ...],
    ablate: bool,
    troubles: tuple[str, ...],
    nodes: int,
    cores: int,
    games: int,
    refit: bool,
    assignments: tuple[str, ...],
    folder: Path,
    workers: int,
    as_json: bool,
) -> None:
    """Compare what the real loop learns with and without controllers.

    All runs get equal processor time. The daemons of a run share one process and a virtual processor: time passes as
    their jobs use processor time, so a run is the same length whatever else the machine does. Games, trainings and
    evaluations are real. Jobs run on the CPU, with one thread. The output folder keeps each finished run with its
    journal (flyball --run FOLDER/runs/ARM-SEED status), so that an interrupted study goes on when the command is
    repeated.
    """
    request = ComparisonRequest(
        location=location,
        keys=ordered_keys([ConfigKey(key.strip()) for key in configs.split(",") if key.strip()]),
        minutes=minutes,
        seeds=range(first_seed, first_seed + seeds),
        arms=arms,
        ablate=ablate,
        troubles=troubles,
        nodes=nodes,
        cores=cores,
        games=games,
        refit=refit,
        assignments=assignments,
        folder=folder,
        workers=workers,
        say=note,
    )
    result = compare_arms(request)
    if as_json:
        write_json(result.model_dump(mode="json"))
        return
    rows = [[arm.arm, *_cells(STRENGTH, arm.strength), *_cells(RUNS, arm)] for arm in result.arms]
    show_table(["arm", *STRENGTH, *RUNS], rows, left={"arm"})
    rows = [[key, arm.arm, *_cells(STRENGTH, arm.configs[key])] for key in result.strengths for arm in result.arms]
    show_table(["configuration", "arm", *STRENGTH], rows, left={"configuration", "arm"})
    if result.predictions:
        note(f"The fitted plant is in {folder / 'plant.toml'}.")
        columns = ["arm", "trainings", "predicted", "v. none", "predicted v. none"]
        show_table(columns, [_prediction_cells(prediction) for prediction in result.predictions], left={"arm"})


def _prediction_cells(prediction: Prediction) -> list[str]:
    trainings = (prediction.trainings, prediction.predicted_trainings)
    gains = (prediction.over_none, prediction.predicted_over_none)
    return [
        prediction.arm,
        *(interval_text(each, ",.0f") for each in trainings),
        *(interval_text(each, "+z,.0f") for each in gains),
    ]


def _cells(columns: Mapping[str, Callable[[T], str]], figures: T) -> list[str]:
    return [cell(figures) for cell in columns.values()]
