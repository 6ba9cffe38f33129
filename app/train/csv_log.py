"""The log of a run as CSV: one row an iteration, whatever interruptions there were.

Row 0 is the evaluation of the first policy.
"""

import csv
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path
from typing import Any

from app.core import Clock, UnusableFile, writing
from app.learning.inference import Policy
from app.store.blobs import replace_durably
from app.train.iteration import PHASES, Evaluation, Iteration

BASIC = (
    *("iteration", "timestamp", "policy_loss", "value_loss", "entropy", "kl_div"),
    *("eval_avg_points", "eval_win_rate", "checkpoint"),
)
"""The columns that come first; ``checkpoint`` marks a policy kept as the best so far."""

_OF_ITERATION = (
    *("clip_fraction", "explained_variance", "gradient_norm", "learning_rate", "entropy_coef", "epochs", "recovered"),
    *("games", "rows", "mean_return", "mean_points"),
)
COLUMNS = (
    *BASIC,
    *("eval_opponent", "eval_games", "eval_outcome", "eval_stderr", "eval_moon_rate"),
    *_OF_ITERATION,
    *("seconds", "processor_seconds"),
    *(f"{phase}_seconds" for phase in PHASES),
)


class ForeignLog(UnusableFile):
    """A file that is no log of a run."""


class CsvLog:
    """A sink that appends rows to a file. What is not known is empty.

    A run that was interrupted repeats the iterations after its last checkpoint: their rows are replaced. A row that a
    killed process has written half is dropped.

    Args:
        path: the file; made with the first row.
        clock: tells when rows were written.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path, self._clock = path, clock
        self._last: int | None = None  # the iteration of the last row that is whole; None: not looked at yet

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``; raises as ``write``."""
        self._append(0, {"checkpoint": True, **_evaluated(evaluation)})

    def write(self, iteration: Iteration, policy: Policy) -> None:  # noqa: ARG002 - a sink
        """See ``Sink.write``. Raises ``ForeignLog`` or ``UnusableFile``."""
        seconds = iteration.seconds
        values = {
            **{name: getattr(iteration, name) for name in ("policy_loss", "value_loss", "entropy", *_OF_ITERATION)},
            "kl_div": iteration.approx_kl,
            "checkpoint": iteration.best,
            "seconds": seconds.total,
            "processor_seconds": seconds.processor,
            **{f"{phase}_seconds": getattr(seconds, phase) for phase in PHASES},
            **(_evaluated(iteration.evaluation) if iteration.evaluation else {}),
        }
        self._append(iteration.number, values)

    def _append(self, number: int, values: Mapping[str, Any]) -> None:
        timestamp = self._clock.now().isoformat(timespec="seconds")
        row = {"iteration": number, "timestamp": timestamp, **values}
        with writing(self._path):
            if self._last is None or number <= self._last:
                self._restart(number)
            with self._path.open("ab", buffering=0) as file:
                file.write(_line(_text(row.get(name)) for name in COLUMNS))
        self._last = number

    def close(self) -> None:
        """See ``Sink.close``: every row is in the file already."""

    def _restart(self, number: int) -> None:
        """Leave only whole rows before iteration ``number`` in the file."""
        kept = [line for line, row in _lines(self._path) if int(row["iteration"]) < number]
        data = b"".join([_line(COLUMNS), *kept])
        if not self._path.exists() or self._path.read_bytes() != data:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            replace_durably(self._path, data, self._path.parent)


def read_log(path: Path) -> list[dict[str, str]]:
    """Return the whole rows of a log, by column. Raises ``ForeignLog``."""
    return [row for _, row in _lines(path)]


def _lines(path: Path) -> Iterator[tuple[bytes, dict[str, str]]]:
    if not path.exists():
        return
    first, *lines = path.read_bytes().splitlines(keepends=True) or [b""]
    if _parsed(first) != list(COLUMNS):
        raise ForeignLog(
            f"{path} is no log of a training run of this version: its first line is not the names of the columns.",
            hint="Move it away, or set logging.csv_log to another name.",
        )
    for line in lines:
        values = _parsed(line)
        if line.endswith(b"\n") and len(values) == len(COLUMNS) and values[0].isdecimal():
            yield line, dict(zip(COLUMNS, values, strict=True))


def _parsed(line: bytes) -> list[str]:
    return next(csv.reader([line.decode(errors="replace")]), [])


def _line(values: Any) -> bytes:
    buffer = StringIO()
    csv.writer(buffer, lineterminator="\n").writerow(values)
    return buffer.getvalue().encode()


def _evaluated(found: Evaluation) -> dict[str, Any]:
    return {
        "eval_avg_points": found.points,
        "eval_win_rate": found.win_share,
        "eval_opponent": found.opponent,
        "eval_games": found.games,
        "eval_outcome": found.outcome,
        "eval_stderr": found.stderr,
        "eval_moon_rate": found.moon_rate,
    }


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    return f"{value:.6g}" if isinstance(value, float) else str(value)
