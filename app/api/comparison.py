"""Comparisons of arms on real games."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.app.api.runs import RunLocation, Say
from flyball.app.comparison.fitting import Prediction, fit, plant_text, predict
from flyball.app.comparison.run import RunFigures
from flyball.app.comparison.strength import StudyResources
from flyball.app.comparison.study import Study, do_runs, measure
from flyball.app.comparison.summary import ArmFigures, summarise
from flyball.app.comparison.troubles import Planted
from flyball.app.config import FrozenModel, nest
from flyball.app.config.loading import parse
from flyball.app.controllers.scheduler import WORKER_DAEMON
from flyball.app.core import BadUsage, ConfigKey, Record, Tabular, flat, named
from flyball.app.simulation import ALL, NONE, arms_of, load_plant
from flyball.daemons.bootstrap import check_settings

SECONDS_PER_MINUTE = 60


class ComparisonResult(Tabular, FrozenModel):
    """Figures of a comparison's arms and runs, and players' strengths.

    The figures of an arm are over all seeds. ``strengths`` has each player's strength by configuration. ``predictions``
    are the simulation's with a plant fitted to the runs, if asked for.
    """

    arms: tuple[ArmFigures, ...]
    runs: tuple[RunFigures, ...]
    strengths: dict[str, dict[str, float]]
    predictions: tuple[Prediction, ...] | None

    def headline(self) -> str:
        """See ``Tabular``."""
        arms = [f"{arm.arm} {arm.strength.elo.mean:,.0f}" for arm in self.arms]
        return f"comparison of {len(self.runs)} runs: Elo by arm: {named(arms)}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        configs = [(key, arm.arm, arm.configs[key]) for key in self.strengths for arm in self.arms]
        return {
            "arms": [flat(arm.model_dump(exclude={"configs"})) for arm in self.arms],
            "configs": [{"config": key, "arm": arm, **flat(figures.model_dump())} for key, arm, figures in configs],
            "predictions": [flat(prediction.model_dump()) for prediction in self.predictions or ()],
        }


@dataclass(frozen=True, slots=True)
class ComparisonRequest:
    """A comparison, see the options of ``flyball compare``."""

    location: RunLocation
    keys: Sequence[ConfigKey]
    minutes: float
    seeds: Sequence[int]
    arms: Sequence[str]
    ablate: bool
    troubles: Sequence[str]
    nodes: int
    cores: int
    games: int
    refit: bool
    assignments: Sequence[str]
    folder: Path
    workers: int
    say: Say


def compare_arms(request: ComparisonRequest) -> ComparisonResult:
    """Do a comparison's missing runs and matches; return all figures.

    Runs and matches that the folder has are not repeated. Raises ``BadSettings``, ``BadUsage``, ``Unfinished`` or
    ``TooFewModels``.
    """
    if request.refit and request.troubles:
        raise BadUsage("--refit needs a study without --trouble: the simulation has troubles of its own.")
    preset = {
        "selfplay_workers": [f"{WORKER_DAEMON}@node{number}" for number in range(1, request.nodes + 1)],
        "configs": list(request.keys),
    }
    loaded = request.location.load(nest(preset) | parse(tuple(request.assignments)))
    check_settings(loaded)
    arms = _arms(request, tuple(arms_of(loaded.run)))
    for trouble in request.troubles:
        Planted.parse(trouble, loaded.run)
    seconds = request.minutes * SECONDS_PER_MINUTE
    study = Study(settings=loaded.run, seconds=seconds, cores=request.cores, troubles=tuple(request.troubles))
    study.claim(request.folder)
    resources = StudyResources(request.folder, request.location.settings_folder, request.workers, request.say)
    tasks = study.tasks(arms, request.seeds, resources)
    runs = do_runs(tasks, resources)
    for run in runs:
        for unfolded in run.unfolded:
            request.say(f"Not folded with seed {run.seed}, {run.arm}: {unfolded}")
    strengths = measure(study, runs, request.games, resources)
    figures = summarise(runs, strengths)
    predictions = None
    if request.refit:
        plant = fit(tasks, strengths, load_plant())
        (request.folder / "plant.toml").write_text(plant_text(plant), encoding="utf-8")
        measured = {figure.arm: figure.strength.over_none for figure in figures}
        predictions = tuple(predict(tasks, runs, measured, plant))
    return ComparisonResult(arms=tuple(figures), runs=tuple(runs), strengths=strengths, predictions=predictions)


def _arms(request: ComparisonRequest, names: Sequence[str]) -> tuple[str, ...]:
    """Return the arms to run.

    They are the given arms. By default they are ``ALL``, with all controllers, and ``NONE``, without any. With
    ``ablate``, there is also an arm without each controller. Raises ``BadUsage``.
    """
    if unknown := [arm for arm in request.arms if arm not in names]:
        raise BadUsage(f"There is no arm {unknown[0]!r}.", hint=f"There are: {', '.join(names)}.")
    if request.arms and request.ablate:
        raise BadUsage("--arm and --ablate both choose the arms: give one of them.")
    return tuple(dict.fromkeys(request.arms)) or (tuple(names) if request.ablate else (ALL, NONE))
