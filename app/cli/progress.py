"""Progress of ``flyball train``: a bar on a terminal, otherwise a line for each iteration."""

import sys
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from app.cli.output import note
from app.pipeline import Evaluation, Iteration, described
from app.policy import Policy


class TrainingProgress(AbstractContextManager["TrainingProgress"]):
    """A sink that writes to stderr.

    Args:
        iterations: of the whole run.
        every: a line for so many iterations.
        quiet: no lines, but for warnings.
    """

    def __init__(self, iterations: int, every: int, *, quiet: bool) -> None:
        self._every, self._quiet = every, quiet
        self._iterations = iterations
        self._bar: Progress | None = None
        if sys.stderr.isatty():
            columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
            self._bar = Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True))
            self._task = self._bar.add_task("training", total=iterations)

    def __enter__(self) -> Self:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()

    def say(self, text: str) -> None:
        """Write a line."""
        if not self._quiet:
            self._write(text)

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``: the run says it in words."""

    def write(self, iteration: Iteration, policy: Policy) -> None:  # noqa: ARG002 - a sink
        """See ``Sink.write``."""
        if self._bar:
            self._bar.update(self._task, completed=iteration.number)
        if iteration.number % self._every == 0 or iteration.number == self._iterations:
            self.say(line_of(iteration, self._iterations))

    def close(self) -> None:
        """See ``Sink.close``."""

    def _write(self, text: str) -> None:
        if self._bar:
            self._bar.console.print(text, highlight=False)
        else:
            note(text)


def line_of(iteration: Iteration, iterations: int) -> str:
    """Return an iteration in one line."""
    parts = [
        f"{iteration.number}/{iterations}",
        f"return {iteration.mean_return:+.3f}",
        f"policy {iteration.policy_loss:+.4f} value {iteration.value_loss:.4f}",
        f"entropy {iteration.entropy:.3f} KL {iteration.approx_kl:.4f} clipped {iteration.clip_fraction:.2f}",
        f"{iteration.rows:,} rows in {iteration.seconds.total:.1f} s",
    ]
    if iteration.recovered:
        parts.append("thrown away")
    if iteration.evaluation:
        parts.append(described(iteration.evaluation) + (" (best)" if iteration.best else ""))
    return "  ".join(parts)
