"""Records of a run: a CSV log, TensorBoard and Weights & Biases."""

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np

from flyball.app.config import WandbMode, flatten
from flyball.app.core import Clock, UnusableFile, writing
from flyball.app.store.blobs import replace_durably
from flyball.app.telemetry import TensorBoardFile, WandbRun
from flyball.app.train.iteration import PHASES, Evaluation, Floats, Iteration, Sink

COUNTS = ("games", "rows", "mean_return", "mean_points")

COLUMNS = (  # of the log, new ones last; ``checkpoint`` marks a policy kept as the best so far
    *("iteration", "timestamp", "policy_loss", "value_loss", "entropy", "kl_div"),
    *("eval_avg_points", "eval_win_rate", "checkpoint"),
    *("eval_opponent", "eval_games", "eval_outcome", "eval_stderr", "eval_moon_rate"),
    *("clip_fraction", "explained_variance", "gradient_norm", "learning_rate", "entropy_coef", "epochs"),
    *("recovered", *COUNTS),
    *("seconds", "processor_seconds"),
    *(f"{phase}_seconds" for phase in PHASES),
    *("divergence", "replayed_rows"),
)


class ForeignLog(UnusableFile):
    """A file that is not a run's log."""


class CsvLog(Sink[Evaluation]):
    """CSV log with a row for each iteration.

    Row 0 is the first policy's evaluation. Unknown values are empty. An interrupted run repeats the iterations after
    its last checkpoint, and their rows are replaced. A half-written row of a killed process is dropped. ``begin`` and
    ``write`` raise ``ForeignLog`` or ``UnusableFile``.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._last: int | None = None  # the iteration of the last row written; None before the first

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``."""
        self._append(0, {"checkpoint": True, **_evaluation_columns(evaluation)})

    def write(self, iteration: Iteration[Evaluation]) -> None:
        """See ``Sink.write``."""
        values = {
            **iteration.metrics,
            **{name: getattr(iteration, name) for name in (*COUNTS, "recovered")},
            "kl_div": iteration.metrics.get("approx_kl"),
            "checkpoint": iteration.best,
            "seconds": iteration.seconds["total"],
            **{f"{name}_seconds": value for name, value in iteration.seconds.items()},
            **(_evaluation_columns(iteration.evaluation) if iteration.evaluation else {}),
        }
        self._append(iteration.number, values)

    def _append(self, number: int, values: Mapping[str, Any]) -> None:
        timestamp = self._clock.now().isoformat(timespec="seconds")
        row = {"iteration": number, "timestamp": timestamp, **values}
        with writing(self._path):
            if self._last is None or number <= self._last:
                self._restart(number)
            with self._path.open("ab", buffering=0) as file:
                file.write(_csv_line(_cell(row.get(name)) for name in COLUMNS))
        self._last = number

    def _restart(self, number: int) -> None:
        """Keep only the complete rows before iteration ``number`` in the file."""
        rows = [row for row in read_log(self._path) if int(row["iteration"]) < number]
        data = b"".join([_csv_line(COLUMNS), *(_csv_line(row.get(name, "") for name in COLUMNS) for row in rows)])
        if not self._path.exists() or self._path.read_bytes() != data:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_durably(self._path, data, self._path.parent)


def read_log(path: Path) -> list[dict[str, str]]:
    """Return the complete rows of a log, by column; earlier versions had fewer. Raises ``ForeignLog``."""
    if not path.exists():
        return []
    first, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
    columns = _parsed(first)
    if not columns or columns != list(COLUMNS[: len(columns)]):
        raise ForeignLog(
            f"{path} is no log of a training run of this version: its first line is not the names of the columns.",
            hint="Move it away, or set logging.csv_log to another name.",
        )
    whole = (values for line in lines if line.endswith(b"\n") and len(values := _parsed(line)) == len(columns))
    return [dict(zip(columns, values, strict=True)) for values in whole if values[0].isdecimal()]


