"""``flyball simulate``: try controllers on a modelled cluster, or plan a cluster."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from flyball.app.api.runs import RunLocation
from flyball.app.api.simulation import ordered_keys, plan_cluster, simulate_arms, with_processes
from flyball.app.cli.options import FILE, figure_option, given_options, json_option, run_options, set_option
from flyball.app.cli.output import interval_text, note, show, show_table, write_json
from flyball.app.config import PROFILES, nest
from flyball.app.config.loading import parse
from flyball.app.core import ConfigKey
from flyball.app.simulation import ArmSummary, ClusterPlan, KindLoad, Sizing, load_plant, planned, plot, simulated
from flyball.app.status.summary import UNKNOWN

COLUMNS_EXPLAINED = """\b
Columns; "-" is unknown, [low, high] a 95% interval over seeds:
gain, Elo       strength gained in all configurations, models' luck included
of none's       that gain over the gain of the arm without controllers
trainings       of a run
false stalls    share of days with healthy growth when a stall was declared
regressions     noticed, of those planted; "- of 0": none was planted
after games     rated games until a regression was noticed
regained first  planted ones that ended unnoticed, mostly because the lost
                strength was learned again; after rated games
false alarms    of regressions, and in how many rated games
rollback        longest time from the evidence to the decision
floor           least share of workers' time of any configuration, in the run
                and in a day; 1 is an equal share

The curve of --plot, total in --json, is strength apart from models' luck.

\b
Columns of --plan:
busy            share of the time in which these processes work
an hour         jobs that ended
seconds         mean duration of a job
wait, 95%       mean and 95th percentile of waits for a process, seconds,
                without tournaments' matches, which wait for all others
queue           growth of the queue, jobs an hour
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


MOST_WAIT = 0.1

COMPARING = ("days", "seeds", "ablate", "figure", "jobs")
PLANNING = ("hours", "most_wait")


def _processes(_: click.Context, __: click.Parameter, values: tuple[str, ...]) -> dict[str, int]:
    parts = [(value, *value.partition("=")) for value in values]
    if bad := [value for value, _, _, number in parts if not number.isdigit()]:
        raise click.BadParameter(f"{bad[0]!r}: write KIND=NUMBER, for instance inspection=2.")
    return {kind: int(number) for _, kind, _, number in parts}


def processes_option(flag: str, machines: str) -> Callable[[Any], Any]:
    """Return an option for the numbers of processes of some machines."""
    text = f"Jobs that {machines} at once, as deployment.processes, or cores=N; repeatable."
    return click.option(flag, multiple=True, metavar="KIND=N", callback=_processes, help=text)


