"""Fit the simulation's plant to a study's runs.

The plant's predictions are compared with the measured figures.

Durations, learning curves and shares of drawn games are fitted to the runs with all controllers, because without
anchors of a league, ratings within a run are too noisy for a curve. The fitted plant has no troubles, as the runs have
none. The other parameters keep the values of the given plant.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from scipy.optimize import minimize_scalar, nnls

from flyball.app.comparison.run import RunFigures, StudyTask
from flyball.app.comparison.summary import interval
from flyball.app.config import FrozenModel, GameConfig
from flyball.app.core import HEURISTIC, FlyballError, ModelHash
from flyball.app.core.clock import SECOND_US
from flyball.app.events import (
    EvaluationCompleted,
    Event,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    QualityScoreUpdated,
    SelfplayComplete,
    TrainingCompleted,
    TrainingRequested,
)
from flyball.app.journal import SqliteJournalReader, history
from flyball.app.simulation import ALL, NONE, Interval, PlantSettings, SimulationTask, run_tasks
from flyball.app.simulation.settings import CurveSettings, EpisodeSettings, JobTimes, TroubleSettings

LESSONS = (0.01, 10_000.0)
"""Bounds of a curve's fitted ``lessons``."""

SHORTEST = 1e-3
"""Shortest duration of a job, in seconds."""

SHORTEST_ROW = 1e-9
"""Shortest time of a training's row, in seconds."""

FEWEST_RATED = 3
"""Rated models below which a configuration's curve is not fitted."""


class TooFewModels(FlyballError):
    """The runs are too short for a fit."""


class RatedModel(NamedTuple):
    """A rated model. ``experience`` is the experience behind it, in lessons of the plant."""

    experience: float
    elo: float


@dataclass
class Observed:
    """Measurements of one configuration, from a study's journals; durations in seconds."""

    requests: list[float] = field(default_factory=list)  # of the configured number of games
    rows_per_game: list[float] = field(default_factory=list)
    trainings: list[tuple[float, float]] = field(default_factory=list)  # rows x epochs, duration
    rated_games: int = 0
    rating_seconds: float = 0.0
    inspections: list[float] = field(default_factory=list)
    distributions: list[float] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    drawn: float = 0.0
    drawable: float = 0.0  # games x expected score of the weaker side, between models
    rated: list[RatedModel] = field(default_factory=list)


def observe(config: GameConfig, events: Iterable[Event[Any]], plant: PlantSettings, into: Observed) -> None:  # noqa: C901 - one case an event
    """Add a run's events about a configuration."""
    learning = plant.learning
    requested: dict[str, TrainingRequested] = {}
    experience: dict[ModelHash | None, float] = {}
    depths: dict[ModelHash | None, int] = {}  # number of models in the ancestry, the initial one's is 0
    played_us: dict[str, int] = {}
    inspected_us = 0
    current_us: dict[ModelHash, int] = {}
    for event in events:
        match event.data:
            case SelfplayComplete() as data:
                into.requests.append((data.seconds or 0.0) * config.selfplay.games_per_request / data.shard.games)
                into.rows_per_game.append(data.mean_length)
                played_us[data.request_id] = event.recorded_us
            case QualityScoreUpdated(request_id=request, score=score) if request in played_us:
                began_us = max(played_us.pop(request), inspected_us)  # a run has one inspector
                inspected_us = event.recorded_us
                into.inspections.append((inspected_us - began_us) / SECOND_US)
                into.scores.append(score)
            case TrainingRequested() as data:
                requested[event.id] = data
            case TrainingCompleted(metrics=None) as data:
                experience[data.model], depths[data.model] = 0.0, 0
            case TrainingCompleted(metrics=metrics) as data if data.request_id in requested:
                training = requested.pop(data.request_id)
                into.trainings.append((float((data.rows or 0) * training.epochs), (metrics or {}).get("seconds", 0.0)))
                pace = min(1.0, training.learning_rate / learning.learning_rate) ** learning.learning_rate_exponent
                passes = (training.epochs / learning.epochs) ** learning.epochs_exponent
                depth = depths.get(data.parent, 0)
                worth = (learning.late_row ** abs(depth - depths.get(s.model, depth)) for s in training.shards)
                rows = sum(shard.rows * share for shard, share in zip(training.shards, worth, strict=True))
                experience[data.model] = (
                    experience.get(data.parent, 0.0) + rows / learning.rows_per_lesson * pace * passes
                )
                depths[data.model] = depth + 1
            case EvaluationCompleted() as data:
                into.rating_seconds += data.seconds or 0.0
                into.rated_games += sum(match.games for match in data.results)
                for match in data.results:
                    if match.opponent_model:
                        into.drawn += match.draws
                        into.drawable += match.games * min(match.score.mean, 1 - match.score.mean)
                if data.purpose == "rating" and data.model in experience:
                    into.rated.append(RatedModel(experience[data.model], data.elo))
            case ModelPromoted(model=model) | ModelRolledBack(to_model=model):
                current_us[model] = event.recorded_us
            case ModelDistributed(model=model) if model in current_us:
                into.distributions.append((event.recorded_us - current_us.pop(model)) / SECOND_US)


