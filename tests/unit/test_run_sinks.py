"""Sinks of a training run: TensorBoard, CSV and W&B. Each iteration is written once despite interruptions."""

import csv
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from iterations import StillClock, iteration
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.summary.writer import event_file_writer
from tensorboard.util.tensor_util import make_ndarray

from flyball.app.telemetry import NoWandb, TensorBoardFile
from flyball.app.train.sinks import (
    COLUMNS,
    CsvLog,
    ForeignLog,
    TensorBoardSink,
    WandbSink,
    histograms,
    read_log,
    scalars,
)

OF_THE_SEED = {
    *("train/policy_loss", "train/value_loss", "train/entropy", "train/approx_kl", "train/clip_fraction"),
    *("eval/avg_points", "eval/win_rate"),
}


def test_histograms_and_scalars_have_the_names_of_the_seed() -> None:
    named = dict(scalars(iteration(1)))
    assert named.keys() >= OF_THE_SEED | {"gradients/trunk.0.weight", "gradients/policy_head.weight"}
    assert named["eval/avg_points"] == 6.25
    assert named["seconds/total"] == 4.0
    assert "eval/avg_points" not in dict(scalars(iteration(1, points=None)))
    unknown = dict(scalars(iteration(1, evaluation=None, metrics={}, mean_points=None)))
    assert not [name for name in unknown if name.startswith("eval/")]
    assert not {"train/explained_variance", "collect/mean_points"} & unknown.keys()
    assert unknown["train/recovered"] == 0
    named = dict(histograms(iteration(1)))
    assert named.keys() == {
        *("network/actor_logits", "network/values", "network/advantages"),
        *(f"weights/{layer}" for layer in ("trunk.0", "trunk.1", "policy_head", "value_head")),
    }
    assert named["weights/trunk.0"].shape == (5, 6)
    assert named["weights/value_head"].shape == (4, 1)
    empty = iteration(1).distributions
    nothing = replace(empty, logits=np.zeros(0), advantages=np.array([np.nan]), gradients={})
    assert (
        not {"network/actor_logits", "network/advantages"}
        & dict(histograms(iteration(1, distributions=nothing))).keys()
    )


def read(folder: Path) -> EventAccumulator:
    found = EventAccumulator(str(folder), size_guidance={"tensors": 0, "scalars": 0})
    found.Reload()
    return found


def texts(found: EventAccumulator, tag: str) -> list[tuple[int, str]]:
    return [(each.step, make_ndarray(each.tensor_proto).item().decode()) for each in found.Tensors(tag)]


def test_tensorboard_has_curves_histograms_and_texts(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, {"ppo": {"learning_rate": 3e-4}, "seed": 1}, StillClock())
    sink.write(iteration(1, best=True))
    sink.write(iteration(2))
    sink.close()
    found = read(tmp_path)
    assert set(found.Tags()["scalars"]) >= OF_THE_SEED
    assert [(point.step, point.value) for point in found.Scalars("train/policy_loss")] == [
        (1, pytest.approx(-0.01)),
        (2, pytest.approx(-0.005)),
    ]
    buckets = make_ndarray(found.Tensors("network/values")[0].tensor_proto)  # left, right, count each
    assert buckets[:, 2].sum() == 100
    assert buckets[0, 0] == pytest.approx(iteration(1).distributions.values.min())
    assert "| ppo.learning_rate | 0.0003 |" in texts(found, "config")[0][1]
    assert texts(found, "best_iteration") == [(1, "1")]
    noon = 1769860800  # 2026-01-31T12:00Z
    assert [point.wall_time - noon for point in found.Scalars("train/entropy")] == [60, 120]


def test_the_curves_of_evaluations_begin_with_the_first_policy(tmp_path: Path) -> None:
    sink = TensorBoardSink(tmp_path, {}, StillClock())
    first = iteration(1).evaluation
    sink.begin(replace(first, outcome=-0.5))
    sink.begin(replace(first, outcome=-0.4))  # interrupted before its first checkpoint
    sink.write(iteration(1))
    sink.close()
    found = read(tmp_path)
    points = [(point.step, round(point.value, 3)) for point in found.Scalars("eval/outcome")]
    assert points == [(0, -0.4), (1, 0.01)]
    assert [point.step for point in found.Scalars("train/policy_loss")] == [1]


def test_tensorboard_shows_what_a_resumed_run_repeats_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # Files of one process and second are read in the order of their counters as text, in which 10 is before 9.
    monkeypatch.setattr(event_file_writer, "_global_uid", event_file_writer.AtomicCounter(0))
    for numbers in ((1, 2, 3, 4), (3, 4, 5)):
        sink = TensorBoardSink(tmp_path, {}, StillClock())
        for number in numbers:
            sink.write(iteration(number, metrics={"policy_loss": number + len(numbers) / 10}))
        sink.close()
    points = [(point.step, round(point.value, 3)) for point in read(tmp_path).Scalars("train/policy_loss")]
    assert points == [(1, 1.4), (2, 2.4), (3, 3.3), (4, 4.3), (5, 5.3)]


def test_a_board_that_nothing_is_written_to_makes_no_file(tmp_path: Path) -> None:
    board = TensorBoardFile(tmp_path / "board")
    board.flush()
    board.close()
    assert not (tmp_path / "board").exists()


