"""Experiment trackers: MLflow and Weights & Biases receive a recorded run, one of their runs for each configuration.

Both are extras: ``pip install 'flyball[mlflow]'`` and ``'flyball[wandb]'``. An export that is repeated doubles nothing.
"""

import logging
import os
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

from flyball.app.core import ConfigKey, FlyballError, writing
from flyball.app.telemetry.wandb_runs import WandbRun, loaded_wandb

T = TypeVar("T")

PROJECT = "flyball"
"""Name of the project at W&B, and of the experiment in MLflow."""

DATABASE = "mlflow.db"
MOST_METRICS, MOST_PARAMS = 1000, 100
"""Most values that MLflow accepts in one call."""

LONGEST = 5000
"""Characters of a text that MLflow keeps in a parameter or tag."""

LONGEST_REASON = 200
"""Characters of MLflow's words that an error shows. A server's answer may be a page."""

MLFLOW_DEFAULTS = {
    "MLFLOW_DISABLE_TELEMETRY": "true",  # an export stays on this machine
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "3",  # by itself it waits silently for four minutes
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "30",  # seconds
}
"""Defaults of MLflow's environment variables."""

UNAUTHORISED = frozenset({"UNAUTHENTICATED", "CUSTOMER_UNAUTHORIZED", "PERMISSION_DENIED"})
TRANSIENT = frozenset({"INTERNAL_ERROR", "REQUEST_LIMIT_EXCEEDED", "TEMPORARILY_UNAVAILABLE"})
"""MLflow's codes of errors that may pass."""


class NoMlflow(FlyballError, code="usage"):
    """The package mlflow is not installed."""


class TrackerRefused(FlyballError, code="usage"):
    """A tracker that refuses the credentials, the address, or what is written."""


class TrackerUnavailable(FlyballError, code="unavailable"):
    """A tracker that did not answer, or that failed."""


class Identity(NamedTuple):
    """The recorded run and configuration behind a tracker's run.

    Attributes:
        run_id: of the recorded run; the same at every export.
        run: name of the recorded run's folder.
        key: the configuration.
        start_ms: time of the run's first event, milliseconds since 1970.
        settings: by their dotted names.
    """

    run_id: str
    run: str
    key: ConfigKey
    start_ms: int
    settings: Mapping[str, Any]


class TrackedPoint(NamedTuple):
    """Values of one event at one step.

    Attributes:
        position: of the event.
        time_ms: when it was recorded, milliseconds since 1970.
        hours: since the run's first event.
        step: the training step; ``RunPoints`` says which.
        values: by curve name.
    """

    position: int
    time_ms: int
    hours: float
    step: int
    values: Mapping[str, float]


class Summary(NamedTuple):
    """Decisions up to the last event.

    Attributes:
        position: of the last event.
        time_ms: when it was recorded, milliseconds since 1970.
        decided: number of decisions and observations, by ``controller/EVENT``.
        notes: the latest decisions, a line each.
    """

    position: int
    time_ms: int
    decided: Mapping[str, int]
    notes: str


class TrackedRun(Protocol):
    """A tracker's run of one configuration.

    Attributes:
        after: position of the last event that an earlier export wrote; 0 without one, or if it is replaced.
    """

    after: int

    def log(self, point: TrackedPoint) -> None:
        """Write the values of an event after ``after``."""

    def close(self, summary: Summary) -> None:
        """Write what is pending, and the summary."""


class Tracker(Protocol):
    """Opens a tracker's runs.

    Attributes:
        command: shows or sends what was written.
    """

    command: str

    def open(self, identity: Identity) -> TrackedRun:
        """Open the run of a configuration, which an earlier export may have begun."""


