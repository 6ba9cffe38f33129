"""Checkpoints and shards: refusals, and names that follow from content."""

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from flyball.app.config import ManifestPart, NetworkSettings
from flyball.app.core import ConfigKey, ModelHash, NetworkShape, ShardKey
from flyball.app.learning.network import bytes_to_parameters, init_policy, parameters_to_bytes
from flyball.app.store import (
    DamagedBlob,
    FileStore,
    Manifest,
    MemoryStore,
    MissingBlob,
    Shard,
    ShardMeta,
    get_checkpoint,
    get_shard,
    put_checkpoint,
    put_shard,
)
from flyball.app.store.checkpoints import delete_checkpoint, distribute
from flyball.app.store.packing import pack_observations
from flyball.app.store.shard import ROW_TYPES, BadShard, ShardCache, note_of, with_note

NETWORK = NetworkSettings(hidden=(4,))
PARAMETERS = parameters_to_bytes(init_policy(NETWORK, NetworkShape(3, 2), seed=1))
PARENT = ModelHash("a" * 64)
NUMBERS = {
    np.uint8: st.integers(0, 3),
    np.float32: st.sampled_from([0.0, 1.0, -0.0, 2.0, 255.0, 256.0, 0.5, -1.0, float("nan"), float("inf")]),
}


def manifest(step: int = 0, parent: ModelHash | None = None) -> Manifest:
    about = {"config_key": ConfigKey("tic_tac_toe_2p"), "network": NETWORK, "obs_size": 3, "actions": 2}
    return Manifest(**about, step=step, parent=parent, optimizer=None)


def shard(actions: int = 9) -> Shard:
    """Return a shard with two games of two rows each. The seats are 0 and 1. The second game was truncated."""
    mask = np.ones((4, actions), dtype=bool)
    mask[1, 0] = False
    return Shard(
        obs=np.arange(12, dtype=np.uint8).reshape(4, 3),
        mask=mask,
        action=np.array([0, 1, 2, actions - 1], dtype=np.int32),
        log_prob=np.full(4, -1.5, dtype=np.float32),
        value=np.linspace(-1, 1, 4, dtype=np.float32),
        reward=np.array([1, -1, 0, 0], dtype=np.float32),
        done=np.array([True, True, False, False]),
        truncated=np.array([False, False, True, True]),
        bootstrap=np.array([0, 0, 0.5, 0.25], dtype=np.float32),
        seat=np.array([0, 1, 0, 1], dtype=np.int8),
        game=np.array([0, 0, 1, 1], dtype=np.int32),
        step=np.array([0, 1, 0, 1], dtype=np.int32),
        returns=np.array([[1, -1], [0, 0]], dtype=np.float32),
        history=np.array([0, 1, 2, 3, 4], dtype=np.int32),
        history_offsets=np.array([0, 2, 5], dtype=np.int64),
        meta=ShardMeta(
            config_key=ConfigKey("tic_tac_toe_2p"),
            rules_version="1",
            model=PARENT,
            opponents=("random",),
            seed=2**62,
            worker="w0",
            temperature=1.0,
        ),
    )


def assert_equal(restored: Shard, given: Shard) -> None:
    assert restored.meta == given.meta
    assert restored.rows == given.rows
    for field in dataclasses.fields(given):
        before, after = getattr(given, field.name), getattr(restored, field.name)
        if field.name not in ("meta", "policy"):
            before, after = np.asarray(before), np.asarray(after)
            assert before.dtype == after.dtype, field.name
            assert before.tobytes() == after.tobytes(), field.name


@pytest.mark.parametrize("actions", [7, 8, 9, 130])
@pytest.mark.parametrize("kind", [np.uint8, np.float32])
def test_a_shard_comes_back_equal_in_value_and_type(actions, kind):
    store, given = MemoryStore(), shard(actions)
    given = dataclasses.replace(given, obs=given.obs.astype(kind))
    key = put_shard(store, given)
    restored = get_shard(store, key)
    assert_equal(restored, given)
    assert put_shard(store, restored) == key


