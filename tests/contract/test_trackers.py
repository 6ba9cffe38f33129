"""Every experiment tracker holds what a run recorded, however often it is exported.

MLflow and W&B are extras. Stand-ins that refuse what they refuse take their place, so that the adapters run everywhere.
"""

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from importlib.util import find_spec
from itertools import count
from pathlib import Path
from typing import NamedTuple

import pytest
from commands import invoke, refused, succeeded, told
from generated_run import generated, laptop, write_generated
from tracker_stores import Held, fake_mlflow, fake_wandb, held_by_mlflow, held_by_wandb

from flyball.app.api.exporting import export_run
from flyball.app.api.runs import locate_run
from flyball.app.core import ConfigKey, derive_id
from flyball.app.events import EvaluationCompleted, Event, ExplorationBoost, Payload, TrainingCompleted, originate
from flyball.app.replay.run_points import RunPoints
from flyball.app.telemetry import MlflowTracker, WandbTracker
from flyball.app.telemetry.trackers import Identity, Summary, TrackedPoint, Tracker, TrackerUnavailable

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # what trackers import warns of itself
KEY = "tic_tac_toe_2p"
EVENTS = tuple(generated(1500, seed=2))
EARLIER = 700
"""Events at the first of two exports, while the run is running."""


class Store(NamedTuple):
    """A tracker under test."""

    name: str
    open: Callable[[Path], Tracker]
    held: Callable[[Path], dict[str, Held]]


STORES = {
    "mlflow": (Store("mlflow", lambda folder: MlflowTracker(str(folder)), held_by_mlflow), fake_mlflow),
    "wandb": (Store("wandb", WandbTracker, held_by_wandb), fake_wandb),
}


@pytest.fixture(params=["mlflow", "wandb", "mlflow in memory", "wandb in memory"])
def store(request, monkeypatch: pytest.MonkeyPatch) -> Store:
    name, _, stands_in = request.param.partition(" ")
    found, fake = STORES[name]
    if stands_in:
        for module, content in fake().items():
            monkeypatch.setitem(sys.modules, module, content)
    elif find_spec(name) is None:
        pytest.skip(f"{name} is an extra: pip install 'flyball[{name}]'")
    return found


def run_of(folder: Path, count: int = len(EVENTS)) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "journal.sqlite").unlink(missing_ok=True)
    write_generated(folder / "journal.sqlite", EVENTS[:count])
    return folder


def exported(store: Store, run: Path, to: Path, key: str | None = None) -> dict[str, int]:
    return export_run(locate_run(run), store.open(to), key, lambda _: None)


def test_tracker_holds_what_the_events_say(store: Store, tmp_path: Path) -> None:
    exported(store, run_of(tmp_path / "run"), tmp_path / "to")
    held = store.held(tmp_path / "to")
    assert set(held) == {config.key for config in laptop().configs}
    for key, one in held.items():
        about = [event.data for event in EVENTS if event.subject == key]
        rated = [data for data in about if isinstance(data, EvaluationCompleted) and data.purpose == "rating"]
        assert one.curves["evaluation/elo"] == [(data.step, pytest.approx(data.elo)) for data in rated]
        trained = [data for data in about if isinstance(data, TrainingCompleted) and data.metrics]
        losses = [(data.step, pytest.approx(data.metrics["policy_loss"])) for data in trained]
        assert one.curves.get("train/policy_loss", []) == losses
        counts = Counter(data.event_name for data in about)
        assert one.decided["ModelLifecycleCoordinator/MODEL_PROMOTED"] == counts["MODEL_PROMOTED"]
        for name in ("MODEL_PROMOTED", "CHECKPOINT_ADDED"):
            assert one.curves[f"decisions/{name}"] == decided(about, name)
        assert one.curves["knobs/learning_rate"][0] == (0, laptop().config(key).learning_rate)
        assert one.settings["learning_rate"] == str(laptop().config(key).learning_rate)
        assert (one.settings["seed"], one.settings["game"]) == ("0", laptop().config(key).game)
        assert "by ModelLifecycleCoordinator" in one.notes


def decided(about: Iterable[Payload], name: str) -> list[tuple[int, int]]:
    """Return a decision's points: the step of the training completed last, and how many there were."""
    step, found = 0, list[tuple[int, int]]()
    for data in about:
        step = data.step if isinstance(data, TrainingCompleted) else step
        if data.event_name == name:
            found.append((step, len(found) + 1))
    return found