@click.command(epilog=COLUMNS_EXPLAINED)
@click.option("--nodes", default=36, type=click.IntRange(1), help="Machines beside the head.")
@processes_option("--on-head", "the head does")
@processes_option("--on-nodes", "every node does")
@click.option(
    "--configs", metavar="KEYS", help="Separated by commas; all by default, with --plan those of the settings."
)
@click.option("--days", default=7.0, type=click.FloatRange(0, min_open=True), help="Virtual time.")
@click.option("--seeds", default=1, type=click.IntRange(1), help="Runs of each arm.")
@click.option("--first-seed", default=0, type=click.IntRange(0), help="Seed of the first run.")
@click.option("--ablate", is_flag=True, help="Leave out each controller in turn, too.")
@click.option("--plan", is_flag=True, help="Show the bottleneck, and the processes that are needed.")
@click.option(
    "--hours",
    type=click.FloatRange(0, min_open=True),
    help="Virtual time of a plan's simulation; by default that of 24 requests.",
)
@click.option(
    "--most-wait",
    default=MOST_WAIT,
    type=click.FloatRange(0, min_open=True),
    help="Longest wait in a plan (95%), as a share of a loop: the sum of one job's mean time of each kind.",
)
@click.option("--plant", "plant_file", type=FILE, help="Your own plant.")
@set_option
@figure_option("Draw a figure")
@click.option("--jobs", default=1, type=click.IntRange(1), help="Runs at once.")
@json_option
@run_options
@click.pass_context
def simulate(
    ctx: click.Context,
    location: RunLocation,
    *,
    nodes: int,
    on_head: dict[str, int],
    on_nodes: dict[str, int],
    configs: str | None,
    days: float,
    seeds: int,
    first_seed: int,
    ablate: bool,
    plan: bool,
    hours: float | None,
    most_wait: float,
    plant_file: Path | None,
    assignments: tuple[str, ...],
    figure: Path | None,
    jobs: int,
    as_json: bool,
) -> None:
    """Compare strength with and without controllers on a modelled cluster.

    The controllers are the real ones; the cluster, its troubles and how strength grows are modelled
    (app/simulation/plant.toml; --plant takes your own). The same seed gives the same events. Settings are those of the
    run folder, with presets for a cluster. A controller of your own takes part; one more arm leaves it out.

    With --plan, the command shows the bottleneck instead, and finds the fewest processes of each kind with which no job
    waits long.
    """
    flags = given_options(ctx)
    if wrong := [flags[name] for name in (COMPARING if plan else PLANNING) if name in flags]:
        raise click.UsageError(f"{wrong[0]} {'does not go with' if plan else 'needs'} --plan.")
    if plan:
        preset = planned(nodes) | ({} if configs is None else {"configs": list(_keys(configs))})
    else:
        preset = simulated(nodes, _keys("all" if configs is None else configs))
    loaded = location.load(nest(preset | parse(assignments)))
    plant = with_processes(load_plant(plant_file, loaded.games), on_head, on_nodes)
    if plan:
        cluster_plan = plan_cluster(loaded, plant, seed=first_seed, hours=hours, most_wait=most_wait, say=note)
        if as_json:
            write_json(cluster_plan.model_dump(mode="json"))
        else:
            show_plan(cluster_plan)
        return
    numbers = range(first_seed, first_seed + seeds)
    result = simulate_arms(loaded, numbers, days=days, plant=plant, jobs=jobs, ablate=ablate, say=note)
    if as_json:
        write_json(result.model_dump(mode="json"))
    else:
        rows = [[cell(summary) for cell in COLUMNS.values()] for summary in result.arms]
        show_table(list(COLUMNS), rows, left={"arm"})
    if figure:  # last, so that its failure cannot lose the results of hours
        plot(result.runs, result.arms, figure)


def _keys(configs: str) -> tuple[ConfigKey, ...]:
    if configs == "all":
        return PROFILES["full"]
    return ordered_keys([key.strip() for key in configs.split(",") if key.strip()])


LOAD_COLUMNS: Mapping[str, Callable[[KindLoad], str]] = {
    "kind": lambda load: load.kind,
    "processes": lambda load: f"{load.processes}",
    "busy": lambda load: f"{load.busy:.0%}",
    "an hour": lambda load: f"{load.jobs_per_hour:,.1f}",
    "seconds": lambda load: _figure(load.seconds, ",.1f"),
    "wait": lambda load: f"{load.wait_seconds:,.1f}",
    "95%": lambda load: f"{load.wait_95_seconds:,.1f}",
    "queue": lambda load: f"{load.growth:+z.1f}",
}
"""Functions that render the cells of a kind's row, by column."""


def show_plan(plan: ClusterPlan) -> None:
    """Write a plan: the configured cluster, and the one that is needed."""
    wait = plan.most_wait * plan.needed.load.loop_seconds
    show_sizing("As configured:", plan.given)
    show_sizing(f"Needed, so that 95% of the jobs wait at most {wait:,.0f} s:", plan.needed)


def show_sizing(title: str, size: Sizing) -> None:
    """Write a cluster's load, bottleneck and number of useful nodes."""
    rows = [[cell(load) for cell in LOAD_COLUMNS.values()] for load in size.load.kinds]
    show_table(list(LOAD_COLUMNS), rows, left={"kind"}, title=title)
    bottleneck = "none; configurations wait for their own loops"
    show(
        f"bottleneck: {size.load.bottleneck or bottleneck}\n"
        f"rows trained on: {size.load.rows_per_hour:,.0f} an hour\n"
        f"useful nodes: {size.useful_nodes} (with more, less than a tenth more rows)\n"
    )
