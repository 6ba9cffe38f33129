"""Training jobs: stored results, refusals and determinism."""

from pathlib import Path

import numpy as np
import pytest
from shard_rows import rows_of

from flyball.app.config import GAMES, NetworkSettings, PpoCoefficients, PpoSettings
from flyball.app.core import ConfigKey, NetworkShape
from flyball.app.engine import InlineEngine, JobFailed
from flyball.app.games import open_table
from flyball.app.learning.inference import Policy
from flyball.app.learning.jobs import annealed, initialise, train
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.ppo import TrainingDiverged
from flyball.app.learning.samples import UnfinishedEpisode
from flyball.app.learning.training import UnfitData
from flyball.app.store import DamagedBlob, FileStore, MissingBlob, Shard, ShardMeta, get_checkpoint, put_shard

CONFIG = GAMES[ConfigKey("tic_tac_toe_2p")].replace(network=NetworkSettings(hidden=(8,)))
GAME = open_table(CONFIG, slots=0).spec


def ignore(report: dict) -> None:
    pass


def episodes(games: int = 40, length: int = 4, **meta) -> Shard:
    """Return made-up games of two alternating seats with random positions."""
    rng, rows = np.random.default_rng(games), games * length
    game, step = np.divmod(np.arange(rows, dtype=np.int32), length)
    mask = rng.random((rows, GAME.actions)) < 0.5
    mask[:, 4] = True
    last = step >= length - 2
    returns = rng.choice([-1, 1], size=(games, 1)).astype(np.float32) * np.array([[1, -1]], dtype=np.float32)
    seat = (step % 2).astype(np.int8)
    about = {"config_key": CONFIG.key, "rules_version": GAME.rules_version, "model": "a" * 64, "opponents": ()}
    return rows_of(
        obs=rng.integers(0, 2, (rows, GAME.observation_size), dtype=np.uint8),
        mask=mask,
        action=np.full(rows, 4, dtype=np.int32),
        log_prob=-np.log(mask.sum(axis=1)).astype(np.float32),
        value=rng.normal(0, 0.1, rows).astype(np.float32),
        reward=np.where(last, returns[game, seat], 0).astype(np.float32),
        done=last,
        seat=seat,
        game=game,
        step=step,
        returns=returns,
        meta=ShardMeta(**about | {"seed": 1, "worker": "w0", "temperature": 1.0} | meta),
    )


@pytest.fixture
def store(tmp_path: Path) -> FileStore:
    return FileStore(tmp_path)


@pytest.fixture
def first(tmp_path: Path) -> str:
    return initialise({"store": str(tmp_path), "config": CONFIG.model_dump(mode="json"), "seed": 7}, ignore)["model"]


@pytest.fixture
def spec(tmp_path: Path, store, first) -> dict:
    shards = [put_shard(store, episodes()), put_shard(store, episodes(games=30))]
    return {
        "store": str(tmp_path),
        "config": CONFIG.replace(ppo=PpoCoefficients(batch_size=64)).model_dump(mode="json"),
        "base_model": first,
        "shards": shards,
        "seed": 3,
        "step": 0,
        "learning_rate": 1e-3,
        "epochs": 3,
    }


def with_ppo(spec: dict, **changes: object) -> dict:
    return {**spec, "config": {**spec["config"], "ppo": {**spec["config"]["ppo"], **changes}}}


def test_first_model_has_the_game_s_shape_and_depends_on_seed(tmp_path, store, first):
    manifest = get_checkpoint(store, first).manifest
    assert (manifest.obs_size, manifest.actions, manifest.step) == (27, 9, 0)
    again = {"store": str(tmp_path), "config": CONFIG.model_dump(mode="json"), "seed": 7}
    assert initialise(again, ignore)["model"] == first
    assert initialise({**again, "seed": 8}, ignore)["model"] != first


def test_training_stores_a_playable_child_and_tells_its_metrics(store, spec):
    heard = []
    result = train(spec, heard.append)
    checkpoint = get_checkpoint(store, result["model"], optimizer=True)
    assert (checkpoint.manifest.parent, checkpoint.manifest.step) == (spec["base_model"], 1)
    assert (result["parent"], result["step"], result["rows"]) == (spec["base_model"], 1, 280)
    assert [report["epoch"] for report in heard] == [1, 2, 3]
    assert {"policy_loss", "value_loss", "entropy", "approx_kl"} <= heard[0]["metrics"].keys()
    assert result["metrics"]["policy_loss"] == heard[-1]["metrics"]["policy_loss"]
    assert result["metrics"]["explained_variance"] <= 1
    policy = Policy(CONFIG.network, NetworkShape(27, 9), bytes_to_parameters(checkpoint.parameters))
    assert policy.forward(episodes().obs, episodes().mask)[0].shape == (160, 9)