@pytest.mark.parametrize(("actions", "name"), [(9, "masks"), (1500, "lists")])
def test_shard_of_an_earlier_version_is_read(actions, name):
    """The files were written before observations were packed."""
    store, given = MemoryStore(), shard(actions)
    data = (Path(__file__).parents[1] / "support" / "shards" / f"{name}.safetensors").read_bytes()
    assert_equal(get_shard(store, ShardKey(store.put(data))), given)


@given(
    st.sampled_from([np.uint8, np.float32]).flatmap(
        lambda kind: arrays(kind, st.tuples(st.just(4), st.integers(1, 20)), elements=NUMBERS[kind])
    )
)
def test_observations_come_back_bit_for_bit(obs):
    store, given = MemoryStore(), dataclasses.replace(shard(), obs=obs)
    assert_equal(get_shard(store, put_shard(store, given)), given)


def test_observations_take_a_bit_each_and_survive_compression():
    rows, features = 2000, 1280
    bits = np.random.default_rng(0).integers(0, 2, (rows, features)).astype(np.float32)
    packed = pack_observations(bits)
    assert packed["obs_bits"].nbytes == rows * features // 8
    assert packed["obs_bytes"].size == packed["obs_numbers"].size == 0
    bits[5, 3], bits[7, 9], bits[9, 11] = 255, 0.5, -0.0
    packed = pack_observations(bits)
    assert (packed["obs_bytes"].shape, packed["obs_numbers"].shape) == ((rows, 1), (rows, 2))
    rows, one = 5000, shard()
    columns = {name: np.resize(getattr(one, name)[:1], rows) for name in ROW_TYPES}
    given = dataclasses.replace(
        one, **columns, obs=np.zeros((rows, 4000), dtype=np.float32), mask=np.ones((rows, 9), dtype=np.bool_)
    )
    store = MemoryStore()
    assert_equal(get_shard(store, put_shard(store, given)), given)


BOMB = 1 << 40


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"actions": BOMB}, "actions"),
        ({"actions": 1 << 30}, "mask_bits is"),
        ({"deflated": {"obs_bits": ["uint8", [BOMB, 1]]}}, "too many for the file"),
        ({"deflated": {"obs_bits": ["uint8", [4, 20_000]]}}, "does not hold"),
        ({"deflated": {"reward": ["float32", [4]]}}, "cannot be decompressed"),
        ({"deflated": {"nothing": ["uint8", [1]]}}, "nothing"),
        ({"deflated": {"obs_bits": ["object", [4]]}}, "deflated"),
        ({"deflated": {"obs_bits": ["uint8", [-1]]}}, "deflated"),
        ({"obs_type": "float64"}, "obs_type"),
        ({"version": 2}, "unexpected keyword|missing"),
    ],
)
def test_shard_that_declares_what_it_does_not_hold_is_refused(change, why):
    store = MemoryStore()
    rows = np.arange(4 * 800, dtype=np.float32).reshape(4, 800) % 2
    data = store.get(put_shard(store, dataclasses.replace(shard(), obs=np.repeat(rows, 20, axis=1))))
    note = json.loads(note_of(data))
    assert "obs_bits" in note["deflated"]
    note |= change if "deflated" not in change else {"deflated": note["deflated"] | change["deflated"]}
    with pytest.raises(DamagedBlob, match=why):
        get_shard(store, ShardKey(store.put(with_note(data, json.dumps(note)))))


def test_shard_of_bots_comes_back_with_their_names():
    """Bots of a single game never appear as players in events."""
    store, given = MemoryStore(), shard()
    meta = given.meta.replace(model="normal", opponents=("easy", "hard"))
    key = put_shard(store, dataclasses.replace(given, meta=meta))
    assert get_shard(store, key).meta == meta


