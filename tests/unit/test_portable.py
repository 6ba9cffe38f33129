"""Exported policies: agreement with the network, and refusal of altered files."""

import dataclasses
import json
import re
import shutil
import subprocess
import sys
from contextlib import suppress
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch
from commands import invoke
from selfplay_rig import put_model

from flyball.app.config import GAMES, NetworkSettings
from flyball.app.core import UnusableFile
from flyball.app.games import FINISHED, open_table
from flyball.app.learning.network import bytes_to_parameters, load_network, masked_log_probs
from flyball.app.portable import BadPolicyFile, PortablePolicy, read_policy, write_policy
from flyball.app.store import Checkpoint, FileStore, export_checkpoint, get_checkpoint, put_checkpoint
from flyball.app.store.checkpoints import UnusablePolicy, imported_checkpoint

CONFIG = GAMES["hearts_4p"]
FORMATS = ("npz", "json")


@pytest.fixture
def checkpoint(tmp_path: Path) -> Checkpoint:
    return stored(tmp_path)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a policy in all formats."""
    checkpoint, folder = stored(tmp_path_factory.mktemp("store")), tmp_path_factory.mktemp("exported")
    for suffix in FORMATS:
        export_checkpoint(checkpoint, folder / f"policy.{suffix}")
    return folder


def stored(folder: Path, key: str = "hearts_4p", **changes) -> Checkpoint:
    """Return a stored model whose parameters are larger than initial ones, so that all layers matter."""
    model = put_model(folder / "store", GAMES[key].replace(**changes), seed=3, scale=2.0)
    return get_checkpoint(FileStore(folder / "store"), model)


def again(folder: Path, checkpoint: Checkpoint, optimizer: bytes | None = None, **changes) -> Checkpoint:
    store, manifest = FileStore(folder / "store"), checkpoint.manifest.replace(**changes)
    return get_checkpoint(store, put_checkpoint(store, manifest, checkpoint.parameters, optimizer))


def json_of(folder: Path, checkpoint: Checkpoint, change) -> Path:
    export_checkpoint(checkpoint, folder / "policy.json")
    return changed_json(change)(folder / "policy.json")


def positions(key: str, games: int = 64):
    """Return observations and masks of random games. They are of the first 30 decisions of each game."""
    table, rng = open_table(GAMES[key], games), np.random.default_rng(0)
    table.reset(np.arange(games), range(games))
    obs, mask = [], []
    for _ in range(30):
        live = np.flatnonzero(table.seats() != FINISHED)
        seen, legal = table.observe(live)
        obs.append(seen)
        mask.append(legal)
        table.step(live, (rng.random(legal.shape) * legal).argmax(axis=1).astype(np.int32))
    return np.concatenate(obs), np.concatenate(mask)


CHANGES = [
    ({"planes": [3, 6]}, "planes has to consist of numbers above 0"),
    ({"blocks": 0}, "blocks has to consist of"),
    ({"heads": 4}, "heads has to consist of"),
    ({"squeeze_excite": -1}, "squeeze_excite has to consist of"),
    ({"planes": [3, 7, 7]}, "planes have more cells"),
    ({"channels": 8}, "blocks.0.excite.bias is"),
]


def tower(squeeze_excite: bool) -> NetworkSettings:
    return NetworkSettings(kind="tower", blocks=3, channels=16, squeeze_excite=squeeze_excite)


WINDOWS = NetworkSettings(kind="windows", filters=16, hidden=(32, 24))


BOARDS = ["connect_four_2p", "go7_2p", "ultimate_tic_tac_toe_2p"]
PLANES = tower(squeeze_excite=True).replace(policy_head="planes")
BOARD_NETWORKS = [
    *(("hearts_4p", None), ("connect_four_2p", None)),
    *product(BOARDS, [tower(False), tower(True), WINDOWS, WINDOWS.replace(residual=2)]),
    ("minishogi_2p", PLANES),
]


@pytest.mark.parametrize(("key", "network"), BOARD_NETWORKS)
def test_policy_in_numpy_agrees_with_torch(tmp_path: Path, key: str, network: NetworkSettings | None) -> None:
    config, tolerance = GAMES[key].replace(network=network or GAMES[key].network), 1e-4 if network else 1e-5
    made = stored(tmp_path, key, network=config.network)
    checkpoint = again(tmp_path, made, scale=max(3.0, made.manifest.scale))  # every game gets a scale
    torch_network = load_network(config.network, checkpoint.manifest.shape, bytes_to_parameters(checkpoint.parameters))
    obs, mask = positions(key, games=8)
    with torch.inference_mode():
        logits, values = torch_network(torch.from_numpy(obs))
        expected = masked_log_probs(logits, torch.from_numpy(mask)).exp().numpy()
    for suffix in FORMATS:
        file = tmp_path / f"policy.{suffix}"
        export_checkpoint(checkpoint, file)
        policy = read_policy(file)
        found_logits, found_values = policy.forward(obs)
        np.testing.assert_allclose(found_logits, logits.numpy(), rtol=0, atol=tolerance)
        np.testing.assert_allclose(found_values, values.numpy(), rtol=0, atol=tolerance)
        assert found_logits.dtype == found_values.dtype == np.float32
        probabilities = policy.probabilities(obs, mask)
        np.testing.assert_allclose(probabilities, expected, atol=tolerance)
        assert not probabilities[~mask].any()
        assert imported_checkpoint(file) == checkpoint.parameters
    assert min(np.ptp(logits.numpy()), np.ptp(values.numpy())) > 0.05


def test_policy_with_a_scale_a_feature_is_exported(tmp_path: Path) -> None:
    made = stored(tmp_path, "connect_four_2p")
    scale = tuple(1.0 + number % 3 for number in range(made.manifest.obs_size))
    several = again(tmp_path, made, scale=scale)
    obs = np.asarray(positions("connect_four_2p", games=2)[0], dtype=np.float32)
    for suffix in FORMATS:
        export_checkpoint(made, tmp_path / f"plain.{suffix}")
        export_checkpoint(several, tmp_path / f"scaled.{suffix}")
        plain, scaled = (read_policy(tmp_path / f"{name}.{suffix}") for name in ("plain", "scaled"))
        for ours, theirs in zip(scaled.forward(obs * np.float32(scale)), plain.forward(obs), strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-5)
        assert imported_checkpoint(tmp_path / f"scaled.{suffix}") == several.parameters


def test_model_without_one_of_our_networks_is_not_exported(tmp_path: Path, checkpoint: Checkpoint) -> None:
    own = stored(tmp_path, "connect_four_2p", network=NetworkSettings(kind="conv_network:build"))
    with pytest.raises(UnusablePolicy, match=r"conv_network:build, which NumPy alone cannot play") as refused:
        export_checkpoint(own, tmp_path / "policy.npz")
    assert "torch.export" in refused.value.hint
    table = dataclasses.replace(checkpoint, manifest=checkpoint.manifest.replace(backend="tabular", content="table"))
    with pytest.raises(UnusablePolicy, match="of backend tabular is a table"):
        export_checkpoint(table, tmp_path / "policy.npz")


@pytest.mark.parametrize(("change", "why"), CHANGES)
def test_tower_of_other_sizes_is_refused(tmp_path: Path, change: dict, why: str) -> None:
    made = stored(tmp_path, "connect_four_2p", network=tower(squeeze_excite=True))
    with pytest.raises(BadPolicyFile, match=re.escape(why)):
        read_policy(json_of(tmp_path, made, lambda it: it["architecture"].update(change)))


@pytest.mark.parametrize("place", [-1.0, 0.5, 25.0 * 69])
def test_action_at_no_place_of_a_plane_is_refused(tmp_path: Path, place: float) -> None:
    made = stored(tmp_path, "minishogi_2p", network=PLANES)
    with pytest.raises(BadPolicyFile, match="action_places holds something else than whole numbers below 1725"):
        read_policy(json_of(tmp_path, made, lambda it: it["tensors"]["action_places"].__setitem__(3, place)))


def test_importing_the_player_imports_numpy_and_nothing_else() -> None:
    code = (
        "import sys, flyball.app.portable\n"
        "bare = sys.stdlib_module_names | {'flyball', 'numpy'}\n"
        "assert {'numpy', 'flyball.app.portable'} <= set(sys.modules)\n"
        "print(sorted({name.split('.')[0] for name in sys.modules} - bare - {'__main__'}))\n"
        "print(sorted(name for name in sys.modules if name.startswith('flyball.app.')))\n"
    )
    said = subprocess.run([sys.executable, "-S", "-c", with_packages(code)], capture_output=True, text=True, check=True)
    others, ours = said.stdout.splitlines()
    assert json.loads(others.replace("'", '"')) == []
    assert json.loads(ours.replace("'", '"')) == ["flyball.app.portable"]


def with_packages(code: str) -> str:
    root = Path(__file__).parents[2]
    return f"import sys\nsys.path += {[str(root), *(path for path in sys.path if 'site-packages' in path)]!r}\n{code}"


def test_both_formats_hold_the_same_and_are_the_same_each_time(tmp_path: Path, checkpoint: Checkpoint) -> None:
    files = [tmp_path / name for name in ("a.npz", "b.npz", "a.json", "b.json")]
    hashes = {export_checkpoint(checkpoint, file).content_hash for file in files}
    assert hashes == {read_policy(file).content_hash for file in files}
    assert len(hashes) == 1
    assert files[0].read_bytes() == files[1].read_bytes()
    assert files[2].read_bytes() == files[3].read_bytes()
    told = json.loads(files[2].read_text())
    assert (told["schema"], told["schema_version"], told["game"]) == ("flyball.policy", 1, "hearts_4p")
    sizes = {"observation_size": 270, "hidden": [256, 128], "actions": 52}
    assert told["architecture"] == {"type": "actor_critic_mlp", "activation": "relu", **sizes}
    assert {"actor.weight", "critic.weight", "trunk.1.bias"} <= told["tensors"].keys()
    other = PortablePolicy("hearts_4p", checkpoint.model, {**read_policy(files[0]).tensors, "critic.bias": ones(1)})
    assert other.content_hash not in hashes


def ones(*shape: int):
    return np.ones(shape, dtype=np.float32)


def test_a_trained_model_keeps_its_lineage(tmp_path: Path, checkpoint: Checkpoint) -> None:
    changes = {"step": 4, "parent": checkpoint.model, "backend": "search", "base": "hearts-v1"}
    child = again(tmp_path, checkpoint, b"the state of an optimiser", **changes)
    export_checkpoint(child, tmp_path / "policy.npz")
    assert imported_checkpoint(tmp_path / "policy.npz") == child.parameters


def changed_json(change):
    def write(file: Path) -> Path:
        told = json.loads(file.with_suffix(".json").read_text())
        change(told)
        file.with_suffix(".json").write_text(json.dumps(told))
        return file.with_suffix(".json")

    return write


def changed_npz(change):
    def write(file: Path) -> Path:
        arrays = dict(np.load(file.with_suffix(".npz")))
        change(arrays)
        np.savez(file.with_suffix(".npz"), **arrays)
        return file.with_suffix(".npz")

    return write


def bytes_of(suffix: str, change):
    def write(file: Path) -> Path:
        file = file.with_suffix(suffix)
        file.write_bytes(change(file.read_bytes()))
        return file

    return write


@pytest.mark.parametrize(
    ("damage", "complaint"),
    [
        (changed_json(lambda it: it.update(schema="other")), "schema is not 'flyball.policy'"),
        (changed_json(lambda it: it.update(schema_version=3)), "schema_version is 3, and 1 is what can be read"),
        (changed_json(lambda it: it.pop("game")), "game is None, not a str"),
        (changed_json(lambda it: it.update(architecture=[])), r"architecture is \[\], not a dict"),
        (changed_json(lambda it: it["architecture"].update(activation="tanh")), "or actor_critic_tower with relu"),
        (changed_json(lambda it: it["architecture"].update(hidden=[256, "x"])), "numbers above 0"),
        (changed_json(lambda it: it["architecture"].update(hidden=[])), "numbers above 0"),
        (changed_json(lambda it: it["architecture"].update(hidden=256)), "numbers above 0"),
        (changed_json(lambda it: it["architecture"].update(scale=0)), "scale is a number above 0"),
        (changed_json(lambda it: it["architecture"].update(scale=[2.0] * 3)), "scale is a number above 0"),
        (changed_json(lambda it: it["architecture"].update(actions=51)), r"actor\.bias is \(52,\), .* \(51,\)"),
        (changed_json(lambda it: it["tensors"].pop("critic.bias")), r"no tensor critic\.bias"),
        (changed_json(lambda it: it["tensors"].update(more=[1.0])), "a tensor more, which"),
        (changed_json(lambda it: it["tensors"]["actor.bias"].append(1)), r"actor\.bias is \(53,\)"),
        (changed_json(lambda it: it["tensors"]["actor.weight"][3].pop()), "rectangles"),
        (changed_json(lambda it: it["tensors"]["actor.bias"].__setitem__(0, float("nan"))), "finite"),
        (changed_json(lambda it: it["tensors"]["actor.bias"].__setitem__(0, 0.125)), "content_hash is not"),
        (changed_json(lambda it: it.update(game="hearts_5p")), "content_hash is not"),
        (changed_json(lambda it: it.pop("tensors")), "no object 'tensors'"),
        (bytes_of(".json", lambda data: data[:1000]), "is not JSON"),
        (bytes_of(".json", lambda _: b"[1, 2]"), "no object 'tensors'"),
        (changed_npz(lambda it: it.pop("header")), "no array 'header'"),
        (changed_npz(lambda it: it.update(header="{")), r"no \.npz file of a policy"),
        (changed_npz(lambda it: it.update({"actor.bias": ones(52).astype(np.int64)})), "finite numbers of float32"),
        (changed_npz(lambda it: it.update({"trunk.0.weight": ones(256, 269)})), r"\(256, 269\), .* \(256, 270\)"),
        (changed_npz(lambda it: it.update({"critic.bias": ones(1)})), "content_hash is not"),
        (bytes_of(".npz", lambda data: data[:5000]), r"no \.npz file of a policy"),
        (bytes_of(".npz", lambda _: b"nothing"), r"no \.npz file of a policy"),
    ],
)
def test_what_is_no_policy_is_refused_with_what_is_wrong(
    tmp_path: Path, exported: Path, damage, complaint: str
) -> None:
    shutil.copytree(exported, tmp_path, dirs_exist_ok=True)
    file = damage(tmp_path / "policy")
    with pytest.raises(BadPolicyFile, match=rf"policy\.(npz|json): .*{complaint}"):
        read_policy(file)
    with pytest.raises(UnusablePolicy, match=complaint):
        imported_checkpoint(file)


def test_a_flipped_bit_is_found(tmp_path: Path, checkpoint: Checkpoint) -> None:
    file = tmp_path / "policy.npz"
    content_hash, whole = export_checkpoint(checkpoint, file).content_hash, file.read_bytes()
    for place in np.random.default_rng(0).integers(0, len(whole), 20).tolist():
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with suppress(BadPolicyFile, NotImplementedError):
            assert read_policy(file).content_hash == content_hash  # for a bit that zip files do not need


def test_observations_and_masks_that_do_not_fit_are_refused(tmp_path: Path, checkpoint: Checkpoint) -> None:
    policy = export_checkpoint(checkpoint, tmp_path / "policy.npz")
    with pytest.raises(ValueError, match=r"observations are \(3, 269\), not \[N, 270\]"):
        policy.forward(np.zeros((3, 269)))
    with pytest.raises(ValueError, match="observations are"):
        policy.forward(np.zeros(270))
    with pytest.raises(ValueError, match="legal action in each row"):
        policy.probabilities(np.zeros((1, 270)), np.zeros((1, 52)))


def test_files_have_a_known_suffix_and_a_place(tmp_path: Path, checkpoint: Checkpoint) -> None:
    with pytest.raises(UnusablePolicy, match=r"neither with \.npz nor with \.json"):
        export_checkpoint(checkpoint, tmp_path / "policy.pt")
    with pytest.raises(UnusableFile, match="cannot be written"):
        export_checkpoint(checkpoint, tmp_path / "nowhere" / "policy.npz")
    policy = export_checkpoint(checkpoint, tmp_path / "policy.npz")
    with pytest.raises(BadPolicyFile, match="no tensor critic"):
        PortablePolicy("g", "m", {name: it for name, it in policy.tensors.items() if name != "critic.bias"})
    with pytest.raises(BadPolicyFile, match=r"no tensor trunk\.0\.weight of 2"):
        PortablePolicy("g", "m", {})
    foreign = PortablePolicy(policy.game, "0" * 64, policy.tensors, policy.lineage)
    write_policy(tmp_path / "foreign.json", foreign)
    with pytest.raises(UnusablePolicy, match="its content is another"):
        imported_checkpoint(tmp_path / "foreign.json")
    write_policy(tmp_path / "made.json", PortablePolicy("hearts_4p", "0" * 64, policy.tensors))
    with pytest.raises(UnusablePolicy, match="of no checkpoint of ours"):
        imported_checkpoint(tmp_path / "made.json")


def test_the_command_exports_and_the_export_is_evaluated(tmp_path: Path) -> None:
    def flyball(*words: str):
        return invoke(*words, run=tmp_path)

    model, file = put_model(tmp_path / "store", CONFIG, seed=1), tmp_path / "policy.json"
    done = flyball("export", model[:9], str(file), "--json")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert (told["model"], told["content_hash"]) == (model, read_policy(file).content_hash)
    told = flyball("export", str(file), str(tmp_path / "again.npz")).stdout
    assert ["observation_size", "270"] in [line.split() for line in told.splitlines()]
    words = ("eval", "--config", "hearts_4p", "--games", "8", "--model")
    found = flyball(*words, str(tmp_path / "again.npz"))
    assert (found.exit_code, found.stdout) == (0, flyball(*words, model).stdout)
    for wrong, code, why in (
        (("random", "x.npz"), 2, "has no parameters"),
        (("current", "x.npz"), 2, "Name the configuration"),
        (("current", "x.npz", "--config", "hearts_4p"), 3, "There is no run in"),
        ((model, "x.txt"), 2, "neither with"),
        (("abc", "x.npz"), 4, "nothing called 'abc'"),
    ):
        refused = flyball("export", *wrong)
        assert (refused.exit_code, why in " ".join(refused.stderr.split())) == (code, True)
