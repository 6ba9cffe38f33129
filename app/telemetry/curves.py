"""Training curves: points over the training step, one folder for each configuration.

Points carry the time of their event, so the same journal gives the same curves.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

from flyball.app.core import SECOND_US
from flyball.app.events import CheckpointAdded, EvaluationCompleted, Event, Payload, TrainingCompleted

if TYPE_CHECKING:  # because every command imports this module
    from numpy.typing import NDArray
    from tensorboard.summary.writer.event_file_writer import EventFileWriter


class Point(NamedTuple):
    """A value of one curve; ``step`` is the training step."""

    tag: str
    value: float
    step: int


def points(data: Payload) -> Iterator[Point]:
    """Iterate over an event's points; only the types in ``Curves.reads`` have any.

    Trainings: ``train/policy_loss``, ``train/entropy`` … Evaluations: ``evaluation/elo``, ``evaluation/score/random`` …
    and ratings in the league. A gate's games decide a promotion and rate nothing, so their score has its own curve.
    """
    match data:
        case TrainingCompleted():
            if data.rows is not None:
                yield Point("train/rows", data.rows, data.step)
            yield from (Point(f"train/{name}", value, data.step) for name, value in (data.metrics or {}).items())
        case EvaluationCompleted(purpose="gate"):
            yield from (Point("evaluation/gate/score", match.score.mean, data.step) for match in data.results)
        case EvaluationCompleted(purpose="rating"):
            yield from _rating_points(data)
        case CheckpointAdded() if "elite" in data.roles:
            yield Point("league/elo/past_best", data.elo, data.step)


def _rating_points(data: EvaluationCompleted) -> Iterator[Point]:
    yield Point("evaluation/elo", data.elo, data.step)
    yield Point("evaluation/elo_stderr", data.elo_stderr, data.step)
    yield Point("evaluation/games", sum(match.games for match in data.results), data.step)
    if data.lost_games is not None:
        yield Point("evaluation/lost_games", data.lost_games, data.step)
    for match in data.results:
        yield Point(f"evaluation/score/{match.opponent}", match.score.mean, data.step)
        yield Point(f"evaluation/win_rate/{match.opponent}", match.wins / match.games, data.step)
        if match.outcome is not None:
            yield Point(f"evaluation/outcome/{match.opponent}", match.outcome.mean, data.step)
        if match.opponent_elo is not None:
            yield Point(f"evaluation/opponent_elo/{match.opponent}", match.opponent_elo, data.step)
            if match.opponent_model is None:
                yield Point(f"league/elo/{match.opponent}", match.opponent_elo, data.step)
    yield Point("league/elo/hero", data.elo, data.step)


class TensorBoardFile:
    """Adds a TensorBoard file to a folder.

    Both are created at the first write. TensorBoard is imported only then, because the import takes half a second.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._writer: EventFileWriter | None = None

    def go_on(self, step: int, seconds: float) -> None:
        """Continue from ``step``, at ``seconds`` since 1970.

        TensorBoard then hides the points of earlier files from ``step`` on.
        """
        from tensorboard.compat.proto.event_pb2 import SessionLog

        self._add(seconds, step, session_log=SessionLog(status=SessionLog.START))

    def scalar(self, tag: str, value: float, step: int, seconds: float) -> None:
        """Write a point of a curve; ``seconds`` since 1970."""
        from tensorboard.compat.proto.summary_pb2 import Summary

        summary = Summary(value=[Summary.Value(tag=tag, simple_value=value)])
        self._add(seconds, step, summary=summary)

    def histogram(self, tag: str, values: "NDArray[Any]", step: int, seconds: float) -> None:
        """Write the distribution of values of any shape."""
        from tensorboard.plugins.histogram.summary_v2 import histogram_pb

        self._add(seconds, step, summary=histogram_pb(tag, values))

    def text(self, tag: str, text: str, step: int, seconds: float) -> None:
        """Write a text, which may be Markdown."""
        from tensorboard.plugins.text.summary_v2 import text_pb

        self._add(seconds, step, summary=text_pb(tag, text))

    def flush(self) -> None:
        """Write the points to the files."""
        if self._writer:
            self._writer.flush()

    def close(self) -> None:
        """Flush and close the files."""
        if self._writer:
            self._writer.close()
            self._writer = None

    def _add(self, seconds: float, step: int, **content: Any) -> None:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        if self._writer is None:
            self._writer = EventFileWriter(str(self._folder))
        self._folder.mkdir(parents=True, exist_ok=True)  # the writer makes a removed file again, but not the folder
        self._writer.add_event(Event(wall_time=seconds, step=step, **content))


class Curves(Protocol):
    """Receives the points of events.

    An event that is taken twice is written twice, at the same step of the same curve.
    """

    reads: ClassVar[frozenset[type[Payload]]] = frozenset({CheckpointAdded, EvaluationCompleted, TrainingCompleted})

    def take(self, event: Event[Payload]) -> None:
        """Write an event's points."""

    def flush(self) -> None:
        """Write pending points to files."""

    def close(self) -> None:
        """Flush and close; nothing is taken afterwards."""


class TensorBoardCurves(Curves):
    """Writes the points of events into a subfolder for each configuration. Each start of a process adds files."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._boards: dict[str, TensorBoardFile] = {}

    def take(self, event: Event[Payload]) -> None:
        """Write an event's points."""
        for tag, value, step in points(event.data):
            board = self._boards.setdefault(event.subject, TensorBoardFile(self._folder / event.subject))
            board.scalar(tag, value, step, event.recorded_us / SECOND_US)

    def flush(self) -> None:
        """Write the points to the files."""
        for board in self._boards.values():
            board.flush()

    def close(self) -> None:
        """Flush and close the files."""
        for board in self._boards.values():
            board.close()
        self._boards.clear()