@pytest.mark.parametrize(
    ("complaint", "change"),
    [
        ("obs", {"obs": np.zeros((3, 3), dtype=np.uint8)}),
        ("obs is float64", {"obs": np.zeros((4, 3))}),
        ("mask", {"mask": np.ones((4, 9), dtype=np.uint8)}),
        ("reward", {"reward": np.zeros((4, 1), dtype=np.float32)}),
        ("done is float32", {"done": np.zeros(4, dtype=np.float32)}),
        ("seat is outside", {"seat": np.array([0, 1, 2, 1], dtype=np.int8)}),
        ("game is outside", {"game": np.array([0, 0, 1, 2], dtype=np.int32)}),
        ("action is outside", {"action": np.array([0, 1, 2, 9], dtype=np.int32)}),
        ("not legal", {"action": np.array([0, 0, 2, 3], dtype=np.int32)}),
        ("value holds a NaN", {"value": np.array([0, 0, np.nan, 0], dtype=np.float32)}),
        ("history_offsets", {"history_offsets": np.array([0, 5], dtype=np.int64)}),
        ("history_offsets miss", {"history_offsets": np.array([0, 2, 4], dtype=np.int64)}),
        ("history_offsets miss", {"history_offsets": np.array([0, 6, 5], dtype=np.int64)}),
        ("mask is", {"mask": np.ones((5, 9), dtype=bool)}),
        ("mask is", {"mask": np.ones(4, dtype=bool)}),
        ("returns is not float32", {"returns": np.zeros((2, 2))}),
        ("history is not int32", {"history": np.arange(5)}),
    ],
)
def test_arrays_that_disagree_make_no_shard(complaint, change):
    with pytest.raises(BadShard, match=complaint):
        dataclasses.replace(shard(), **change)


def test_checkpoint_has_name_and_optimiser_by_content():
    store = MemoryStore()
    model = put_checkpoint(store, manifest(), PARAMETERS, None)
    checkpoint = get_checkpoint(store, model, optimizer=True)
    assert checkpoint.manifest == manifest()
    assert checkpoint.optimizer is None
    assert parameters_to_bytes(bytes_to_parameters(checkpoint.parameters)) == PARAMETERS
    assert put_checkpoint(store, manifest(), PARAMETERS, None) == model
    assert put_checkpoint(store, manifest(1, PARENT), PARAMETERS, None) != model
    store = MemoryStore()
    model = put_checkpoint(store, manifest(1, PARENT), PARAMETERS, b"moments")
    assert get_checkpoint(store, model).optimizer is None
    checkpoint = get_checkpoint(store, model, optimizer=True)
    assert checkpoint.optimizer == b"moments"
    store.delete(checkpoint.manifest.optimizer)
    assert get_checkpoint(store, model).manifest.step == 1
    with pytest.raises(MissingBlob):
        get_checkpoint(store, model, optimizer=True)


def test_blobs_of_another_kind_or_with_flipped_bits_are_refused():
    store = MemoryStore()
    model = put_checkpoint(store, manifest(1, PARENT), PARAMETERS, b"moments")
    moments = get_checkpoint(store, model, optimizer=True).manifest.optimizer
    key = put_shard(store, shard())
    reads: list[tuple[str, Callable[[], object]]] = [
        (model, lambda: get_checkpoint(store, model)),
        (moments, lambda: get_checkpoint(store, model, optimizer=True)),
        (key, lambda: get_shard(store, key)),
    ]
    for blob, read in reads:
        good = store.get(blob)
        for place in range(0, len(good), 3):
            store._blobs[blob] = good[:place] + bytes([good[place] ^ 0x10]) + good[place + 1 :]
            with pytest.raises(DamagedBlob):
                read()
        store._blobs[blob] = good
        read()
    store = MemoryStore()
    model, key, other = put_checkpoint(store, manifest(), PARAMETERS, None), put_shard(store, shard()), store.put(b"?")
    for blob in (key, other):
        with pytest.raises(DamagedBlob):
            get_checkpoint(store, ModelHash(blob))
    for blob in (model, other):
        with pytest.raises(DamagedBlob):
            get_shard(store, ShardKey(blob))


