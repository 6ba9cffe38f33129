"""A run's TensorBoard record."""

from pathlib import Path
from typing import Any

from app.core import Clock
from app.learning.inference import Policy
from app.telemetry import Board
from app.train.iteration import Evaluation, Iteration
from app.train.sinks.scalars import evaluated, histograms, scalars, settings_text


class TensorBoardSink:
    """Writes curves, histograms and texts into a folder: ``tensorboard --logdir RUN``.

    A run that is resumed goes on in the same curves; what it repeats is shown once.

    Args:
        folder: of the record.
        settings: of the run, shown as the text ``config``.
        clock: tells when something was written.
        histograms_every: iterations; they take most of the room.
    """

    def __init__(self, folder: Path, settings: dict[str, Any], clock: Clock, histograms_every: int = 1) -> None:
        self._board, self._clock = Board(folder), clock
        self._settings = settings
        self._every = histograms_every
        self._last: int | None = None

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``: the curves of evaluations begin at 0."""
        seconds = self._clock.now().timestamp()
        self._board.go_on(0, seconds)
        for tag, value in evaluated(evaluation).items():
            self._board.scalar(tag, value, 0, seconds)
        self._board.flush()

    def write(self, iteration: Iteration, policy: Policy) -> None:
        """See ``Sink.write``."""
        step, seconds = iteration.number, self._clock.now().timestamp()
        if self._last is None or step <= self._last:
            self._board.go_on(step, seconds)
        if self._last is None:
            self._board.text("config", settings_text(self._settings), step, seconds)
        for tag, value in scalars(iteration):
            self._board.scalar(tag, value, step, seconds)
        if step % self._every == 0:
            for tag, values in histograms(iteration, policy):
                self._board.histogram(tag, values, step, seconds)
        if iteration.best:
            self._board.text("best_iteration", str(step), step, seconds)
        self._board.flush()
        self._last = step

    def close(self) -> None:
        """See ``Sink.close``."""
        self._board.close()
