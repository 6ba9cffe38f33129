"""Foreign files of models and shards are read, or refused.

Whatever a header says, readers raise errors of ours alone, and take none of the memory that it declares.
"""

import io
import json
import zipfile
from collections import UserDict
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import gymnasium
import numpy as np
import pytest
import safetensors.numpy
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from policy_files import policy_bytes
from profiles import examples
from selfplay_rig import put_model

from flyball.app.api.league_import import read_league
from flyball.app.api.runs import locate_run
from flyball.app.config import GAMES, NetworkSettings
from flyball.app.core import FlyballError, ModelHash, ShardKey
from flyball.app.gym.players import Perceptron, PolicyManifest, PolicyRequest
from flyball.app.language.base_model import get_base
from flyball.app.language.token_shard import get_token_shard
from flyball.app.play.players import RandomPlayer, policy_of
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.portable import BadPolicyFile, read_policy
from flyball.app.store import (
    FileStore,
    MemoryStore,
    export_checkpoint,
    get_checkpoint,
    get_shard,
    put_shard,
    read_model,
)
from flyball.app.store.shard import note_of, with_note

HUGE = 1 << 40
NESTED = "[" * 200_000 + "]" * 200_000
BOARD = "connect_four_2p"
KINDS = {
    "mlp": NetworkSettings(hidden=(4,), residual=1),
    "windows": NetworkSettings(kind="windows", filters=2, hidden=(4,)),
    "tower": NetworkSettings(kind="tower", blocks=1, channels=4, squeeze_excite=True),
}


def read_checkpoint(data: bytes) -> None:
    store = MemoryStore()
    policy_of(get_checkpoint(store, ModelHash(store.put(data))))


def read_shard(data: bytes) -> None:
    store = MemoryStore()
    get_shard(store, ShardKey(store.put(data)))


def read_answers(data: bytes) -> None:
    store = MemoryStore()
    get_token_shard(store, ShardKey(store.put(data)))


def read_base(data: bytes) -> None:
    store = MemoryStore()
    get_base(store, store.put(data))


def in_file(suffix: str, read: Callable[[Path], object]) -> Callable[[bytes], None]:
    """Return a reader of bytes, which are written to a file first."""

    def read_bytes(data: bytes) -> None:
        with TemporaryDirectory() as folder:
            path = Path(folder) / f"file{suffix}"
            path.write_bytes(data)
            read(path)

    return read_bytes


def read_gym_policy(path: Path) -> None:
    space = gymnasium.spaces.Discrete(2)
    Perceptron(PolicyRequest(str(path), 1, space, space, "cpu", 0))


def read_foreign_league(path: Path) -> None:
    read_league(path, None, BOARD, locate_run(path.parent, None))


READERS: dict[str, Callable[[bytes], None]] = {
    "checkpoint": read_checkpoint,
    "shard": read_shard,
    "answers": read_answers,
    "base model": read_base,
    "model file": in_file(".safetensors", read_model),
    "npz": in_file(".npz", read_model),
    "json": in_file(".json", read_model),
    "portable npz": in_file(".npz", read_policy),
    "portable json": in_file(".json", read_policy),
    "environments": in_file(".safetensors", read_gym_policy),
    "league": in_file(".json", read_foreign_league),
}


def tried(reader: str, data: bytes) -> None:
    """Read a file; only errors of ours may come of it."""
    with suppress(FlyballError, BadPolicyFile):
        READERS[reader](data)


def refused(reader: str, data: bytes) -> None:
    with pytest.raises((FlyballError, BadPolicyFile)):
        READERS[reader](data)


def safetensors_file(header: str | bytes, body: bytes = b"") -> bytes:
    text = header.encode() if isinstance(header, str) else header
    return len(text).to_bytes(8, "little") + text + body


class Files(UserDict[str, bytes]):
    """Sound files by name; Hypothesis warns of their long representation."""

    def __repr__(self) -> str:
        return "files"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """Return a sound file for each reader."""
    folder = tmp_path_factory.mktemp("sound")
    store = FileStore(folder / "store")
    found = Files()
    for kind, network in KINDS.items():
        model = get_checkpoint(store, put_model(folder / "store", GAMES[BOARD].replace(network=network)))
        found[f"checkpoint {kind}"] = model.parameters
        for suffix in ("npz", "json"):
            export_checkpoint(model, folder / f"policy.{suffix}")
            found[f"{suffix} {kind}"] = found[f"portable {suffix} {kind}"] = (folder / f"policy.{suffix}").read_bytes()
    schedule = selfplay_schedule(40, 2, [], (1.0,), 0, opening_plies=0)
    about = {"model": "a" * 64, "seed": 0, "worker": "w", "in_flight": 8}
    shard = play_recorded(GAMES["tic_tac_toe_2p"], [RandomPlayer()], schedule, **about)[0]
    obs = shard.obs.astype(np.float32)
    obs[:, 1], obs[:, 2] = np.arange(shard.rows) % 7, 0.5  # features of each kind
    shards = MemoryStore()
    found["shard"] = shards.get(put_shard(shards, replace(shard, obs=obs)))
    layer = {"policy_head.weight": torch.zeros(2, 2), "policy_head.bias": torch.zeros(2)}
    found["environments"] = policy_bytes(layer, PolicyManifest(environment="Corridor-v0", activation="relu"))
    return found