def logged(path: Path, *numbers: int, **changes) -> None:
    log = CsvLog(path, StillClock())
    for number in numbers:
        log.write(iteration(number, **changes))
    log.close()


def test_the_csv_log_has_the_columns_of_the_seed_first(tmp_path: Path) -> None:
    path = tmp_path / "run" / "training_log.csv"
    logged(path, 1, 2)
    lines = path.read_text().splitlines()
    assert lines[0].startswith(
        "iteration,timestamp,policy_loss,value_loss,entropy,kl_div,eval_avg_points,eval_win_rate,checkpoint,"
    )
    assert lines[1].startswith("1,2026-01-31T12:01:00+00:00,-0.01,0.05,1.5,0.004,6.25,0.25,false,normal,400,0.01,")
    rows = list(csv.DictReader(lines))
    assert [row["iteration"] for row in rows] == ["1", "2"]
    assert tuple(rows[0]) == COLUMNS
    assert rows[1]["seconds"] == "4"
    assert read_log(path) == rows


def test_what_is_unknown_is_empty_in_the_log(tmp_path: Path) -> None:
    logged(tmp_path / "log.csv", 1, evaluation=None, mean_points=None)
    (row,) = read_log(tmp_path / "log.csv")
    assert row["eval_avg_points"] == row["eval_opponent"] == row["mean_points"] == ""
    assert row["recovered"] == "false"


def test_resumed_logs_repeat_no_row(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    logged(path, 1, 2, 3, 4)
    first = path.read_text().splitlines()[:3]
    logged(path, 3, 4, 5, metrics={"policy_loss": 9.0})
    assert [row["iteration"] for row in read_log(path)] == ["1", "2", "3", "4", "5"]
    assert [row["policy_loss"] for row in read_log(path)][2:] == ["9"] * 3
    assert path.read_text().splitlines()[:3] == first
    log = CsvLog(path, StillClock())
    for number in (5, 6, 5, 6):  # also within a process
        log.write(iteration(number))
    assert [row["iteration"] for row in read_log(path)] == ["1", "2", "3", "4", "5", "6"]
    path = tmp_path / "log.csv"
    for _ in range(2):  # like a run that is interrupted before its first checkpoint
        log = CsvLog(path, StillClock())
        log.begin(iteration(1).evaluation)
        log.write(iteration(1))
        log.close()
    first, second = read_log(path)
    assert [first["iteration"], second["iteration"]] == ["0", "1"]
    assert [first["eval_avg_points"], first["checkpoint"], first["policy_loss"]] == ["6.25", "true", ""]


def test_log_of_an_earlier_version_gets_the_new_columns(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    logged(path, 1, 2)
    rows = list(csv.reader(path.read_text().splitlines()))
    path.write_text("".join(",".join(row[:-2]) + "\n" for row in rows))
    assert [tuple(row) for row in read_log(path)] == [COLUMNS[:-2]] * 2
    logged(path, 3, metrics={"divergence": 0.5, "replayed_rows": 4000.0})
    assert [row["divergence"] for row in read_log(path)] == ["", "", "0.5"]
    assert [row["policy_loss"] for row in read_log(path)] == ["-0.01", "-0.005", ""]
    assert read_log(path)[2]["replayed_rows"] == "4000"


@pytest.mark.parametrize("cut", [1, 5, 40, 120])
def test_a_row_that_was_written_half_is_dropped(tmp_path: Path, cut: int) -> None:
    path = tmp_path / "log.csv"
    logged(path, 1, 2, 3)
    path.write_bytes(path.read_bytes()[:-cut])
    assert [row["iteration"] for row in read_log(path)] == ["1", "2"]
    logged(path, 4)
    whole = path.read_text()
    assert [row["iteration"] for row in read_log(path)] == ["1", "2", "4"]
    assert len(whole.splitlines()) == 4
    assert whole.endswith("\n")


def test_another_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "log.csv"
    path.write_text("a,b\n1,2\n")
    with pytest.raises(ForeignLog, match=r"log\.csv is no log of a training run"):
        logged(path, 1)
    assert path.read_text() == "a,b\n1,2\n"
    path.write_text("")
    with pytest.raises(ForeignLog):
        logged(path, 1)


def test_a_run_is_logged_with_wandb_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="Weights & Biases is an extra: pip install 'flyball[wandb]'")
    monkeypatch.setenv("WANDB_SILENT", "true")
    for numbers in ((1, 2), (2, 3)):
        sink = WandbSink(tmp_path, "a name", f"run{numbers[0]}", {"ppo": {"learning_rate": 3e-4}}, "offline")
        for number in numbers:
            sink.write(iteration(number, best=number == 2))
        sink.close()
    records = sorted(tmp_path.glob("wandb/offline-run-*-run1/run-run1.wandb"))
    assert len(records) >= 1
    assert not list(tmp_path.glob("wandb/*run2*")), "a resumed run goes on under its own id"
    content = b"".join(record.read_bytes() for record in records)
    for name in (b"train/policy_loss", b"eval/avg_points", b"network/values", b"best_iteration", b"learning_rate"):
        assert name in content, name


def test_without_wandb_the_reader_is_told_how_to_get_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "wandb", None)
    with pytest.raises(NoWandb, match="needs wandb") as raised:
        WandbSink(tmp_path, "a name", "a-run", {}, "offline")
    assert "flyball[wandb]" in raised.value.hint
