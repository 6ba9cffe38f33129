"""Stand-ins of mlflow and wandb in memory and files, and readers of what they and the real ones hold."""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, NamedTuple


class Held(NamedTuple):
    """A tracker's content about one configuration.

    Attributes:
        curves: step and value of each point, by curve name, in the order of writing.
        settings: values by name, as text.
        decided: counts by ``controller/EVENT``.
        notes: the note about the latest decisions.
    """

    curves: Mapping[str, list[tuple[int, float]]]
    settings: Mapping[str, str]
    decided: Mapping[str, int]
    notes: str


class Named(SimpleNamespace):
    """A value of MLflow: ``Metric``, ``Param``."""


class FakeClient:
    """MLflow's client, which keeps runs in memory and refuses what MLflow refuses."""

    stores: ClassVar[dict[str, dict[str, Any]]]

    def __init__(self, tracking_uri: str) -> None:
        self.store = self.stores.setdefault(tracking_uri, {"experiments": {}, "runs": {}})

    def get_experiment_by_name(self, name: str) -> Any:
        return self.store["experiments"].get(name)

    def create_experiment(self, name: str, artifact_location: str | None = None) -> str:
        assert name not in self.store["experiments"]
        self.store["experiments"][name] = SimpleNamespace(experiment_id="1", lifecycle_stage="active")
        return "1"

    def delete_experiment(self, experiment_id: str) -> None:
        for experiment in self.store["experiments"].values():
            if experiment.experiment_id == experiment_id:
                experiment.lifecycle_stage = "deleted"

    def search_runs(self, experiment_ids: Sequence[str], filter_string: str = "") -> list[Any]:
        assert experiment_ids == ["1"]
        wanted = filter_string.partition("= ")[2].strip("'")
        runs = self.store["runs"].values()
        return [run for run in runs if not wanted or run.data.tags["flyball.id"] == wanted]

    def create_run(self, experiment_id: str, start_time: int, tags: dict[str, str], run_name: str) -> Any:
        info = SimpleNamespace(run_id=str(len(self.store["runs"])), run_name=run_name, start_time=start_time)
        data = SimpleNamespace(tags=dict(tags), params={}, metrics={}, history=[])
        return self.store["runs"].setdefault(info.run_id, SimpleNamespace(info=info, data=data))

    def log_batch(self, run_id: str, metrics: Sequence[Any] = (), params: Sequence[Any] = ()) -> None:
        assert len(metrics) <= 1000
        assert len(params) <= 100
        data = self.store["runs"][run_id].data
        for param in params:
            _check_name(param.key)
            assert data.params.setdefault(param.key, param.value) == param.value, "MLflow's parameters are final"
            assert len(param.value) <= 6000
        for metric in metrics:
            _check_name(metric.key)
            data.metrics[metric.key] = metric.value
            if metric not in data.history:  # as MLflow's databases
                data.history.append(metric)

    def get_metric_history(self, run_id: str, key: str) -> list[Any]:
        return [metric for metric in self.store["runs"][run_id].data.history if metric.key == key]

    def set_tag(self, run_id: str, key: str, value: str) -> None:
        _check_name(key)
        self.store["runs"][run_id].data.tags[key] = value

    def set_terminated(self, run_id: str, status: str, end_time: int) -> None:
        info = self.store["runs"][run_id].info
        info.status, info.end_time = status, end_time


def _check_name(name: str) -> None:
    assert all(character.isalnum() or character in "_/.- :" for character in name), name


def fake_mlflow() -> dict[str, ModuleType]:
    """Return modules of a new, empty MLflow."""
    mlflow, entities = ModuleType("mlflow"), ModuleType("mlflow.entities")
    entities.Metric = lambda key, value, timestamp, step: Named(key=key, value=value, timestamp=timestamp, step=step)
    entities.Param = lambda key, value: Named(key=key, value=value)
    mlflow.MlflowClient, mlflow.entities = type("Client", (FakeClient,), {"stores": {}}), entities
    return {"mlflow": mlflow, "mlflow.entities": entities}


