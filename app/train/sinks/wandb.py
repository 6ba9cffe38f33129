"""A run at Weights & Biases, which is an extra: ``pip install 'flyball[wandb]'``."""

from pathlib import Path
from typing import Any, Literal

from app.core import FlyballError
from app.learning.inference import Policy
from app.train.iteration import Evaluation, Iteration
from app.train.sinks.scalars import evaluated, histograms, scalars

Mode = Literal["online", "offline"]

_STEP, _ID = "iteration", "wandb.id"


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

    def __init__(self, folder: Path, name: str, fresh_id: str, settings: dict[str, Any], mode: Mode) -> None:
        wandb = loaded_wandb()
        folder.mkdir(parents=True, exist_ok=True)
        kept = folder / _ID
        if not kept.exists():
            kept.write_text(fresh_id)
        self._wandb = wandb
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
