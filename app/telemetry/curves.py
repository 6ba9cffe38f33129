"""Training curves: what the events of a run say, as points over the training step.

Evaluations share a record with the trainings that made their models, one record for each configuration. Points carry
the time of their event, so the same journal gives the same curves.
"""

from collections.abc import Iterator
from functools import singledispatch
from typing import NamedTuple

from app.core import HEURISTIC, RANDOM
from app.events import CheckpointAdded, EvaluationCompleted, Payload, TrainingCompleted

CURVES: frozenset[type[Payload]] = frozenset({CheckpointAdded, EvaluationCompleted, TrainingCompleted})
"""The events that have points."""

TRAIN, EVALUATION, LEAGUE = "train", "evaluation", "league/elo"


class Point(NamedTuple):
    """A value of one curve; ``step`` is the training step."""

    tag: str
    value: float
    step: int


@singledispatch
def points(data: Payload) -> Iterator[Point]:  # noqa: ARG001 - the argument that is dispatched on
    """Iterate over the points of an event: none, but for the types of ``CURVES``."""
    return iter(())


@points.register
def _(data: TrainingCompleted) -> Iterator[Point]:
    """``train/policy_loss``, ``train/entropy`` …"""
    yield Point(f"{TRAIN}/rows", data.rows, data.step)
    for name, value in data.metrics or ():
        if value is not None:
            yield Point(f"{TRAIN}/{name}", value, data.step)


@points.register
def _(data: EvaluationCompleted) -> Iterator[Point]:
    """``evaluation/elo``, ``evaluation/score/random`` …; rating snapshots of model and opponents.

    Gate games, which decide a promotion and rate nothing, have a score of their own.
    """
    if data.purpose == "gate":
        yield from (Point(f"{EVALUATION}/gate/score", match.score.mean, data.step) for match in data.results)
    if data.purpose != "rating":
        return
    yield Point(f"{EVALUATION}/elo", data.elo, data.step)
    yield Point(f"{EVALUATION}/elo_stderr", data.elo_stderr, data.step)
    yield Point(f"{EVALUATION}/games", sum(match.games for match in data.results), data.step)
    yield Point(f"{EVALUATION}/lost_games", data.lost_games, data.step)
    for match in data.results:
        yield Point(f"{EVALUATION}/score/{match.opponent}", match.score.mean, data.step)
        yield Point(f"{EVALUATION}/win_rate/{match.opponent}", match.wins / match.games, data.step)
        if match.opponent_elo is None:
            continue
        yield Point(f"{EVALUATION}/opponent_elo/{match.opponent}", match.opponent_elo, data.step)
        if match.opponent in (RANDOM, HEURISTIC):
            yield Point(f"{LEAGUE}/{match.opponent}", match.opponent_elo, data.step)
    yield Point(f"{LEAGUE}/hero", data.elo, data.step)


@points.register
def _(data: CheckpointAdded) -> Iterator[Point]:
    """``league/elo/past_best``: a new high score of the league."""
    if "elite" in data.roles:
        yield Point(f"{LEAGUE}/past_best", data.elo, data.step)
