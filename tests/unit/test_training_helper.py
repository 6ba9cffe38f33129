"""The class ``Training``: inputs, reports and results of a trainer."""

from pathlib import Path

import numpy as np
import pytest
import torch
from own_training import TIC_TAC_TOE, first_model, stored, train_spec
from selfplay_rig import ignore

from app.learning.network import bytes_to_parameters
from app.learning.samples import advantages
from app.learning.training import BadProgress, DiscardedUpdate, Training, UnfitModel
from app.store import FileStore, get_checkpoint


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "store"


@pytest.fixture
def training(root: Path) -> Training:
    return Training(train_spec(root, TIC_TAC_TOE, first_model(root, TIC_TAC_TOE), games=8), ignore)


def test_rows_of_two_shards_number_their_games_apart(root: Path) -> None:
    model = first_model(root, TIC_TAC_TOE)
    spec, other = train_spec(root, TIC_TAC_TOE, model, games=8), train_spec(root, TIC_TAC_TOE, model, games=5)
    training = Training({**spec, "shards": spec["shards"] + other["shards"]}, ignore)
    rows, (first, second) = training.rows, training.shards
    assert len(rows) == first.rows + second.rows
    assert np.array_equal(np.unique(rows.game), np.arange(13))
    assert {len(column) for column in rows.columns().values()} == {len(rows)}
    assert rows.mask[np.arange(len(rows)), rows.action].all()
    assert set(rows.temperature) == {1.0}
    expected = np.concatenate([advantages(shard, 0.9, 0.5) for shard in training.shards])
    assert np.array_equal(training.advantages(0.9, 0.5), expected)


def test_training_gives_and_keeps_parameters(training: Training, root: Path) -> None:
    state, base = training.network().state_dict(), training.parameters()
    assert state.keys() == base.keys()
    assert all(torch.equal(state[name], base[name]) for name in base)
    assert all(parameter.requires_grad for parameter in training.network().parameters())
    arrays = {name: np.asfortranarray(tensor.numpy()) for name, tensor in training.parameters().items()}
    model = training.finish(arrays)["model"]
    kept = bytes_to_parameters(get_checkpoint(FileStore(root), model).parameters)
    assert all(np.array_equal(kept[name].numpy(), array) for name, array in arrays.items())


def test_finish_stores_a_successor_of_the_base(training: Training, root: Path) -> None:
    parameters = {name: tensor + 1 for name, tensor in training.parameters().items()}
    result = training.finish(parameters, policy_loss=np.float32(0.5))
    found = get_checkpoint(FileStore(root), result["model"], optimizer=True)
    assert (found.manifest.parent, found.manifest.step, found.optimizer) == (training.base.model, 1, None)
    assert (result["parent"], result["step"], result["rows"]) == (training.base.model, 1, len(training.rows))
    assert result["metrics"].keys() == {"policy_loss", "seconds"}
    kept = bytes_to_parameters(found.parameters)
    assert all(torch.equal(kept[name], parameters[name]) for name in parameters)


CHANGES = {
    "missing": (lambda base: {k: v for k, v in base.items() if k != "value_head.bias"}, UnfitModel, "value_head.bias"),
    "unknown": (lambda base: base | {"more": torch.zeros(1)}, UnfitModel, "'more'"),
    "shape": (lambda base: base | {"value_head.bias": torch.zeros(2)}, UnfitModel, r"float32 \[2\], not float32 \[1\]"),
    "type": (lambda base: base | {"value_head.bias": np.zeros(1)}, UnfitModel, "float64"),
    "text": (lambda base: base | {"value_head.bias": np.array(["a"])}, UnfitModel, "not a tensor"),
    "nan": (lambda base: base | {"value_head.bias": torch.tensor([np.nan])}, DiscardedUpdate, "NaN"),
    "infinity": (lambda base: base | {"value_head.bias": torch.tensor([np.inf])}, DiscardedUpdate, "infinity"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_finish_with_wrong_tensors_stores_nothing(training: Training, root: Path, change: str) -> None:
    changed, error, message = CHANGES[change]
    before = stored(root)
    with pytest.raises(error, match=message):
        training.finish(changed(training.parameters()))
    assert stored(root) == before


@pytest.mark.parametrize(
    ("metrics", "error"),
    [
        ({"loss": float("nan")}, DiscardedUpdate),
        ({"loss": np.float32("inf")}, DiscardedUpdate),
        ({"loss": "0.1"}, BadProgress),
        ({"loss": None}, BadProgress),
        ({"loss": True}, BadProgress),
        ({"loss": 1e13}, BadProgress),
        ({f"loss{number}": 0.1 for number in range(100)}, BadProgress),  # one too many with ``seconds``
    ],
)
def test_finish_with_bad_metrics_stores_nothing(training: Training, root: Path, metrics: dict, error: type) -> None:
    before = stored(root)
    with pytest.raises(error):
        training.finish(training.parameters(), **metrics)
    assert stored(root) == before


def test_progress_reports_rising_epochs_with_metrics(root: Path) -> None:
    heard: list[dict] = []
    training = Training(train_spec(root, TIC_TAC_TOE, first_model(root, TIC_TAC_TOE), games=8), heard.append)
    training.progress(1, 2, loss=0.5)
    for epoch in (1, 3, 0):
        with pytest.raises(BadProgress):
            training.progress(epoch, 2)
    training.progress(2, 2)
    assert heard == [{"epoch": 1, "epochs": 2, "metrics": {"loss": 0.5}}, {"epoch": 2, "epochs": 2, "metrics": {}}]
