"""Training on searches: sampling of shards, targets and convergence. The network comes to agree with the searches."""

from collections import defaultdict
from dataclasses import replace

import numpy as np
import pytest
import torch
from searched_games import CONFIG, GAME, first, played

from flyball.app.config import SearchSettings
from flyball.app.core.legal import LegalActions
from flyball.app.engine import InlineEngine, JobFailed
from flyball.app.learning import search_training
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import bytes_to_parameters
from flyball.app.learning.search_training import SearchSamples, batches, critic_targets, draw, learn
from flyball.app.learning.training import DiscardedUpdate, UnfitData
from flyball.app.play.search import SearchPlayer
from flyball.app.play.selfplay import searching_player
from flyball.app.store import FileStore, MemoryStore, Shard, get_shard, put_shard


@pytest.fixture(scope="module")
def shards() -> list[Shard]:
    return [played(1), played(2, games=60)]


def learned(shards, replayed=(), *, epochs: int = 4, seed: int = 5, rate: float = 3e-3):
    seen = []
    how = {"learning_rate": rate, "epochs": epochs, "symmetries": GAME.symmetries, "seed": seed}
    report = lambda epoch, metrics: seen.append((epoch, metrics))  # noqa: E731
    return learn(first(), shards, replayed, CONFIG.search, **how, report=report), seen


def test_network_comes_to_agree_with_the_searches(shards: list[Shard]) -> None:
    result, seen = learned(shards, epochs=12)
    assert [epoch for epoch, _ in seen] == list(range(1, 13))
    assert result.metrics == seen[-1][1]
    assert result.metrics.divergence < 0.9 * seen[0][1].divergence
    assert result.metrics.value_loss < 0.75 * seen[0][1].value_loss


def test_training_on_searches_repeats(shards: list[Shard]) -> None:
    one, other, third = (learned(shards, epochs=1, seed=seed)[0] for seed in (5, 5, 6))
    assert one.parameters == other.parameters != third.parameters


def test_all_shards_are_drawn_from_in_proportion_to_their_rows(shards: list[Shard]) -> None:
    marked = [replace(shard, obs=np.full_like(shard.obs, number)) for number, shard in enumerate(shards)]
    drawn = draw(marked, 4000, CONFIG.search, np.random.default_rng(1))
    share = shards[1].rows / sum(shard.rows for shard in shards)
    assert len(drawn) == 4000
    assert abs((drawn.obs[:, 0] == 1).mean() - share) < 0.04


@pytest.mark.parametrize(("share", "truncated"), [(0.0, False), (0.25, False), (0.25, True)])
def test_critic_learns_outcome_and_search(shards: list[Shard], share: float, truncated: bool) -> None:
    shard = shards[0]
    if truncated:
        shard = replace(
            shard, returns=np.zeros_like(shard.returns), truncated=shard.done, done=np.zeros_like(shard.done)
        )
    everything = np.arange(shard.rows)
    numbered = replace(shard, obs=np.repeat(everything, 126).reshape(-1, 126).astype(np.float32))
    drawn = draw([numbered], 500, SearchSettings(root_value_share=share, value_lambda=1.0), rng())
    rows = drawn.obs[:, 0].astype(int)
    outcome = shard.returns[shard.game[rows], shard.seat[rows]]
    expected = shard.value[rows] if truncated else (1 - share) * outcome + share * shard.value[rows]
    assert np.allclose(drawn.target, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("seats", "expected"), [(2, [-0.371875, 0.1625, 0.05, 0.1]), (3, [-0.4375, 0.25, -0.05, 0.1])], ids=str
)
def test_targets_mix_later_searches(seats: int, expected: list[float]) -> None:
    """By hand, for a game's last four decisions, made in turns, with a lambda of 0.75 and half for the own search.

    Of two seats, what follows is worth 0.5 after the last decision, -(0.25 * -0.3 + 0.75 * 0.5) = -0.3 before it,
    -(0.25 * 0.4 + 0.75 * -0.3) = 0.125 and -(0.25 * 0.2 + 0.75 * 0.125) = -0.14375. Of more, a seat counts its own
    decisions alone: -0.5 or 0.5 after its last, and 0.25 * 0.4 + 0.75 * -0.5 = -0.275 or 0.3 before.
    """
    shard = played(1, games=1)
    decisions, value = np.argsort(shard.step)[-4:], shard.value.copy()
    value[decisions] = -0.6, 0.2, 0.4, -0.3
    returns = np.zeros((1, seats), dtype=np.float32)
    returns[0, shard.seat[decisions[:2]]] = -0.5, 0.5
    targets = critic_targets(replace(shard, value=value, returns=returns), root_value_share=0.5, value_lambda=0.75)
    assert np.allclose(targets[decisions], expected, atol=1e-6)


