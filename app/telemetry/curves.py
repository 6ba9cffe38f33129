"""Training curves: what the events of a run say, as points over the training step.

Evaluations share a record with the trainings that made their models, one record for each configuration. Points carry
the time of their event, so the same journal gives the same curves.
"""

from collections.abc import Iterator
from functools import singledispatch
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from numpy.typing import NDArray

from app.core import HEURISTIC, RANDOM
from app.events import CheckpointAdded, EvaluationCompleted, Event, Payload, TrainingCompleted

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


if TYPE_CHECKING:
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

# tensorboard takes half a second to load, and is loaded when there is something to write.


class Board:
    """Writes into one folder. What is written with an older step than before stands beside it; see ``go_on``.

    Args:
        folder: made with the first thing written; every board adds a file to it.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: EventFileWriter | None = None

    def go_on(self, step: int, seconds: float) -> None:
        """Say that the record goes on from ``step``: what its earlier files hold from there on is not shown."""
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(seconds, step, session_log=SessionLog(status=SessionLog.START))

    def scalar(self, tag: str, value: float, step: int, seconds: float) -> None:
        """Write a point of a curve; ``seconds`` since 1970."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        self._add(seconds, step, summary=summary)

    def histogram(self, tag: str, values: NDArray[Any], step: int, seconds: float) -> None:
        """Write how values, of any shape, are distributed."""
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        self._add(seconds, step, summary=histogram_pb(tag, values))

    def text(self, tag: str, text: str, step: int, seconds: float) -> None:
        """Write a text, which may be Markdown."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(seconds, step, summary=text_pb(tag, text))

    def flush(self) -> None:
        """Make sure that what was written is in the files."""
        if self._writer:
            self._writer.flush()

    def close(self) -> None:
        """Write what remains, and end."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def _add(self, seconds: float, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(str(self._folder))
        self._writer.add_event(Event(wall_time=seconds, step=step, **content))


MICROSECONDS = 1_000_000


class TensorBoardCurves:
    """Writes the points of events. One that is taken twice is written twice, at the same place of the same curve.

    Args:
        folder: of all configurations' curves; each start of a process adds a file to those that it has points for.
    """

    reads: ClassVar[frozenset[type[Payload]]] = CURVES

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boards: dict[str, Board] = {}

    def take(self, event: Event[Payload]) -> None:
        """Write an event's points."""
        for tag, value, step in points(event.data):
            board = self._boards.setdefault(event.subject, Board(self._folder / event.subject))
            board.scalar(tag, value, step, event.recorded_us / MICROSECONDS)

    def flush(self) -> None:
        """Make sure that what was taken is in the files."""
        for board in self._boards.values():
            board.flush()

    def close(self) -> None:
        """Write what remains, and end."""
        for board in self._boards.values():
            board.close()
        self._boards.clear()