def test_other_models_do_not_move_the_step_of_decisions() -> None:
    """A rating is at the rated model's step, and what is decided later at that of the latest training."""
    points, found = RunPoints((), (), EVENTS[0].recorded_us), dict[str, list[int]]()
    last, about = EVENTS[-1], [event.data for event in EVENTS if event.subject == KEY]
    old = next(data for data in about if isinstance(data, EvaluationCompleted))
    newest = [data.step for data in about if isinstance(data, TrainingCompleted)][-1]
    boost = ExplorationBoost(multiplier=1.5, lasts_seconds=60.0, reason="a stall")
    added = []
    for number, data in enumerate((old, boost), start=last.sequence + 1):
        envelope = originate(data, event_id=derive_id("t", number), time=last.recordedtime, subject=KEY)
        added.append(Event(envelope, number, last.recorded_us, "feedback@laptop"))
    for event in (*EVENTS, *added):
        for key, point in points.take(event):
            if key == KEY and event in added:
                found |= {name: [*found.get(name, []), point.step] for name in point.values}
    assert found["evaluation/elo"] == [old.step]
    assert found["decisions/EXPLORATION_BOOST"] == found["knobs/exploration_boost"] == [newest]
    assert old.step != newest


def test_exporting_again_doubles_nothing(store: Store, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run")
    exported(store, run, tmp_path / "to")
    once = store.held(tmp_path / "to")
    exported(store, run, tmp_path / "to")
    assert store.held(tmp_path / "to") == once


def test_export_of_a_running_run_is_continued(store: Store, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", EARLIER)
    exported(store, run, tmp_path / "to")
    before = store.held(tmp_path / "to")[KEY].curves["evaluation/elo"]
    exported(store, run_of(run), tmp_path / "to")
    exported(store, run, tmp_path / "at_once")
    held, whole = store.held(tmp_path / "to"), store.held(tmp_path / "at_once")
    assert held == whole
    assert 0 < len(before) < len(held[KEY].curves["evaluation/elo"])


def test_one_configuration_alone_can_be_exported(store: Store, tmp_path: Path) -> None:
    assert list(exported(store, run_of(tmp_path / "run"), tmp_path / "to", KEY)) == [KEY]
    assert list(store.held(tmp_path / "to")) == [KEY]


def test_odd_names_many_values_and_changes_are_kept(store: Store, tmp_path: Path) -> None:
    """Settings that change between two exports hinder none, and the earlier values stay."""
    identity = Identity("0123456789abcdef", "run", ConfigKey(KEY), 1_770_000_000_000, {"a.b": 1, "long": "x" * 9000})
    run = store.open(tmp_path).open(identity)
    for step in range(1200):
        values = {"evaluation/score/current+64": step / 1200, "evaluation/score/mcts:1000": 0.5}
        run.log(TrackedPoint(step + 1, 1_770_000_000_000 + step, step / 60, step, values))
    run.close(Summary(1200, 1_770_000_001_200, {"Gate/MODEL_PROMOTED": 3}, "notes " * 2000))
    held = store.held(tmp_path)[KEY]
    (odd,) = (name for name in held.curves if name.startswith("evaluation/score/current"))
    assert held.curves[odd] == [(step, pytest.approx(step / 1200)) for step in range(1200)]
    assert held.decided == {"Gate/MODEL_PROMOTED": 3}
    changed = identity._replace(settings={"a.b": 2, "long": "x" * 9000})
    store.open(tmp_path).open(changed).close(Summary(1200, 1_770_000_001_200, {"Gate/MODEL_PROMOTED": 3}, ""))
    assert store.held(tmp_path)[KEY].settings["a.b"] == {"mlflow": "1", "wandb": "2"}[store.name]


def test_command_exports_and_says_how_to_look(store: Store, tmp_path: Path) -> None:
    run = run_of(tmp_path / "run", EARLIER)
    written = told(invoke("export", store.name, tmp_path / "to", "--json", run=run))
    assert written.keys() == store.held(tmp_path / "to").keys()
    assert min(written.values()) > 0
    again = succeeded(invoke("export", store.name, tmp_path / "to", "--config", KEY, run=run))
    assert {"mlflow": "mlflow ui", "wandb": "wandb sync"}[store.name] in again.stderr
    refused(invoke("export", store.name, tmp_path / "to", "--config", "hex8_2p", run=run), 4, "does not play hex8_2p")


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_missing_package_is_named(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    result = invoke("export", name, tmp_path / "to", run=run_of(tmp_path / "run", 50))
    assert result.exit_code != 0
    assert f"pip install 'flyball[{name}]'" in result.stderr
    assert not (tmp_path / "to").exists()


class MlflowError(Exception):
    """An error as MLflow raises it: with a code, and a cause in its chain."""

    def __init__(self, text: str, code: str) -> None:
        super().__init__(text)
        self.error_code = code


def unreached() -> None:
    try:
        raise ConnectionRefusedError(111, "Connection refused")
    except OSError:
        raise MlflowError("API request to …: Max retries exceeded", "INTERNAL_ERROR")  # noqa: B904 - as MLflow does


def unknown_to_it() -> None:
    raise MlflowError("401 != 200. Response body: 'no'", "UNAUTHENTICATED")


def without_driver() -> None:
    raise ModuleNotFoundError("No module named 'psycopg'")


@pytest.mark.parametrize(
    ("fails", "code", "words"),
    [
        (unreached, 5, ("did not answer, or failed: [Errno 111] Connection refused.", "repeat the command")),
        (unknown_to_it, 2, ("refuses this access: 401", "MLFLOW_TRACKING_TOKEN")),
        (without_driver, 2, ("cannot use http://tracker: No module named 'psycopg'.", "Name a folder")),
    ],
)
@pytest.mark.parametrize("call", ["get_experiment_by_name", "create_run", "set_tag"])
def test_export_to_an_mlflow_that_fails_says_so(
    call: str, fails: Callable[[], None], code: int, words: Sequence[str], tmp_path: Path, monkeypatch
) -> None:
    modules = fake_mlflow()
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, content)
    monkeypatch.setattr(modules["mlflow"].MlflowClient, call, lambda *_, **__: fails())
    result = invoke("export", "mlflow", "http://tracker", run=run_of(tmp_path / "run", 50))
    refused(result, code, *words)


def test_failed_export_to_mlflow_is_completed_by_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules, (store, _) = fake_mlflow(), STORES["mlflow"]
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, content)
    client, calls, run = modules["mlflow"].MlflowClient, count(), run_of(tmp_path / "run", EARLIER)
    tag = client.set_tag
    exported(store, run, tmp_path / "at_once")

    def now_and_then(self, *arguments: str) -> None:
        if next(calls) > 15:
            unreached()
        tag(self, *arguments)

    monkeypatch.setattr(client, "set_tag", now_and_then)
    with pytest.raises(TrackerUnavailable):
        exported(store, run, tmp_path / "to")
    assert any(one.data.history for one in client(f"sqlite:///{tmp_path / 'to' / 'mlflow.db'}").search_runs(["1"]))
    monkeypatch.setattr(client, "set_tag", tag)
    exported(store, run, tmp_path / "to")
    assert store.held(tmp_path / "to") == store.held(tmp_path / "at_once")


def test_deleted_experiment_is_named_with_its_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = fake_mlflow()
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, content)
    run = run_of(tmp_path / "run", 50)
    succeeded(invoke("export", "mlflow", "http://tracker", run=run))
    modules["mlflow"].MlflowClient("http://tracker").delete_experiment("1")
    result = invoke("export", "mlflow", "http://tracker", run=run)
    refused(result, 2, "The experiment flyball in http://tracker is deleted.", "experiments restore --experiment-id 1")


def test_wandb_that_begins_no_run_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modules = fake_wandb()
    for module, content in modules.items():
        monkeypatch.setitem(sys.modules, module, content)

    def failing(**_: object) -> None:
        raise modules["wandb"].Error("timed out\nafter 90 s")

    monkeypatch.setattr(modules["wandb"], "init", failing)
    result = invoke("export", "wandb", tmp_path / "to", run=run_of(tmp_path / "run", 50))
    refused(result, 5, f"W&B did not begin the run run/{KEY}: timed out after 90 s.", "repeat the command")


@pytest.mark.parametrize("name", ["mlflow", "wandb"])
def test_export_into_a_file_is_refused(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, content in {**fake_mlflow(), **fake_wandb()}.items():
        monkeypatch.setitem(sys.modules, module, content)
    (tmp_path / "to").touch()
    refused(invoke("export", name, tmp_path / "to", run=run_of(tmp_path / "run", 50)), 2, "cannot be written")


def test_folder_without_a_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for module, content in fake_wandb().items():
        monkeypatch.setitem(sys.modules, module, content)
    refused(invoke("export", "wandb", tmp_path / "to", run=tmp_path), 3, "There is no run in")