def held_by_mlflow(folder: Path) -> dict[str, Held]:
    """Return what a store of MLflow holds, by configuration."""
    import mlflow

    client = mlflow.MlflowClient(tracking_uri=f"sqlite:///{folder.absolute() / 'mlflow.db'}")
    found = client.search_runs([client.get_experiment_by_name("flyball").experiment_id])
    held = {}
    for run in found:
        tags, history = run.data.tags, getattr(run.data, "history", None)
        names = run.data.metrics if history is None else {metric.key for metric in history}
        assert run.data.tags["flyball.config"] not in held, "one run for each configuration"
        held[tags["flyball.config"]] = Held(
            {
                name: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, name)]
                for name in names
            },
            run.data.params,
            {name.removeprefix("decided."): int(tags[name]) for name in tags if name.startswith("decided.")},
            tags["mlflow.note.content"],
        )
    return held


def fake_wandb() -> dict[str, ModuleType]:
    """Return a module that writes the records of offline runs into files, as lines of JSON."""
    numbers = count()

    class Run:
        def __init__(self, folder: Path, config: Mapping[str, Any]) -> None:
            folder.mkdir(parents=True)
            self.file, self.summary, self.notes = folder / "run.wandb", {}, ""
            self.write("config", config)

        def write(self, kind: str, value: Any) -> None:
            with self.file.open("a") as file:
                file.write(json.dumps([kind, value]) + "\n")

        def define_metric(self, name: str, step_metric: str | None = None) -> None:
            pass

        def log(self, values: Mapping[str, float]) -> None:
            self.write("history", values)

        def finish(self) -> None:
            self.write("summary", self.summary)
            self.write("notes", self.notes)

    def init(*, dir: str, id: str, mode: str, config: Mapping[str, Any], **_: Any) -> Run:  # noqa: A002 - W&B's names
        assert mode == "offline"
        return Run(Path(dir) / "wandb" / f"offline-run-{next(numbers)}-{id}", config)

    wandb = ModuleType("wandb")
    wandb.init, wandb.Histogram, wandb.Error = init, None, type("Error", (Exception,), {})
    return {"wandb": wandb}


def held_by_wandb(folder: Path) -> dict[str, Held]:
    """Return what offline runs in a folder hold, by configuration."""
    held = {}
    for key in sorted({path.parents[2].name for path in folder.rglob("*.wandb")}):
        parts: dict[str, Any] = {"config": {}, "summary": {}, "notes": ""}
        curves: dict[str, list[tuple[int, float]]] = {}
        for path in sorted(folder.glob(f"*/{key}/wandb/offline-run-*/*.wandb")):
            for kind, value in _records(path):
                if kind == "history":
                    for name in value.keys() - {"training_step"}:
                        curves.setdefault(name, []).append((value["training_step"], value[name]))
                elif kind == "notes":
                    parts[kind] = value or parts[kind]
                else:
                    parts[kind] |= value
        counts = {name: value for name, value in parts["summary"].items() if name.startswith("decided/")}
        held[key] = Held(
            curves,
            {name: str(value) for name, value in parts["config"].items() if name != "_wandb"},  # versions, and times
            {name.removeprefix("decided/"): int(value) for name, value in counts.items()},
            parts["notes"],
        )
    return held


def _records(path: Path) -> Iterator[tuple[str, Any]]:
    data = path.read_bytes()
    if not data.startswith(b":W&B"):
        yield from map(json.loads, data.splitlines())
        return
    from wandb.proto.wandb_internal_pb2 import Record

    for raw in _chunks(data):
        record = Record()
        record.ParseFromString(raw)
        match record.WhichOneof("record_type"):
            case "history":
                items = record.history.item
                values = {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}
                yield "history", {name: value for name, value in values.items() if not name.startswith("_")}
            case "run":
                yield "notes", record.run.notes
                yield "config", {item.key: json.loads(item.value_json) for item in record.run.config.update}
            case "config":
                yield "config", {item.key: json.loads(item.value_json) for item in record.config.update}
            case "summary":
                items = record.summary.update
                yield "summary", {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def _chunks(data: bytes) -> Iterator[bytes]:
    """Iterate over the records of a file in LevelDB's log format, after a header of seven bytes."""
    position, whole, block = 7, b"", 32_768
    while position < len(data):
        if block - position % block < 7:
            position += block - position % block
            continue
        _, length, kind = struct.unpack_from("<IHB", data, position)
        whole += data[position + 7 : position + 7 + length]
        position += 7 + length
        if kind in (1, 4):  # the whole record, or its last part
            yield whole
            whole = b""