def _parsed(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace")]), [])


def _csv_line(values: Iterable[str]) -> bytes:
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue().encode()


def _evaluation_columns(evaluation: Evaluation) -> dict[str, Any]:
    return {
        "eval_avg_points": evaluation.points,
        "eval_win_rate": evaluation.win_share,
        "eval_opponent": evaluation.opponent,
        "eval_games": evaluation.games,
        "eval_outcome": evaluation.outcome,
        "eval_stderr": evaluation.stderr,
        "eval_moon_rate": evaluation.moon_rate,
    }


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def scalars(iteration: Iteration[Evaluation]) -> Iterator[tuple[str, float]]:
    """Yield an iteration's known values by curve name, with the norm of each layer's gradient."""
    gradients = iteration.distributions.gradients if iteration.distributions else {}
    named: dict[str, float | None] = {f"train/{name}": value for name, value in iteration.metrics.items()}
    named |= {f"collect/{name}": getattr(iteration, name) for name in COUNTS}
    named |= evaluation_scalars(iteration.evaluation) if iteration.evaluation else {}
    named |= {f"gradients/{name}": norm for name, norm in gradients.items()}
    named |= {f"seconds/{name}": value for name, value in iteration.seconds.items()}
    named["train/recovered"] = float(iteration.recovered)
    return ((name, float(value)) for name, value in named.items() if value is not None)


def evaluation_scalars(evaluation: Evaluation) -> dict[str, float]:
    """Return an evaluation's values by curve name; values that the game does not count are left out."""
    named = {
        "eval/avg_points": evaluation.points,
        "eval/win_rate": evaluation.win_share,
        "eval/outcome": evaluation.outcome,
        "eval/outcome_stderr": evaluation.stderr,
        "eval/moon_rate": evaluation.moon_rate,
    }
    return {name: value for name, value in named.items() if value is not None}


def histograms(iteration: Iteration[Evaluation]) -> Iterator[tuple[str, Floats]]:
    """Yield names and values of histograms; empty arrays, and those with a NaN or infinity, are left out."""
    distributions = iteration.distributions
    if distributions is None:
        return
    named = {
        "network/actor_logits": distributions.logits,
        "network/values": distributions.values,
        "network/advantages": distributions.advantages,
        **{f"weights/{name}": values for name, values in distributions.policy.weights().items()},
    }
    yield from ((name, values) for name, values in named.items() if values.size and np.isfinite(values).all())


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a table in Markdown."""
    return markdown_table(("setting", "value"), flatten(settings).items())


def markdown_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Return a table in Markdown."""
    lines = (columns, ["---"] * len(columns), *rows)
    return "\n".join(f"| {' | '.join(map(str, line))} |" for line in lines)


class TensorBoardSink(Sink[Evaluation]):
    """Writes curves, histograms and settings for ``tensorboard --logdir RUN``; repeated iterations are shown once."""

    def __init__(self, folder: Path, settings: Mapping[str, Any], clock: Clock) -> None:
        self._board, self._settings, self._clock = TensorBoardFile(folder), settings, clock
        self._last: int | None = None

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``. The evaluation is iteration 0 of the curves."""
        seconds = self._clock.now().timestamp()
        self._board.go_on(0, seconds)
        for tag, value in evaluation_scalars(evaluation).items():
            self._board.scalar(tag, value, 0, seconds)
        self._board.flush()

    def write(self, iteration: Iteration[Evaluation]) -> None:
        """See ``Sink.write``."""
        step, seconds = iteration.number, self._clock.now().timestamp()
        if self._last is None or step <= self._last:
            self._board.go_on(step, seconds)
        if self._last is None:
            self._board.text("config", settings_text(self._settings), step, seconds)
        for tag, value in scalars(iteration):
            self._board.scalar(tag, value, step, seconds)
        for tag, values in histograms(iteration):
            self._board.histogram(tag, values, step, seconds)
        if iteration.best:
            self._board.text("best_iteration", str(step), step, seconds)
        self._board.flush()
        self._last = step

    def close(self) -> None:
        """See ``Sink.close``."""
        self._board.close()


class WandbSink(Sink[Evaluation]):
    """Logs iterations to a W&B run. See ``WandbRun``."""

    def __init__(self, folder: Path, name: str, fresh_id: str, settings: dict[str, Any], mode: WandbMode) -> None:
        self._run = WandbRun(folder, name, fresh_id, settings, mode, "iteration")

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``. The evaluation is iteration 0 of the curves."""
        self._run.log(0, evaluation_scalars(evaluation))

    def write(self, iteration: Iteration[Evaluation]) -> None:
        """See ``Sink.write``."""
        self._run.log(iteration.number, {**dict(scalars(iteration)), **dict(histograms(iteration))})
        if iteration.best:
            self._run.summarise("best_iteration", iteration.number)

    def close(self) -> None:
        """See ``Sink.close``."""
        self._run.close()