@pytest.mark.parametrize("reader", READERS)
def test_header_that_is_nested_too_deep_is_refused(reader: str) -> None:
    refused(reader, NESTED.encode())
    refused(reader, safetensors_file(NESTED))
    refused(reader, safetensors_file(json.dumps({"__metadata__": {"note": NESTED}})))
    refused(reader, safetensors_file(f'{{"__metadata__":{{"note":{NESTED}}}}}'))
    for header in (NESTED, json.dumps({"descr": "<f4"})):
        archive = io.BytesIO()
        np.savez(archive, header=np.array(header))
        refused(reader, archive.getvalue())


@pytest.mark.parametrize("reader", READERS)
def test_array_that_declares_more_than_the_file_is_refused(reader: str) -> None:
    tensor = {"dtype": "F32", "shape": [HUGE], "data_offsets": [0, 4 * HUGE]}
    for note in ("", "{}"):
        refused(reader, safetensors_file(json.dumps({"__metadata__": {"note": note}, "a": tensor}), bytes(64)))
    for content in (bytes(64), b""):
        array, archive = io.BytesIO(), io.BytesIO()
        header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (HUGE,)}
        np.lib.format.write_array_header_1_0(array, header)
        with zipfile.ZipFile(archive, "w") as members:
            members.writestr("header.npy", array.getvalue() + content)
        refused(reader, archive.getvalue())


@pytest.mark.parametrize("reader", ["npz", "portable npz"])
def test_compressed_archive_is_not_unpacked(reader: str) -> None:
    archive = io.BytesIO()
    np.savez_compressed(archive, header=np.zeros(1 << 24))
    refused(reader, archive.getvalue())


SPOTS = st.integers(0, 1 << 20)
TYPES = [np.float32, np.float64, np.uint8, np.int8, np.int32, np.int64, np.bool_]
NUMBERS = st.sampled_from([0, -1, 1 << 31, HUGE, 1 << 70, 0.5, float("inf")])
ODD = NUMBERS | st.lists(NUMBERS, max_size=3) | st.sampled_from([None, True, "odd", (), {}])


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the containers of a tree of JSON, with their keys."""
    keys = tree if isinstance(tree, dict) else range(min(len(tree), 8)) if isinstance(tree, list) else ()
    for key in keys:
        yield tree, key
        yield from places(tree[key])


def changed(text: str | bytes, spot: int, value: object) -> str:
    """Return JSON with another value at one of its places."""
    tree = json.loads(text)
    spots = list(places(tree))
    container, key = spots[spot % len(spots)]
    container[key] = value
    return json.dumps(tree)


def test_sound_files_are_read(files: Files) -> None:
    for name, data in files.items():
        READERS[name if name in READERS else name.rpartition(" ")[0]](data)


NOTED = [*(f"checkpoint {kind}" for kind in KINDS), "shard", "environments"]
FUZZED = settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("name", NOTED)
@FUZZED
@given(spot=SPOTS, value=ODD)
def test_file_with_another_note_is_read_or_refused(name: str, files: Files, spot: int, value: object) -> None:
    data, reader = files[name], name.partition(" ")[0]
    tried(reader, with_note(data, changed(note_of(data), spot, value)))


@pytest.mark.parametrize("name", NOTED)
@FUZZED
@given(spot=SPOTS, value=ODD)
def test_file_with_another_header_is_read_or_refused(name: str, files: Files, spot: int, value: object) -> None:
    data, reader = files[name], name.partition(" ")[0]
    end = 8 + int.from_bytes(data[:8], "little")
    tried(reader, safetensors_file(changed(data[8:end], spot, value), data[end:]))


@pytest.mark.parametrize("name", NOTED)
@FUZZED
@given(spot=SPOTS, shape=st.lists(st.integers(0, 5), max_size=3), kind=st.sampled_from(TYPES))
def test_file_with_other_tensors_is_read_or_refused(
    name: str, files: Files, spot: int, shape: list[int], kind: type
) -> None:
    data, reader = files[name], name.partition(" ")[0]
    tensors = safetensors.numpy.load(data)
    chosen = sorted(tensors)[spot % len(tensors)]
    tensors[chosen] = np.ones(shape, kind)
    tried(reader, with_note(safetensors.numpy.save(tensors), note_of(data)))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("reader", ["json", "portable json", "npz", "portable npz"])
@FUZZED
@given(spot=SPOTS, value=ODD)
def test_policy_with_another_header_is_read_or_refused(
    reader: str, kind: str, files: Files, spot: int, value: object
) -> None:
    data = files[f"{reader} {kind}"]
    if reader.endswith("json"):
        tried(reader, changed(data, spot, value).encode())
        return
    with np.load(io.BytesIO(data)) as arrays:
        tensors = dict(arrays)
    tensors["header"] = np.array(changed(str(tensors["header"]), spot, value))
    archive = io.BytesIO()
    np.savez(archive, **tensors)
    tried(reader, archive.getvalue())


@pytest.mark.parametrize("name", [*NOTED, "npz mlp", "json mlp"])
@FUZZED
@given(spot=SPOTS, bit=st.integers(0, 7), end=SPOTS)
def test_file_with_a_flipped_bit_is_read_or_refused(name: str, files: Files, spot: int, bit: int, end: int) -> None:
    """A file may come with a hash of its own."""
    data, reader = bytearray(files[name]), name.partition(" ")[0]
    data[spot % len(data)] ^= 1 << bit
    tried(reader, bytes(data))
    tried(reader, bytes(data[: end % len(data)]))