@pytest.mark.parametrize(("step", "parent"), [(0, PARENT), (3, None)])
def test_only_a_first_model_has_no_parent(step, parent):
    with pytest.raises(ValueError, match="parent"):
        manifest(step, parent)


def test_manifests_keep_their_bytes_and_their_fields():
    before = (
        '{"version":1,"config_key":"tic_tac_toe_2p","network":{"hidden":[4]},"obs_size":3,"actions":2,"step":0,'
        '"parent":null,"optimizer":null}'
    )
    assert manifest().note == before
    assert Manifest.model_validate_json(before) == manifest()
    store, own = MemoryStore(), {"backend": "tabular", "base": "llm-7b", "content": "table"}
    model = put_checkpoint(store, manifest().replace(**own), PARAMETERS, None)
    found = get_checkpoint(store, model).manifest
    assert {name: getattr(found, name) for name in own} == own
    assert json.loads(found.note).keys() - json.loads(manifest().note).keys() == own.keys()
    noted = with_note(PARAMETERS, "hello é")
    assert note_of(noted) == "hello é"
    assert with_note(noted, "hello é") == noted
    assert parameters_to_bytes(bytes_to_parameters(noted)) == PARAMETERS
    store = MemoryStore()
    later = json.loads(manifest().model_dump_json()) | {"version": 2}
    model = store.put(with_note(PARAMETERS, json.dumps(later)))
    with pytest.raises(DamagedBlob, match="another version"):
        get_checkpoint(store, ModelHash(model))


class _Part(ManifestPart):
    later: ClassVar[frozenset[str]] = frozenset({"kind"})

    width: int = 1
    kind: str = "plain"


class _Whole(ManifestPart):
    part: _Part = _Part()


@pytest.mark.parametrize(
    ("kind", "written"), [("plain", '{"part":{"width":1}}'), ("odd", '{"part":{"width":1,"kind":"odd"}}')]
)
def test_left_out_reaches_into_the_parts_of_a_manifest(kind, written):
    whole = _Whole(part=_Part(kind=kind))
    assert whole.model_dump_json(exclude=whole.left_out) == written


def test_damaged_or_missing_models_are_deleted_with_care(tmp_path):
    store = MemoryStore()
    model = put_checkpoint(store, manifest(), PARAMETERS, None)
    store._blobs[model] = b"rubbish"
    delete_checkpoint(store, model)
    assert not store.has(model)
    store = FileStore(tmp_path)
    left = put_checkpoint(store, manifest(), PARAMETERS, None)
    with pytest.raises(MissingBlob):
        distribute({"store": str(tmp_path), "model": "f" * 64, "discard": [left]}, None)
    assert store.has(left)


@pytest.mark.parametrize("current", [True, False])
def test_distribute_with_or_without_a_model_deletes_discarded(tmp_path, current):
    store = FileStore(tmp_path)
    kept, left = (put_checkpoint(store, manifest(step, PARENT), PARAMETERS, b"moments %d" % step) for step in (1, 2))
    distribute({"store": str(tmp_path), "model": kept if current else None, "discard": [left, "f" * 64]}, None)
    manifests = [get_checkpoint(store, kept, optimizer=True).manifest]
    assert sorted(store.keys()) == sorted([kept, *(one.optimizer for one in manifests)])


def test_shard_cache_drops_the_least_recently_used():
    store = MemoryStore()
    keys = [put_shard(store, shard(actions)) for actions in (7, 8, 9)]
    cache = ShardCache(sum(get_shard(store, key).size for key in keys[1:]))
    first, second = (cache.get(store, key) for key in keys[:2])
    assert cache.get(store, keys[0]) is first
    cache.get(store, keys[2])
    assert cache.get(store, keys[0]) is first
    assert cache.get(store, keys[1]) is not second


@given(st.text(max_size=40))
def test_note_of_any_length_keeps_tensors_aligned(note):
    data = with_note(parameters_to_bytes(init_policy(NETWORK, NetworkShape(3, 2), seed=1)), note)
    assert int.from_bytes(data[:8], "little") % 8 == 0
    assert note_of(data) == note
