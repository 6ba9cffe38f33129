"""Curves of a run, in TensorBoard and at Weights & Biases, which is an extra: ``pip install 'flyball[wandb]'``."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np

from app.config import flatten
from app.core import Clock, FlyballError
from app.learning.inference import Policy
from app.telemetry import Board
from app.train.iteration import PHASES, Evaluation, Floats, Iteration

LOSSES = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance", "gradient_norm")
KNOBS = ("learning_rate", "entropy_coef", "epochs")
COUNTS = ("games", "rows", "mean_return", "mean_points")
_STEP, _ID = "iteration", "wandb.id"


def scalars(iteration: Iteration) -> Iterator[tuple[str, float]]:
    """Yield names and values; what is unknown is left out.

    ``gradients/`` are the norms of the layers' gradients: one number a layer is a curve rather than a histogram.
    """
    named = {f"train/{name}": getattr(iteration, name) for name in (*LOSSES, *KNOBS)}
    named |= {f"collect/{name}": getattr(iteration, name) for name in COUNTS}
    named |= evaluated(iteration.evaluation) if iteration.evaluation else {}
    named |= {f"gradients/{name}": norm for name, norm in iteration.distributions.gradients.items()}
    named |= {f"seconds/{name}": getattr(iteration.seconds, name) for name in (*PHASES, "total", "processor")}
    named["train/recovered"] = float(iteration.recovered)
    return ((name, float(value)) for name, value in named.items() if value is not None)


def histograms(iteration: Iteration, policy: Policy) -> Iterator[tuple[str, Floats]]:
    """Yield names and values of any shape; empty arrays, and those with NaN or infinity, are left out."""
    found = iteration.distributions
    named = {
        "network/actor_logits": found.logits,
        "network/values": found.values,
        "network/advantages": found.advantages,
        **{f"weights/{name}": values for name, values in policy.weights().items()},
    }
    return ((name, values) for name, values in named.items() if values.size and np.isfinite(values).all())


def evaluated(evaluation: Evaluation) -> dict[str, float]:
    """Return names and values of an evaluation."""
    named = {
        "eval/avg_points": evaluation.points,
        "eval/win_rate": evaluation.win_share,
        "eval/outcome": evaluation.outcome,
        "eval/outcome_stderr": evaluation.stderr,
        "eval/moon_rate": evaluation.moon_rate,
    }
    return {name: value for name, value in named.items() if value is not None}


def settings_text(settings: Mapping[str, Any]) -> str:
    """Return settings as a table in Markdown."""
    rows = (f"| {name} | {value} |" for name, value in flatten(settings).items())
    return "\n".join(["| setting | value |", "|---|---|", *rows])


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


class NoWandb(FlyballError):
    """wandb is not installed."""


def loaded_wandb() -> Any:
    """Return the module. Raises ``NoWandb``."""
    try:
        import wandb
    except ImportError as error:
        raise NoWandb(
            "Logging to Weights & Biases needs wandb.",
            hint="Install it with: pip install 'flyball[wandb]', or set logging.wandb to off.",
        ) from error
    return wandb


class WandbSink:
    """Logs iterations to a W&B run. Offline it is written to ``folder/wandb``, and can be sent by ``wandb sync``.

    The iteration is a value of its own that all curves are drawn over: W&B's steps never go back, and those of a
    resumed run do.

    Args:
        folder: of the run.
        name: of the run at W&B.
        fresh_id: names a new run; kept in the folder, so that one that is resumed goes on under its own.
        settings: of the run.
        mode: ``offline`` sends nothing.

    Raises ``NoWandb``.
    """

    def __init__(
        self, folder: Path, name: str, fresh_id: str, settings: dict[str, Any], mode: Literal["online", "offline"]
    ) -> None:
        self._wandb = wandb = loaded_wandb()
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / _ID
        if not kept.exists():
            kept.write_text(fresh_id)
        self._run = wandb.init(
            project="flyball",
            name=name,
            id=kept.read_text(),
            dir=str(folder),
            config=settings,
            mode=mode,
            resume="allow",
        )
        self._run.define_metric(_STEP)
        self._run.define_metric("*", step_metric=_STEP)

    def begin(self, evaluation: Evaluation) -> None:
        """See ``Sink.begin``: the curves of evaluations begin at 0."""
        self._run.log({_STEP: 0, **evaluated(evaluation)})

    def write(self, iteration: Iteration, policy: Policy) -> None:
        """See ``Sink.write``."""
        logged: dict[str, Any] = dict(scalars(iteration))
        logged |= {tag: self._wandb.Histogram(values.ravel()) for tag, values in histograms(iteration, policy)}
        self._run.log({_STEP: iteration.number, **logged})
        if iteration.best:
            self._run.summary["best_iteration"] = iteration.number

    def close(self) -> None:
        """See ``Sink.close``."""
        self._run.finish()
