"""Lists of legal actions, for games with many actions. Shards, training and trainers use them."""

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from own_training import train_spec
from selfplay_rig import CONFIG, ignore, inspection_spec, put_model, selfplay_spec

from flyball.app.config import CloningSettings, GameConfig, NetworkSettings, PpoSettings
from flyball.app.core import legal
from flyball.app.core.legal import LegalActions
from flyball.app.games import open_table
from flyball.app.learning.jobs import train
from flyball.app.learning.learner import imitate
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.samples import Samples, make_samples, prepare
from flyball.app.learning.training import Training
from flyball.app.play.inspection import game_record, inspect, shard_statistics
from flyball.app.play.selfplay import play
from flyball.app.store import (
    DamagedBlob,
    FileStore,
    MemoryStore,
    Shard,
    experience_lines,
    get_checkpoint,
    get_shard,
    put_shard,
)
from flyball.app.store.experience import read_experience
from flyball.app.store.shard import BadShard, note_of, with_note

GAMES = 6
SHOGI = GameConfig(
    key="shogi_2p", game="shogi", players=2, max_moves=12, network=NetworkSettings(hidden=(8,)), epochs=1
)


@pytest.fixture
def lists(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Keep lists in every game; ``undo`` returns to masks."""
    monkeypatch.setattr(legal, "MANY_ACTIONS", 1)
    return monkeypatch


def played(root: Path, config: GameConfig, model: str | None = None) -> tuple[str, Shard]:
    model = model or put_model(root, config)
    key = play(selfplay_spec(root, model, config, games=GAMES), ignore)["shard"]
    return key, get_shard(FileStore(root), key)


@pytest.fixture
def shogi(tmp_path: Path) -> tuple[str, Shard]:
    """Return a shard of Shogi, which has many actions, and its key."""
    return played(tmp_path, SHOGI)


def with_mask(shard: Shard) -> Shard:
    return dataclasses.replace(shard, mask=np.asarray(shard.mask))


def assert_same_rows(first: Shard, second: Shard) -> None:
    for field in dataclasses.fields(Shard):
        if field.name != "meta":
            np.testing.assert_array_equal(getattr(first, field.name), getattr(second, field.name), field.name)


def test_self_play_with_lists_records_the_same_rows(tmp_path: Path, lists: pytest.MonkeyPatch) -> None:
    model = put_model(tmp_path)
    listed, shard = played(tmp_path, CONFIG, model)
    assert isinstance(shard.mask, LegalActions)
    lists.undo()
    masked, plain = played(tmp_path, CONFIG, model)
    assert isinstance(plain.mask, np.ndarray)
    assert listed != masked
    assert_same_rows(shard, plain)
    assert shard_statistics(shard) == shard_statistics(plain)
    assert list(experience_lines(shard)) == list(experience_lines(plain))


def tensors_of(root: Path, model: str) -> dict[str, torch.Tensor]:
    return bytes_to_parameters(get_checkpoint(FileStore(root), model).parameters)


def test_training_with_lists_gives_the_same_model(tmp_path: Path, lists: pytest.MonkeyPatch) -> None:
    """Training with lists sums in another order than with masks."""
    model = put_model(tmp_path, scale=3)
    spec = train_spec(tmp_path, CONFIG, model, games=60)
    assert CONFIG.ppo.symmetries
    with_lists = train(spec, ignore)
    shard = get_shard(FileStore(tmp_path), spec["shards"][0])
    lists.undo()
    masked = put_shard(FileStore(tmp_path), with_mask(shard))
    assert masked != spec["shards"][0]
    with_masks = train({**spec, "shards": [masked]}, ignore)
    base, *models = (tensors_of(tmp_path, name) for name in (model, with_lists["model"], with_masks["model"]))
    assert all(torch.allclose(models[0][name], models[1][name], atol=1e-4) for name in base)
    assert max((models[0][name] - base[name]).abs().max() for name in base) > 1e-3
    first, second = (result["metrics"] | {"seconds": 0} for result in (with_lists, with_masks))
    assert first == pytest.approx(second, abs=1e-3)


def test_imitation_with_lists_gives_the_same_parameters(tmp_path: Path, lists: pytest.MonkeyPatch) -> None:
    model = put_model(tmp_path)
    _, shard = played(tmp_path, CONFIG, model)
    samples = [make_samples([one, one], 1.0, 1.0) for one in (shard, with_mask(shard))]
    assert [type(one.mask) for one in samples] == [LegalActions, torch.Tensor]
    base, settings = get_checkpoint(FileStore(tmp_path), model), CloningSettings(batch_size=64, epochs=2)
    first, second = (imitate(base, one, settings, seed=1) for one in samples)
    tensors, others = (bytes_to_parameters(one.parameters) for one in (first, second))
    assert all(torch.allclose(tensors[name], others[name], atol=1e-4) for name in tensors)
    assert dataclasses.astuple(first.metrics) == pytest.approx(dataclasses.astuple(second.metrics), abs=1e-3)


def test_lists_stay_in_main_memory_when_samples_move(tmp_path: Path, lists: pytest.MonkeyPatch) -> None:
    _, shard = played(tmp_path, CONFIG, put_model(tmp_path))
    samples = prepare([shard], PpoSettings(symmetries=False), (), 0)
    there = samples.to(torch.device("meta"))
    assert there.mask is samples.mask
    others = [getattr(there, field.name) for field in dataclasses.fields(Samples) if field.name != "mask"]
    assert {tensor.device.type for tensor in others} == {"meta"}


def test_shogi_is_played_inspected_and_trained_with_lists(tmp_path: Path) -> None:
    model = put_model(tmp_path, SHOGI)
    key, shard = played(tmp_path, SHOGI, model)
    assert isinstance(shard.mask, LegalActions)
    assert shard.mask.listed.dtype == np.uint16
    assert shard.mask.shape == (shard.rows, 13_689)
    found = inspect(inspection_spec(tmp_path, key, SHOGI), ignore)
    assert (found["checked"], found["failures"]) == (GAMES, [])
    spec = train_spec(tmp_path, SHOGI, model, games=GAMES)
    assert train(spec, ignore)["parent"] == model


def test_a_changed_list_is_a_parity_failure(tmp_path: Path, shogi: tuple[str, Shard]) -> None:
    key, shard = shogi
    mask = np.asarray(shard.mask)
    mask[0, np.flatnonzero(mask[0] & (np.arange(mask.shape[1]) != shard.action[0]))[0]] = False
    store = FileStore(tmp_path)
    changed = put_shard(store, dataclasses.replace(shard, mask=mask))
    assert changed != key
    assert np.array_equal(game_record(get_shard(store, changed), 0).mask, mask[shard.game == 0])
    found = inspect(inspection_spec(tmp_path, changed, SHOGI), ignore)
    assert found["failures"] == ["game 0: decision 0: the legal mask is not that of the position"]


def test_listed_rows_are_read_as_masks_and_lists(tmp_path: Path, shogi: tuple[str, Shard]) -> None:
    training = Training(train_spec(tmp_path, SHOGI, put_model(tmp_path, SHOGI), games=GAMES), ignore)
    rows = training.rows
    assert (rows.mask.dtype, rows.mask.shape) == (np.bool_, (len(rows), 13_689))
    assert rows.mask[np.arange(len(rows)), rows.action].all()
    assert isinstance(training.shards[0].mask, LegalActions)
    lines = list(experience_lines(shogi[1]))
    assert len(json.loads(lines[0])["mask"]) == 13_689
    again = read_experience(lines, "data.jsonl", shogi[1].meta, open_table(SHOGI, 0).spec)
    assert isinstance(again.mask, LegalActions)
    np.testing.assert_array_equal(again.mask, shogi[1].mask)


def test_a_shard_with_bits_of_a_mask_is_read_as_lists(shogi, monkeypatch: pytest.MonkeyPatch) -> None:
    store = MemoryStore()
    with monkeypatch.context() as before:
        before.setattr(legal, "MANY_ACTIONS", 10**6)
        old = put_shard(store, with_mask(shogi[1]))
    restored = get_shard(store, old)
    assert isinstance(restored.mask, LegalActions)
    assert_same_rows(restored, shogi[1])
    assert put_shard(store, restored) == put_shard(store, shogi[1]) != old


def test_listed_shards_that_do_not_fit_are_refused(tmp_path: Path, shogi: tuple[str, Shard]) -> None:
    """With another number of actions, some gaps lead to another row."""
    key, shard = shogi
    store, data = MemoryStore(), FileStore(tmp_path).get(key)
    note = json.loads(note_of(data))
    for change, why in (
        ({"version": note["version"] + 1}, "version"),
        *(({"actions": n}, "legal") for n in (13_000, 20_000)),
    ):
        with pytest.raises(DamagedBlob, match=why):
            get_shard(store, store.put(with_note(data, json.dumps(note | change))))
    with pytest.raises(BadShard, match="not legal"):
        dataclasses.replace(shard, mask=shard.mask[np.roll(np.arange(shard.rows), 1)])
