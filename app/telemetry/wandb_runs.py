"""Weights & Biases: runs that receive curves. W&B is an extra: ``pip install 'flyball[wandb]'``."""

from collections.abc import Mapping
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import TYPE_CHECKING, Any

import structlog

from flyball.app.config import WandbMode
from flyball.app.core import FlyballError, writing
from flyball.app.events import Event, Payload
from flyball.app.telemetry.curves import Curves, points

if TYPE_CHECKING:
    from numpy.typing import NDArray

ID_FILE = "wandb.id"
FINISH_SECONDS = 5.0
"""Longest wait for W&B when a daemon ends.

Points that were not sent by then lie in the run folder, for ``wandb sync``.
"""


class NoWandb(FlyballError):
    """The package wandb is not installed, or has no API key."""


class WandbFailed(FlyballError, code="unavailable"):
    """W&B did not begin a run."""


def check_wandb(mode: WandbMode, setting: str) -> None:
    """Check that curves can be written to W&B. ``setting`` names the setting that asks for it. Raises ``NoWandb``."""
    if mode == "off":
        return
    wandb = loaded_wandb(setting)
    if mode == "online" and not wandb.login(prompt=False, verify=False):
        raise NoWandb(
            f"{setting} is online, and W&B has no API key.",
            hint=f"Run `wandb login`, set WANDB_API_KEY, or set {setting} to offline.",
        )


def loaded_wandb(setting: str = "") -> Any:
    """Return the module ``wandb``. ``setting`` names the setting that asks for it. Raises ``NoWandb``."""
    try:
        import wandb
    except ImportError as error:
        instead = f", or set {setting} to off." if setting else ""
        hint = f"Install it with: pip install 'flyball[wandb]'{instead}"
        raise NoWandb("Logging to Weights & Biases needs wandb.", hint=hint) from error
    return wandb


class WandbRun:
    """A W&B run.

    An offline run lies in ``folder/wandb``, ready for ``wandb sync``. Curves are drawn over a logged ``step``, because
    steps fall after a resume or a rollback, and W&B's own step cannot fall. The folder keeps ``fresh_id``, so that a
    later start continues under the first ID. Raises ``NoWandb``, ``WandbFailed`` or ``UnusableFile``.
    """

    def __init__(  # noqa: PLR0917 - all are needed, by name at every call
        self, folder: Path, name: str, fresh_id: str, settings: Mapping[str, Any], mode: WandbMode, step: str
    ) -> None:
        self._wandb, self._step = loaded_wandb("wandb"), step
        id_file = folder / ID_FILE
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
            if not id_file.exists():
                id_file.write_text(fresh_id)
            used_id = id_file.read_text()
        try:
            self._run = self._wandb.init(
                project="flyball",
                name=name,
                id=used_id,
                dir=str(folder),
                config=dict(settings),
                mode=mode,
                resume="allow",
                reinit="create_new",  # a run for each configuration, and perhaps one of the caller's
            )
        except self._wandb.Error as error:
            reason = " ".join(str(error).split()).rstrip(".")
            instead = " Offline runs need neither a key nor a connection." if mode == "online" else ""
            hint = f"Look at the API key and the connection, then repeat the command.{instead}"
            raise WandbFailed(f"W&B did not begin the run {name}: {reason}.", hint=hint) from error
        self._run.define_metric(step)
        self._run.define_metric("*", step_metric=step)

    def log(self, step: int, values: "Mapping[str, float | NDArray[Any]]") -> None:
        """Log values by curve name; arrays become histograms."""
        import numpy as np  # imported late, because every command imports this module

        histogram = self._wandb.Histogram
        logged = {name: histogram(v.ravel()) if isinstance(v, np.ndarray) else v for name, v in values.items()}
        self._run.log({self._step: step, **logged})

    def summarise(self, name: str, value: float) -> None:
        """Set a value of the run's summary."""
        self._run.summary[name] = value

    def annotate(self, text: str) -> None:
        """Set the run's notes."""
        self._run.notes = text

    def close(self) -> None:
        """Send what is pending, and end the run."""
        self._run.finish()


class WandbCurves(Curves):
    """Writes the points of events to a W&B run for each configuration.

    A thread writes them, because W&B waits for the network.

    Args:
        folder: has a subfolder for each configuration.
        group: name under which W&B shows the configurations together.
        fresh_id: part of the IDs of new W&B runs.
        mode: offline or online.
    """

    def __init__(self, folder: Path, group: str, fresh_id: str, mode: WandbMode) -> None:
        self._folder, self._group, self._fresh_id, self._mode = folder, group, fresh_id, mode
        loaded_wandb("deployment.wandb")  # refuses a start without it
        self._runs: dict[str, WandbRun] = {}
        self._queue: SimpleQueue[Event[Payload] | None] = SimpleQueue()
        self._thread = Thread(target=self._work, name="wandb", daemon=True)
        self._thread.start()

    def take(self, event: Event[Payload]) -> None:
        """See ``Curves.take``."""
        if self._thread.is_alive():  # otherwise nobody empties the queue
            self._queue.put(event)

    def flush(self) -> None:
        """Do nothing: W&B sends points as they come."""

    def close(self) -> None:
        """Wait for the thread, up to ``FINISH_SECONDS``."""
        self._queue.put(None)
        self._thread.join(FINISH_SECONDS)

    def _work(self) -> None:
        try:
            while event := self._queue.get():
                self._write(event)
            for run in self._runs.values():
                run.close()
        except Exception as error:  # noqa: BLE001 - W&B's failure costs its curves, and nothing else
            hint = "TensorBoard's curves go on; start the run again to continue these"
            structlog.get_logger("wandb").error("W&B receives no more curves", error=str(error), remedy=hint)

    def _write(self, event: Event[Payload]) -> None:
        by_step: dict[int, dict[str, float]] = {}
        for tag, value, step in points(event.data):
            by_step.setdefault(step, {})[tag] = value
        for step, values in by_step.items():
            self._run_of(event.subject).log(step, values)

    def _run_of(self, config_key: str) -> WandbRun:
        if config_key not in self._runs:
            settings = {"config": config_key, "run": self._group}
            self._runs[config_key] = WandbRun(
                self._folder / config_key, f"{self._group}/{config_key}", f"{self._fresh_id}-{config_key}",
                settings, self._mode, "training_step",
            )  # fmt: skip
        return self._runs[config_key]