def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def test_images_keep_policy_mask_and_observation_together(shards: list[Shard]) -> None:
    drawn = draw(shards, 300, CONFIG.search, rng())
    (mirror,) = GAME.symmetries
    plain, mirrored = defaultdict(list), 0
    for row in rows_of(drawn, ()):
        plain[row.obs.tobytes()].append(row)
    for row in rows_of(drawn, GAME.symmetries):
        assert np.isclose(row.policy.sum(), 1, atol=4e-3)
        assert not row.policy[~row.mask].any()
        if row.obs.tobytes() not in plain:
            mirrored += 1
            originals = plain[row.obs[mirror.observation].tobytes()]
            assert np.array_equal(originals[0].mask[mirror.action], row.mask)
            assert any(np.array_equal(original.policy[mirror.action], row.policy) for original in originals)
    assert mirrored > 50


def rows_of(samples: SearchSamples, symmetries):
    for batch in batches(samples, 64, symmetries, rng()):
        for columns in zip(batch.obs, batch.mask, batch.policy, batch.target, strict=True):
            yield type(batch)(*columns, weight=1.0)


@pytest.mark.parametrize("metric", range(6))
def test_update_with_one_metric_that_is_no_number_is_discarded(shards, monkeypatch, metric: int) -> None:
    means = torch.ones(5)
    if metric < 5:
        means[metric] = torch.nan
    else:
        means[1] = torch.inf  # so the explained variance is infinite, too
    monkeypatch.setattr(search_training, "_step", lambda *_, **__: means)
    with pytest.raises(DiscardedUpdate, match="A loss or the gradient is not a number"):
        learned(shards, epochs=1)


def test_rows_without_searches_are_refused(shards: list[Shard]) -> None:
    with pytest.raises(UnfitData, match="no policies of searches") as refused:
        learned([replace(shards[0], policy=None)])
    assert "play new games" in refused.value.hint


def test_policies_are_stored_listed_and_searched(shards: list[Shard]) -> None:
    store = MemoryStore()
    read = get_shard(store, put_shard(store, shards[0]))
    assert np.array_equal(read.policy, shards[0].policy)
    bare = put_shard(store, replace(shards[0], policy=None))
    assert get_shard(store, bare).policy is None
    lists = [replace(shard, mask=LegalActions.of(shard.mask)) for shard in shards]
    assert learned(lists, epochs=1)[0].parameters == learned(shards, epochs=1)[0].parameters
    assert isinstance(searching_player(Policy(CONFIG.network, GAME.shape, parameters()), CONFIG, 1.0), SearchPlayer)


def job(tmp_path, shard_keys, replayed=()):
    base = first(FileStore(tmp_path))
    data = {"base_model": base.model, "shards": shard_keys, "replayed": list(replayed)}
    how = {"step": 0, "seed": 4, "learning_rate": 1e-3, "epochs": 1}
    spec = {"store": str(tmp_path), "config": CONFIG.model_dump(mode="json"), **data, **how}
    return InlineEngine().run("flyball.app.learning.search_training:train", spec, deadline_seconds=60)


async def test_job_leaves_out_replayed_shards_that_are_gone(tmp_path, shards: list[Shard]) -> None:
    keys = [put_shard(FileStore(tmp_path), shard) for shard in shards]
    whole = await job(tmp_path, keys[:1], [keys[1], "0" * 64])
    assert whole["metrics"]["replayed_rows"] == shards[1].rows
    assert whole["rows"] == shards[0].rows
    with pytest.raises(JobFailed, match="MissingBlob"):
        await job(tmp_path, ["0" * 64])


def parameters():
    return {name: torch.clone(tensor) for name, tensor in bytes_to_parameters(first().parameters).items()}


@pytest.mark.parametrize(("size", "count"), [(64, 1), (8, 2), (1, 12)])
def test_few_samples_are_few_batches(size: int, count: int) -> None:
    samples = SearchSamples(
        np.zeros((12, 1), np.uint8), np.ones((12, 1), bool), np.ones(12, np.float16), np.arange(12, dtype=np.float32)
    )
    found = [*batches(samples, size, (), rng())]
    assert len(found) == count
    assert sorted(np.concatenate([batch.target for batch in found])) == [*range(12)]