def fit_times(observed: Observed) -> JobTimes:
    """Return a configuration's job durations: medians, a line over rows x epochs (trainings), a mean (games)."""
    work, seconds = np.array(observed.trainings).T
    fixed, slope = nnls(np.column_stack([np.ones_like(work), work]), seconds)[0]
    return JobTimes(
        request=max(SHORTEST, float(np.median(observed.requests))),
        inspection=max(SHORTEST, float(np.median(observed.inspections))),
        training=max(SHORTEST, float(fixed)),
        trained_row=max(SHORTEST_ROW, float(slope)),
        rated_game=observed.rating_seconds / observed.rated_games,
    )


def fit_curve(observed: Observed, before: CurveSettings, heuristic: float | None) -> CurveSettings:
    """Return a curve, fitted to the rated models by least squares."""
    experience, elo = np.array(observed.rated).T

    def share(lessons: float) -> Any:
        return -np.expm1(-experience / lessons)

    def ceiling(lessons: float) -> float:
        return float(share(lessons) @ elo / (share(lessons) @ share(lessons)))

    def misfit(log_lessons: float) -> float:
        lessons = float(np.exp(log_lessons))
        return float(np.sum((elo - ceiling(lessons) * share(lessons)) ** 2))

    lessons = float(np.exp(minimize_scalar(misfit, bounds=np.log(LESSONS), method="bounded").x))
    return before.replace(
        ceiling=max(1.0, ceiling(lessons)),
        lessons=lessons,
        jitter_elo=float(np.std(elo - ceiling(lessons) * share(lessons))),
        rows_per_game=float(np.mean(observed.rows_per_game)),
        draws=min(1.0, observed.drawn / observed.drawable) if observed.drawable else before.draws,
        time=fit_times(observed),
        **({} if heuristic is None else {"heuristic": heuristic}),
    )


