"""``flyball train``: a progress bar on the terminal."""

import sys
from contextlib import closing

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.api.training import PreparedTraining, ProgressLines, TrainingResult, train_prepared
from app.cli.output import note
from app.config import PipelineSettings
from app.learning.inference import Policy
from app.train.iteration import Iteration


def train_and_show(run: PreparedTraining) -> TrainingResult:
    """Train, and write the progress to stderr."""
    with closing(TrainingBar(run.head.settings)) as progress:
        return train_prepared(run, progress, progress.tell)


class TrainingBar(ProgressLines):
    """A sink that writes lines to stderr.

    On a terminal, a progress bar is below the lines.
    """

    def __init__(self, settings: PipelineSettings) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console, hidden = Console(stderr=True), not sys.stderr.isatty()
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden)
        self._task = self._bar.add_task("training", total=settings.collection.num_iterations)
        self._bar.start()
        self._console = None if hidden else console
        super().__init__(settings, self.tell)

    def tell(self, text: str) -> None:
        """Write a line at any log level.

        On a terminal the line goes above the bar, because otherwise it would break the bar.
        """
        if self._console is None:
            note(text)
        else:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def write(self, iteration: Iteration, policy: Policy) -> None:
        """See ``Sink.write``."""
        self._bar.update(self._task, completed=iteration.number)
        super().write(iteration, policy)

    def close(self) -> None:
        """See ``Sink.close``."""
        self._bar.stop()