def test_model_repeats_by_spec_and_differs_by_seed(spec):
    assert train(spec, ignore)["model"] == train(spec, ignore)["model"]
    assert train({**spec, "seed": 4}, ignore)["model"] != train(spec, ignore)["model"]
    plain = with_ppo(spec, symmetries=False)
    assert train(plain, ignore)["model"] != train(spec, ignore)["model"]


def test_model_continues_and_diverged_training_stores_nothing(store, spec):
    second = train(spec, ignore)
    third = train({**spec, "base_model": second["model"], "step": 1}, ignore)
    assert third["step"] == 2
    steps = bytes_to_parameters(get_checkpoint(store, third["model"], optimizer=True).optimizer)["step.value_head.bias"]
    assert steps.item() == 2 * 3 * round(280 / 64)
    before = set(store.keys())
    with pytest.raises(TrainingDiverged):
        train(with_ppo(spec, max_kl=1e-12), ignore)
    assert set(store.keys()) == before


@pytest.mark.parametrize("foreign", [{"config_key": "hex7_2p"}, {"rules_version": "older"}])
def test_shards_of_other_games_or_rules_are_refused(store, spec, foreign):
    with pytest.raises(UnfitData, match="w0"):
        train({**spec, "shards": [*spec["shards"], put_shard(store, episodes(**foreign))]}, ignore)


def test_base_model_of_another_step_game_or_network_is_refused(spec):
    other = CONFIG.replace(network=NetworkSettings(hidden=(9,)))
    hex7 = GAMES[ConfigKey("hex7_2p")]
    changes = [{"step": 1}, {"config": other.model_dump(mode="json")}, {"config": hex7.model_dump(mode="json")}]
    for change in changes:
        with pytest.raises(UnfitData):
            train({**spec, **change}, ignore)


def test_damaged_unfinished_or_unknown_data_is_refused(store, spec):
    shard = episodes()
    shard.done[-1] = False
    with pytest.raises(UnfinishedEpisode):
        train({**spec, "shards": [put_shard(store, shard)]}, ignore)
    with pytest.raises(ValueError, match="sharps"):
        train({**spec, "sharps": []}, ignore)
    store.path(spec["shards"][0]).write_bytes(b"damaged")
    with pytest.raises(DamagedBlob):
        train(spec, ignore)
    with pytest.raises(DamagedBlob):
        train({**spec, "processes": 2}, ignore)
    with pytest.raises(MissingBlob):
        train({**spec, "shards": ["0" * 64]}, ignore)


async def test_engine_runs_jobs_by_name_and_reports_divergence(spec, first, tmp_path):
    engine = InlineEngine()
    initial = {"store": str(tmp_path), "config": CONFIG.model_dump(mode="json"), "seed": 7}
    assert (await engine.run("flyball.app.learning.jobs:initialise", initial))["model"] == first
    heard = []
    result = await engine.run("flyball.app.learning.jobs:train", spec, heard.append)
    assert result["model"] == train(spec, ignore)["model"]
    assert len(heard) == 3
    with pytest.raises(JobFailed) as failed:
        await engine.run("flyball.app.learning.jobs:train", with_ppo(spec, max_kl=1e-12))
    assert failed.value.kind == "TrainingDiverged"
    await engine.close()


def test_entropy_is_annealed_by_the_step(spec) -> None:
    ppo = PpoSettings(entropy_coef=0.1, entropy_coef_end=0.02, entropy_trainings=40)
    weights = [annealed(ppo, step).entropy_coef for step in (0, 20, 40, 400)]
    assert weights == pytest.approx([0.1, 0.06, 0.02, 0.02])
    steady = PpoSettings(entropy_coef=0.1)
    assert annealed(steady, 1000) == steady
    ended = with_ppo(spec, entropy_coef=0.9, entropy_coef_end=0.0, entropy_trainings=1)
    steady = with_ppo(spec, entropy_coef=0.0)
    base = train(spec, ignore)["model"]
    later = {"base_model": base, "step": 1}
    assert train(ended | later, ignore)["model"] == train(steady | later, ignore)["model"]
    assert train(ended, ignore)["model"] != train(steady, ignore)["model"]