def fit(
    tasks: Sequence[StudyTask], strengths: Mapping[str, Mapping[str, float]], plant: PlantSettings
) -> PlantSettings:
    """Return the plant fitted to a study's runs with all controllers.

    Args:
        tasks: the finished runs of all arms.
        strengths: of the built-in bots by configuration, from the round robin.
        plant: the values of what is not fitted.

    Raises:
        TooFewModels: a configuration has fewer than three rated models in these runs.
    """
    configs = tasks[0].settings.configs
    observed = {str(config.key): Observed() for config in configs}
    for task in (task for task in tasks if task.arm == ALL):
        with closing(SqliteJournalReader(task.run_folder.journal)) as reader:
            events = list(history(reader))
        for config in configs:
            own = (event for event in events if event.subject == config.key)
            observe(config, own, plant, observed[config.key])
    if few := [key for key, own in observed.items() if len(own.rated) < FEWEST_RATED or not own.trainings]:
        raise TooFewModels(
            f"{few[0]} has too few rated models for a fit.", hint="Give more --minutes or --seeds, and --arm all."
        )
    every = list(observed.values())
    distributions = [seconds for figures in every for seconds in figures.distributions]
    scores = [score for figures in every for score in figures.scores]
    return plant.replace(
        time=plant.time.replace(scale=1.0, distribution=max(SHORTEST, float(np.median(distributions)))),
        cluster=plant.cluster.replace(node_speed_sd=0.0),
        quality=plant.quality.replace(healthy=float(np.mean(scores)), noise_sd=float(np.std(scores))),
        troubles=without_troubles(plant.troubles),
        regressions=plant.regressions.replace(planted_per_day=0.0),
        configs={key: fit_curve(own, plant.curve(key), strengths[key].get(HEURISTIC)) for key, own in observed.items()},
    )


def without_troubles(troubles: TroubleSettings) -> TroubleSettings:
    """Return a plant's troubles with all their rates set to 0."""
    fields = [(name, getattr(troubles, name)) for name in type(troubles).model_fields]
    return troubles.replace(
        **{key: value.replace(per_day=0.0) if isinstance(value, EpisodeSettings) else 0.0 for key, value in fields}
    )


class Prediction(FrozenModel):
    """An arm's figures, measured and predicted; means over seeds.

    The simulation predicts them with the fitted plant. ``over_none`` is the difference in Elo to the arm without
    controllers, the mean of the configurations.
    """

    arm: str
    trainings: Interval
    predicted_trainings: Interval
    over_none: Interval | None
    predicted_over_none: Interval | None


def predict(
    tasks: Sequence[StudyTask],
    runs: Sequence[RunFigures],
    over_none: Mapping[str, Interval | None],
    plant: PlantSettings,
) -> list[Prediction]:
    """Simulate the runs of a study with a plant. Returns the predictions beside the measured figures."""
    simulated = run_tasks(
        [
            SimulationTask(settings=task.settings, plant=plant, arm=task.arm, seed=task.seed, seconds=task.seconds)
            for task in tasks
        ],
        jobs=1,
        on_result=lambda _: None,
    )
    configs = len(tasks[0].settings.configs)
    # Elo, mean of the configurations
    gain = {(result.arm, result.seed): result.total_gain / configs for result in simulated}
    predictions = []
    for arm in dict.fromkeys(task.arm for task in tasks):
        seeds = [task.seed for task in tasks if task.arm == arm and (NONE, task.seed) in gain]
        differences = [gain[arm, seed] - gain[NONE, seed] for seed in seeds]
        own = [run for run in runs if run.arm == arm]
        measured = [sum(figures.counts["trainings"] for figures in run.configs.values()) for run in own]
        predictions.append(
            Prediction(
                arm=arm,
                trainings=interval(measured),
                predicted_trainings=interval([result.trainings for result in simulated if result.arm == arm]),
                over_none=over_none[arm],
                predicted_over_none=interval(differences) if differences and arm != NONE else None,
            )
        )
    return predictions


def plant_text(plant: PlantSettings) -> str:
    """Return a plant as TOML, for ``flyball simulate --plant``."""

    def lines(table: Mapping[str, Any], name: str) -> list[str]:
        plain = [f"{key} = {_value(value)}" for key, value in table.items() if not _is_table(value)]
        inner = [line for key, value in table.items() if _is_table(value) for line in lines(value, f"{name}.{key}")]
        return [*([f"[{name}]", *plain, ""] if plain else []), *inner]

    return "\n".join(line for key, value in plant.model_dump(exclude_none=True).items() for line in lines(value, key))


def _is_table(value: Any) -> bool:
    return isinstance(value, dict)


def _value(value: Any) -> str:
    return f"[{', '.join(map(repr, value))}]" if isinstance(value, tuple) else repr(value)
