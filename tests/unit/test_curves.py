"""Curves: one record a configuration. Evaluations lie beside the trainings that made their models."""

import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from builders import recorded
from commands import invoke, refused
from driving import gated, match, rated, trained
from recorded_run import recording
from structlog.testing import capture_logs
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from flyball.app.config import Deployment, RunFolder
from flyball.app.events import CheckpointAdded, Event, Payload
from flyball.app.telemetry import NoWandb, RunCurves, TensorBoardCurves, check_wandb, points

CONFIG = "connect_four_2p"


def event(data: Payload, position: int = 1, config: str = CONFIG) -> Event[Payload]:
    return recorded(data, position, config, seconds=1_700_000_000 + position / 1e6)


def joined(role: str) -> CheckpointAdded:
    return CheckpointAdded(model="a" * 64, parent=None, step=7, elo=120.0, elo_stderr=9.0, games=9, roles=(role,))


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder))
    found.Reload()
    return found


def test_curves_have_metrics_and_ratings_at_their_step() -> None:
    drawn = {point.tag: point.value for point in points(trained(step=3, entropy=1.25))}
    assert (drawn["train/entropy"], drawn["train/rows"]) == (1.25, 100)
    assert {point.step for point in points(trained(step=3))} == {3}
    drawn = {point.tag: point for point in points(rated(120.0, match(0.75, elo=50.0), step=7))}
    assert drawn["evaluation/elo"] == ("evaluation/elo", 120.0, 7)
    assert drawn["evaluation/score/random"].value == pytest.approx(0.75)
    assert drawn["evaluation/opponent_elo/random"].value == 50.0
    assert drawn["evaluation/lost_games"].value == 0
    assert (drawn["league/elo/hero"].value, drawn["league/elo/random"].value) == (120.0, 50.0)
    assert list(points(joined("elite"))) == [("league/elo/past_best", 120.0, 7)]


@pytest.mark.parametrize(
    ("data", "tags"),
    [
        (trained().replace(metrics={"td_error": 0.5}), {"train/rows", "train/td_error"}),  # of another backend
        (trained().replace(metrics=None), {"train/rows"}),  # a first model
        (gated(6, 2, 2), {"evaluation/gate/score"}),
        (joined("recent"), set()),
    ],
)
def test_curves_of_events_have_these_tags(data: Payload, tags: set[str]) -> None:
    assert {point.tag for point in points(data)} == tags


def test_a_files_curves_are_those_of_the_events(tmp_path: Path) -> None:
    curves = TensorBoardCurves(tmp_path)
    for position, data in enumerate((trained(step=1), rated(10.0, step=1), rated(30.0, step=2)), 1):
        curves.take(event(data, position))
    curves.take(event(rated(5.0), 4, "hex7_2p"))
    curves.flush()
    found = read(tmp_path / CONFIG)
    assert [(scalar.step, scalar.value) for scalar in found.Scalars("evaluation/elo")] == [(1, 10.0), (2, 30.0)]
    times = [scalar.wall_time for scalar in found.Scalars("evaluation/elo")]
    assert times == pytest.approx([1_700_000_000.000002, 1_700_000_000.000003], abs=1e-7)
    assert found.Scalars("train/entropy")[0].value == pytest.approx(0.1)
    assert [scalar.value for scalar in read(tmp_path / "hex7_2p").Scalars("evaluation/elo")] == [5.0]
    curves.close()


@pytest.mark.parametrize("lost", [Path.unlink, lambda file: shutil.rmtree(file.parent)], ids=["file", "folder"])
def test_curves_go_on_after_a_loss_of_their_files(tmp_path: Path, lost: Callable[[Path], None]) -> None:
    curves = TensorBoardCurves(tmp_path)
    for step in (1, 2):
        curves.take(event(rated(step * 10.0, step=step), step))
        curves.flush()
        if step == 1:
            (file,) = (tmp_path / CONFIG).iterdir()
            lost(file)
    curves.close()
    assert [scalar.value for scalar in read(tmp_path / CONFIG).Scalars("evaluation/elo")] == [20.0]