class WandbTracker(Tracker):
    """Writes offline runs into a folder, for ``wandb sync``. An export replaces the one before.

    Raises ``NoWandb``; opening a run also raises ``WandbFailed`` or ``UnusableFile``.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.command = folder, f"wandb sync {shlex.quote(str(folder))}/*/*/wandb/offline-run-*"
        os.environ.setdefault("WANDB_SILENT", "true")
        loaded_wandb()

    def open(self, identity: Identity) -> TrackedRun:
        """See ``Tracker.open``."""
        name, folder = f"{identity.run_id}-{identity.key}", self._folder / identity.run_id / identity.key
        for old in folder.glob(f"wandb/offline-run-*-{name}"):
            shutil.rmtree(old)
        settings = {"config": identity.key, "run": identity.run, **identity.settings}
        return _WandbTrackedRun(
            WandbRun(folder, f"{identity.run}/{identity.key}", name, settings, "offline", "training_step")
        )


class _WandbTrackedRun(TrackedRun):
    def __init__(self, run: WandbRun) -> None:
        self.after, self._run = 0, run

    def log(self, point: TrackedPoint) -> None:
        self._run.log(point.step, {"hours": point.hours, **point.values})

    def close(self, summary: Summary) -> None:
        for name, count in summary.decided.items():
            self._run.summarise(f"decided/{name}", count)
        self._run.annotate(summary.notes)
        self._run.close()


class MlflowTracker(Tracker):
    """Writes into a store of MLflow, and continues there after the last event that was written before.

    Args:
        store: a folder, which gets a database; or an address as in MLFLOW_TRACKING_URI, such as that of a server.

    It and its runs raise ``NoMlflow``, ``TrackerRefused`` or ``TrackerUnavailable``. After any of them the next export
    writes what is missing: a run notes its position last, and MLflow's databases keep a point that comes twice once.
    """

    def __init__(self, store: str) -> None:
        for name, value in MLFLOW_DEFAULTS.items():
            os.environ.setdefault(name, value)
        try:
            import mlflow
        except ImportError as error:
            hint = "Install it with: pip install 'flyball[mlflow]'"
            raise NoMlflow("Exporting to MLflow needs mlflow.", hint=hint) from error
        for name in ("mlflow", "alembic"):
            logging.getLogger(name).setLevel(logging.CRITICAL)  # its errors are raised, too
        artifacts, is_folder = None, "://" not in store
        if is_folder:
            folder = Path(store).absolute()
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
            store, artifacts = f"sqlite:///{folder / DATABASE}", str(folder / "artifacts")
        shows = f"mlflow ui --backend-store-uri {shlex.quote(store)}"  # of the whole package mlflow
        self.command = shows if is_folder else f"open {store} in a browser"
        self._store = store
        with _explained(store):
            self._client = mlflow.MlflowClient(tracking_uri=store)
            found = self._client.get_experiment_by_name(PROJECT)
            self._experiment = found.experiment_id if found else self._client.create_experiment(PROJECT, artifacts)
        if found and found.lifecycle_stage == "deleted":
            restore = f"mlflow experiments restore --experiment-id {self._experiment}"
            raise TrackerRefused(
                f"The experiment {PROJECT} in {store} is deleted.",
                hint=f"Restore it: MLFLOW_TRACKING_URI={shlex.quote(store)} {restore}",
            )

    def open(self, identity: Identity) -> TrackedRun:
        """See ``Tracker.open``."""
        name = f"{identity.run_id}-{identity.key}"
        with _explained(self._store):
            found = self._client.search_runs([self._experiment], filter_string=f"tags.`flyball.id` = '{name}'")
            run = found[0] if found else self._create(identity, name)
            return _MlflowTrackedRun(self._client, self._store, run, identity.settings)

    def _create(self, identity: Identity, name: str) -> Any:
        tags = {"flyball.id": name, "flyball.run": identity.run, "flyball.config": identity.key}
        title = f"{identity.run}/{identity.key}"
        return self._client.create_run(self._experiment, start_time=identity.start_ms, tags=tags, run_name=title)


class _MlflowTrackedRun(TrackedRun):
    def __init__(self, client: Any, store: str, run: Any, settings: Mapping[str, Any]) -> None:
        from mlflow import entities

        self._client, self._store, self._id, self._entities = client, store, run.info.run_id, entities
        self.after = int(run.data.tags.get("flyball.position", 0))
        self._metrics: list[Any] = []
        self._write_settings({_name(name): str(value)[:LONGEST] for name, value in settings.items()}, run.data.params)

    def _write_settings(self, settings: Mapping[str, str], known: Mapping[str, str]) -> None:
        """Write settings as parameters. These cannot change, so a setting that changed becomes a tag, too."""
        new = [self._entities.Param(name, value) for name, value in settings.items() if name not in known]
        for part in _parts(new, MOST_PARAMS):
            self._client.log_batch(self._id, params=part)
        for name, value in settings.items():
            if known.get(name, value) != value:
                self._client.set_tag(self._id, f"changed.{name}", value)

    def log(self, point: TrackedPoint) -> None:
        for name, value in point.values.items():
            self._metrics.append(self._entities.Metric(_name(name), value, point.time_ms, point.step))

    def close(self, summary: Summary) -> None:
        with _explained(self._store):
            self._write(summary)

    def _write(self, summary: Summary) -> None:
        for part in _parts(self._metrics, MOST_METRICS):
            self._client.log_batch(self._id, metrics=part)
        tags = {f"decided.{name}": str(count) for name, count in summary.decided.items()}
        tags |= {"mlflow.note.content": summary.notes[:LONGEST]}
        for name, value in tags.items():
            self._client.set_tag(self._id, _name(name), value)
        self._client.set_tag(self._id, "flyball.position", str(summary.position))  # last, once all is written
        self._client.set_terminated(self._id, "FINISHED", summary.time_ms)


@contextmanager
def _explained(store: str) -> Iterator[None]:
    """Turn MLflow's errors into ``TrackerRefused`` or ``TrackerUnavailable``."""
    try:
        yield
    except Exception as error:  # also of requests, of drivers of databases, and of SQLAlchemy
        code = getattr(error, "error_code", "")  # an MlflowException has one
        if code in UNAUTHORISED:
            raise TrackerRefused(
                f"MLflow at {store} refuses this access: {_reason(error)}.",
                hint="Set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN.",
            ) from error
        if code in TRANSIENT:
            cause: BaseException = error
            while deeper := cause.__cause__ or cause.__context__:
                cause = deeper  # the innermost cause is short, and MLflow's text may be a page
            raise TrackerUnavailable(
                f"MLflow at {store} did not answer, or failed: {_reason(cause)}.",
                hint="Look whether MLflow runs there. Then repeat the command: it adds what is missing.",
            ) from error
        raise TrackerRefused(
            f"MLflow cannot use {store}: {_reason(error)}.", hint="Name a folder, or the address of a server of MLflow."
        ) from error


def _reason(error: BaseException) -> str:
    first = next(iter(str(error).strip().splitlines()), "") or type(error).__name__
    return (first if len(first) <= LONGEST_REASON else f"{first[:LONGEST_REASON]} …").rstrip(".")


def _name(name: str) -> str:
    """Return a name of the characters that MLflow allows."""
    return re.sub(r"[^\w/.\- :]", "_", name)


def _parts(values: Sequence[T], most: int) -> Iterator[Sequence[T]]:
    for start in range(0, len(values), most):
        yield values[start : start + most]
