"""``flyball train``: a progress bar on the terminal."""

import sys
from contextlib import closing
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from flyball.app.cli.output import note
from flyball.app.train.iteration import Iteration, Sink
from flyball.app.train.run import Method, Result, train
from flyball.daemons.clock import SystemClock, boot_id


def train_and_show(method: Method[Any, Any, Any]) -> Result:
    """Train, and write the progress to stderr."""
    with closing(TrainingBar(method.iterations)) as progress:
        method.say = progress.tell
        return train(method, SystemClock(), boot_id(), progress)


class TrainingBar(Sink[Any]):
    """Writes lines to stderr; on a terminal, a progress bar is below the lines."""

    def __init__(self, iterations: int) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        console, hidden = Console(stderr=True), not sys.stderr.isatty()
        self._bar = Progress(*columns, TimeRemainingColumn(), console=console, disable=hidden)
        self._task = self._bar.add_task("training", total=iterations)
        self._bar.start()
        self._console = None if hidden else console

    def tell(self, text: str) -> None:
        """Write a line; on a terminal it goes above the bar, because otherwise it would break the bar."""
        if self._console is None:
            note(text)
        else:
            self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def write(self, iteration: Iteration[Any]) -> None:
        """See ``Sink.write``."""
        self._bar.update(self._task, completed=iteration.number)

    def close(self) -> None:
        """See ``Sink.close``."""
        self._bar.stop()