def test_a_new_start_goes_on_with_the_same_curve(tmp_path: Path) -> None:
    for start in range(3):
        curves = TensorBoardCurves(tmp_path)
        curves.take(event(rated(start * 10.0, step=start), start) if start else event(joined("recent")))
        curves.close()
        assert len(list(tmp_path.rglob("events*"))) == start, "events without points make no file"
    found = read(tmp_path / CONFIG).Scalars("evaluation/elo")  # of files of one second, in either order
    assert [scalar.step for scalar in sorted(found, key=lambda scalar: scalar.wall_time)] == [1, 2]


def test_run_curves_at_wandb_are_those_of_tensorboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is an extra: pip install 'flyball[wandb]'")
    monkeypatch.setenv("WANDB_SILENT", "true")
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    for start in ("first", "second"):  # a later start continues the same W&B runs
        curves = RunCurves(folder, Deployment(wandb="offline"), start)
        curves.take(event(trained(step=1, entropy=1.25)))
        curves.take(event(rated(30.0, step=2), 2, "hex7_2p"))
        curves.flush()
        curves.close()
    assert read(folder.curves / CONFIG).Scalars("train/entropy")[0].value == 1.25
    for config in (CONFIG, "hex7_2p"):
        assert (folder.curves / config / "wandb.id").read_text() == f"first-{config}"
        records = sorted((folder.curves / config).glob(f"wandb/offline-run-*-first-{config}/*.wandb"))
        assert records, config
        content = b"".join(record.read_bytes() for record in records)
        assert b"training_step" in content
        assert (b"train/entropy" in content) == (config == CONFIG)
        assert (b"evaluation/elo" in content) == (config == "hex7_2p")


@pytest.mark.parametrize("failure", [OSError("the disk is full"), ValueError("unknown entity")])
def test_wandb_failure_costs_only_its_own_curves(tmp_path, monkeypatch, failure) -> None:
    """Events that come later are not kept."""

    def refuse(**_: object) -> None:
        raise failure

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse, Error=ConnectionError))
    before = set(threading.enumerate())
    curves = RunCurves(RunFolder(tmp_path), Deployment(wandb="offline"), "id")
    with capture_logs() as logs:
        curves.take(event(trained(step=1), 1))
        for thread in set(threading.enumerate()) - before:
            if thread.name == "wandb":
                thread.join(10)
        later = event(trained(step=2), 2)
        kept = sys.getrefcount(later)
        curves.take(later)
        assert sys.getrefcount(later) == kept
        curves.close()
    assert [point.step for point in read(tmp_path / "curves" / CONFIG).Scalars("train/rows")] == [1, 2]
    assert [(log["event"], log["error"]) for log in logs] == [("W&B receives no more curves", str(failure))]


@pytest.mark.parametrize(
    ("mode", "installed", "words"),
    [
        ("offline", False, r"pip install 'flyball\[wandb\]', or set deployment.wandb to off"),
        ("online", False, "needs wandb"),
        ("online", True, "no API key. Run `wandb login`"),
    ],
)
def test_wandb_that_cannot_be_used_is_refused(monkeypatch, mode: str, installed: bool, words: str) -> None:
    no_key = SimpleNamespace(login=lambda **_: False) if installed else None
    monkeypatch.setitem(sys.modules, "wandb", no_key)
    with pytest.raises(NoWandb, match=words):
        check_wandb(mode, "deployment.wandb")
    check_wandb("off", "deployment.wandb")


def test_up_refuses_wandb_before_it_starts_anything(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    (tmp_path / "flyball.toml").write_text('configs = ["tic_tac_toe_2p"]\n[deployment]\nwandb = "offline"\n')
    refused(invoke("up", run=tmp_path), 1, "needs wandb")
    assert [path.name for path in tmp_path.iterdir()] == ["flyball.toml"]


def test_curves_of_a_moved_run_make_no_folder(tmp_path: Path) -> None:
    """Events before the move are drawn, and later ones are left to the next start."""
    (tmp_path / "run").mkdir()
    curves = RunCurves(RunFolder(tmp_path / "run"), Deployment(), "id")
    first, *others = (event for event in recording().events if list(points(event.data)))
    curves.take(first)
    curves.flush()
    (tmp_path / "run").rename(tmp_path / "moved")
    for event in others:
        curves.take(event)
    assert not (tmp_path / "run").exists()
    assert list((tmp_path / "moved" / "curves").rglob("events.*"))
    curves.close()
