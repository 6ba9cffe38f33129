"""Simulations of the real controllers on modelled clusters, and plans of clusters."""

from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, ClassVar

from pydantic import ValidationError

from flyball.app.api.arguments import Count, Days, Seeds, check_arguments
from flyball.app.api.runs import Say, locate_run, silent
from flyball.app.config import GAMES, PROFILES, FrozenModel, flatten, nest
from flyball.app.config.loading import Loaded
from flyball.app.core import BadUsage, ConfigKey, Record, Tabular, flat, named
from flyball.app.simulation import (
    ALL,
    NONE,
    ArmSummary,
    ClusterPlan,
    MachineSettings,
    PlantSettings,
    RunResult,
    SimulationTask,
    arms_of,
    load_plant,
    make_plan,
    run_tasks,
    simulated,
    summarise,
)
from flyball.daemons.bootstrap import check_controllers

SECONDS_PER_DAY = 86_400


class SimulationResult(Tabular, FrozenModel):
    """Figures of each arm over all seeds, and of each run."""

    brief_columns: ClassVar = {
        "arms": (
            *("arm", "seeds", "gain_mean", "gain_lower", "gain_upper", "ratio_mean", "trainings", "false_stalls"),
            *("planted", "noticed", "games_to_notice", "false_regressions", "rollback_seconds", "floor"),
        ),
        "runs": ("arm", "seed", "total_gain", "events", "trainings", "daily_floor", "floor"),
    }

    arms: tuple[ArmSummary, ...]
    runs: tuple[RunResult, ...]

    def headline(self) -> str:
        """See ``Tabular``."""
        gains = [f"{arm.arm} {arm.gain.mean:+z,.0f}" for arm in self.arms]
        return f"simulation of {len(self.runs)} runs: gain in Elo by arm: {named(gains)}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        return {
            "arms": [flat(arm.model_dump()) for arm in self.arms],
            "runs": [{**flat(run.model_dump()), "total_gain": run.total_gain} for run in self.runs],
        }


def simulate(
    games: str | Sequence[str] | None = None,
    settings: Mapping[str, Any] | None = None,
    *,
    nodes: int = 36,
    days: float = 7.0,
    seeds: int | Sequence[int] = 1,
    ablate: bool = False,
    plant: str | Path | None = None,
    jobs: int = 1,
    run: str | Path = "run",
    config_file: str | Path | None = None,
    progress: Say = silent,
) -> SimulationResult:
    """Simulate all controllers, and none, on a modelled cluster.

    `flyball simulate` does the same.

    Args:
        games: key of a configuration, or several; by default all of Flyball's own.
        settings: by dotted key, as in ``flyball.toml``.
        nodes: machines beside the head.
        days: virtual time.
        seeds: number of runs of each arm, or their seeds.
        ablate: leave out each controller in turn, too.
        plant: TOML with the models of cluster and learning, instead of ``app/simulation/plant.toml``.
        jobs: runs at once.
        run: a folder whose ``flyball.toml`` has settings.
        config_file: read instead of that ``flyball.toml``.
        progress: receives lines of text, for instance ``print``.

    Raises ``BadSettings``, ``BadPlant`` or ``BadUsage``.

    >>> result = flyball.simulate(["hex7_2p"], nodes=2, days=0.05)
    >>> [arm.arm for arm in result.arms]
    ['all', 'none']
    """
    numbers = range(seeds) if isinstance(seeds, int) else seeds
    check_arguments(Count, nodes=nodes, jobs=jobs)
    check_arguments(Days, days=days)
    check_arguments(Seeds, seeds=numbers)
    chosen = PROFILES["full"] if games is None else ordered_keys([games] if isinstance(games, str) else games)
    location = locate_run(run, config_file)
    loaded = location.load(nest(simulated(nodes, chosen) | flatten(settings or {})))
    modelled = load_plant(None if plant is None else Path(plant), loaded.games)
    return simulate_arms(loaded, numbers, days=days, plant=modelled, jobs=jobs, ablate=ablate, say=progress)


def with_processes(plant: PlantSettings, head: Mapping[str, int], nodes: Mapping[str, int]) -> PlantSettings:
    """Return a plant with other numbers of processes, by kind of job. Raises ``BadUsage``."""
    cluster = plant.cluster
    try:
        changed = cluster.replace(head=cluster.head.replace(**head), node=cluster.node.replace(**nodes))
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = f"{'.'.join(map(str, first['loc']))}: " if first["loc"] else ""
        raise BadUsage(
            f"Unusable numbers of processes: {where}{first['msg']}.",
            hint=f"Kinds of jobs: {', '.join(MachineSettings.model_fields)}.",
        ) from error
    return plant.replace(cluster=changed)


def plan_cluster(
    loaded: Loaded, plant: PlantSettings, *, seed: int, hours: float | None, most_wait: float, say: Say
) -> ClusterPlan:
    """Search the fewest processes with which no job waits long; see ``flyball.app.simulation.planning``."""
    check_controllers(loaded.run)
    return make_plan(loaded.run, plant, seed=seed, hours=hours, most_wait=most_wait, say=say)


def simulate_arms(
    loaded: Loaded, seeds: Sequence[int], *, days: float, plant: PlantSettings, jobs: int, ablate: bool, say: Say
) -> SimulationResult:
    """Run each arm with each seed.

    ``say`` receives a line for each run. Without ``ablate``, only the user's own controllers are left out in turn.
    """
    check_controllers(loaded.run)
    arms = (
        tuple(arms_of(loaded.run)) if ablate else (ALL, NONE, *(f"without {name}" for name in loaded.run.controllers))
    )
    tasks = [
        SimulationTask(settings=loaded.run, plant=plant, arm=arm, seed=seed, seconds=days * SECONDS_PER_DAY)
        for seed in seeds
        for arm in arms
    ]
    began, numbers = perf_counter(), count(1)

    def take(result: RunResult) -> None:
        seconds = perf_counter() - began
        say(
            f"{next(numbers)}/{len(tasks)}: seed {result.seed}, {result.arm}: {result.total_gain:+z,.0f} Elo, "
            f"{result.events:,} events, {seconds:.0f} s"
        )
        for unfolded in result.unfolded:
            say(f"Not folded: {unfolded}")

    results = run_tasks(tasks, jobs, take)
    return SimulationResult(arms=tuple(summarise(results)), runs=tuple(results))


def ordered_keys(keys: Sequence[str]) -> tuple[ConfigKey, ...]:
    """Return configurations in a fixed order.

    In a fixed order, the same configurations give the same run. Raises ``BadUsage`` for none or for a duplicate.
    """
    if not keys:
        raise BadUsage("No configuration is named: give at least one, or all.")
    if len(set(keys)) < len(keys):
        raise BadUsage(f"A configuration is named twice: {', '.join(keys)}.")
    return (*(key for key in GAMES if key in keys), *map(ConfigKey, sorted(set(keys) - GAMES.keys())))
