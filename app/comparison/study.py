"""A study: runs of several arms and seeds, and their champions' strength.

Each finished run and match is kept in the study's folder, so that an interrupted study goes on where it was, and a
later one adds arms and seeds.
"""

from collections.abc import Iterable, Sequence
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from flyball.app.comparison.run import RunFigures, StudyTask, run_task
from flyball.app.comparison.strength import MatchRecord, StudyResources, play_round_robin, players_of
from flyball.app.config import FrozenModel, GameConfig, RunSettings
from flyball.app.core import BadUsage, FlyballError
from flyball.app.engine import JsonObject, Report, run_coroutine, spread
from flyball.app.store.blobs import replace_durably
from flyball.app.telemetry import configure
from flyball.daemons.contract import check_backend

FIGURES = "figures.json"
"""The file with a finished run's figures, in the run's folder."""


class Unfinished(FlyballError):
    """A run whose champions cannot be compared."""


class Study(FrozenModel):
    """Settings that all runs of a study have in common; see ``StudyTask``."""

    settings: RunSettings
    seconds: float
    cores: int
    troubles: tuple[str, ...]

    def tasks(self, arms: Sequence[str], seeds: Iterable[int], resources: StudyResources) -> list[StudyTask]:
        """Return the runs. Runs of a seed follow each other, so that an interrupted study has whole seeds."""
        common = {name: getattr(self, name) for name in type(self).model_fields}
        return [
            StudyTask(**common, arm=arm, seed=seed, folder=resources.folder, settings_folder=resources.settings_folder)
            for seed in seeds
            for arm in arms
        ]

    def claim(self, folder: Path) -> None:
        """Begin a study in a folder, or continue it. Raises ``BadUsage`` for the folder of another study."""
        path = folder / "study.json"
        folder.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            replace_durably(path, self.model_dump_json(indent=1).encode(), folder)
            return
        try:
            other = Study.model_validate_json(path.read_bytes())
        except ValidationError as error:
            raise BadUsage(f"{path} is not this version's.", hint="Name another folder by --output.") from error
        if different := [name for name in type(self).model_fields if getattr(self, name) != getattr(other, name)]:
            raise BadUsage(
                f"The study in {folder} has other {' and '.join(different)}.",
                hint="Name another folder by --output, or give the options that it was begun with.",
            )


def finished(task: StudyTask) -> RunFigures | None:
    """Return the figures of a run, if it is finished."""
    path = task.run_folder.path / FIGURES
    return RunFigures.model_validate_json(path.read_bytes()) if path.exists() else None


def run_job(spec: JsonObject, _: Report) -> JsonObject:
    """Do one run as an engine's job, and keep its figures. See ``run_task``."""
    task = StudyTask.model_validate(spec)
    for config in task.settings.configs:
        _warm_up(config.model_dump_json(), task.settings_folder)
    log = configure("compare", task.name, task.folder / "compare.jsonl", "WARNING", echo=False)
    try:
        figures = run_task(task)
    finally:
        log.close()
    replace_durably(task.run_folder.path / FIGURES, figures.model_dump_json(indent=1).encode(), task.run_folder.path)
    return figures.model_dump(mode="json")


@cache
def _warm_up(config_json: str, settings_folder: str) -> None:
    """Do each job of a configuration once. Otherwise imports and compilers would count as the first run's time."""
    config = GameConfig.model_validate_json(config_json)
    check_backend(config.backend, config, Path(settings_folder))


def do_runs(tasks: Sequence[StudyTask], resources: StudyResources) -> list[RunFigures]:
    """Do the runs that are not finished; return the figures of all."""
    missing = [task for task in tasks if finished(task) is None]
    if missing:
        done = len(tasks) - len(missing)

        def on_result(result: JsonObject) -> None:
            nonlocal done
            done += 1
            resources.say(f"{done}/{len(tasks)}: {_summary(RunFigures.model_validate(result))}")

        specs = [task.model_dump(mode="json") for task in missing]
        run_coroutine(spread(f"{run_job.__module__}:{run_job.__name__}", specs, resources.workers, on_result))
    return [figures for task in tasks if (figures := finished(task)) is not None]


def _summary(run: RunFigures) -> str:
    counts = [figures.counts for figures in run.configs.values()]
    names = ("trainings", "promotions", "rejections", "rollbacks")
    totals = [f"{sum(by_name[name] for by_name in counts)} {name}" for name in names]
    return f"seed {run.seed}, {run.arm}: {', '.join(totals)}"


def measure(
    study: Study, runs: Sequence[RunFigures], games: int, resources: StudyResources
) -> dict[str, dict[str, float]]:
    """Play the round robins' missing games, and return strengths.

    They are by configuration and player, in Elo over the random bot.

    Raises:
        Unfinished: a run has no champion in some configuration.
    """
    strengths = {}
    for config in study.settings.configs:
        if without := next((run for run in runs if run.configs[config.key].champion is None), None):
            what = f"{without.arm} promoted no model of {config.key} with seed {without.seed}."
            raise Unfinished(what, hint="Give more --minutes.")
        players, record = players_of(config, runs), MatchRecord(resources.folder, config)
        run_coroutine(play_round_robin(config, players, games, record, resources))
        strengths[str(config.key)] = record.strengths(players)
    return strengths
