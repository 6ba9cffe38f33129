"""Play, training and evaluation on a GPU repeat, near the CPU's results."""

from pathlib import Path

import numpy as np
import pytest
import torch
from own_training import train_spec
from searched_games import CONFIG as SEARCHED
from selfplay_rig import CONFIG, ignore, inspection_spec, put_model, selfplay_spec

from flyball.app.config import CPU, Compute, GameConfig, NetworkSettings, PpoCoefficients
from flyball.app.games import open_table
from flyball.app.learning import search_training
from flyball.app.learning.jobs import train
from flyball.app.play.gauntlet import GauntletSpec, Opponent
from flyball.app.play.inspection import inspect
from flyball.app.play.matches import batch
from flyball.app.play.players import load_player
from flyball.app.play.selfplay import play, play_by_search
from flyball.app.store import FileStore, get_shard

pytestmark = pytest.mark.gpu
STEADY = PpoCoefficients(batch_size=64, target_kl=10, max_kl=10)
CONFIGS = {
    "mlp": CONFIG.replace(ppo=STEADY),
    "tower": CONFIG.replace(ppo=STEADY, network=NetworkSettings(kind="tower", blocks=2, channels=16)),
    "lists": GameConfig(
        key="shogi_2p", game="shogi", players=2, max_moves=12, network=NetworkSettings(hidden=(16,)), ppo=STEADY
    ),
}
GPU = {precision: {"device": "cuda", "precision": precision} for precision in ("float32", "bfloat16")}
GAMES = 24


@pytest.fixture(params=CONFIGS)
def config(request: pytest.FixtureRequest) -> GameConfig:
    return CONFIGS[request.param]


@pytest.fixture
def model(tmp_path: Path, config: GameConfig) -> str:
    return put_model(tmp_path, config, scale=1.5 if config.network.kind == "tower" else 3)


@pytest.mark.parametrize("precision", GPU)
def test_a_seed_gives_the_same_games_on_a_gpu(tmp_path: Path, config: GameConfig, model: str, precision: str) -> None:
    spec = selfplay_spec(tmp_path, model, config, games=GAMES, **GPU[precision])
    first, again = (play(spec, ignore)["shard"] for _ in range(2))
    assert first == again
    found = inspect(inspection_spec(tmp_path, first, config), ignore)
    assert (found["checked"] > 0, found["failures"]) == (True, [])


@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-3), ("bfloat16", 0.1)])
def test_a_policy_on_a_gpu_is_near_the_cpu_s(
    tmp_path: Path, config: GameConfig, model: str, precision: str, near: float
) -> None:
    store = FileStore(tmp_path)
    shard = get_shard(store, play(selfplay_spec(tmp_path, model, config, games=GAMES), ignore)["shard"])
    mask, game = np.asarray(shard.mask), open_table(config, 0).spec
    computes = CPU, Compute(**GPU[precision])
    (here, values), (there, others) = (
        load_player(store, model, game, compute).forward(shard.obs, mask) for compute in computes
    )
    np.testing.assert_allclose(np.exp(there), np.exp(here), atol=near)
    np.testing.assert_allclose(others, values, rtol=near, atol=near)
    assert not np.exp(there)[~mask].any()


@pytest.mark.parametrize(("precision", "near"), [("float32", 1e-3), ("bfloat16", 0.05)])
def test_a_training_on_a_gpu_repeats_and_is_near_the_cpu_s(
    tmp_path: Path, config: GameConfig, model: str, precision: str, near: float
) -> None:
    spec = train_spec(tmp_path, config, model, games=GAMES)
    here, there, again = (train({**spec, **compute}, ignore) for compute in ({}, GPU[precision], GPU[precision]))
    assert there["model"] == again["model"] != here["model"]
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl"):
        assert there["metrics"][name] == pytest.approx(here["metrics"][name], rel=near, abs=near), name


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_a_training_by_two_gpus_is_near_that_of_one(tmp_path: Path, config: GameConfig, model: str) -> None:
    spec = train_spec(tmp_path, config, model, games=GAMES, **GPU["float32"])
    one, two, again = (train({**spec, "processes": processes}, ignore) for processes in (1, 2, 2))
    assert two["model"] == again["model"]
    for name in ("policy_loss", "value_loss", "entropy", "approx_kl"):
        assert two["metrics"][name] == pytest.approx(one["metrics"][name], rel=1e-3, abs=1e-3), name


def test_an_evaluation_on_a_gpu_repeats(tmp_path: Path, config: GameConfig, model: str) -> None:
    opponents = (Opponent(name="random", kind="random", games=GAMES),)
    gauntlet = GauntletSpec(store=tmp_path, config=config, model=model, seed=1, opponents=opponents, **GPU["float32"])
    (part,) = gauntlet.parts
    first, again = (batch(part, ignore)["games"] for _ in range(2))
    assert first == again
    assert len(first["scores"]) == GAMES


@pytest.mark.parametrize("precision", GPU)
def test_searches_and_their_training_on_a_gpu_repeat(tmp_path: Path, precision: str) -> None:
    model = put_model(tmp_path, SEARCHED)
    spec = selfplay_spec(tmp_path, model, SEARCHED, games=GAMES, **GPU[precision])
    first, again = (play_by_search(spec, ignore)["shard"] for _ in range(2))
    assert first == again
    assert inspect(inspection_spec(tmp_path, first, SEARCHED), ignore)["failures"] == []
    training = {**train_spec(tmp_path, SEARCHED, model, games=GAMES, **GPU[precision]), "shards": [first]}
    one, other = (search_training.train(training, ignore) for _ in range(2))
    assert one["model"] == other["model"] != model
