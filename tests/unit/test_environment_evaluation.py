"""Episodes in environments: both autoresets, trajectories, refusals, no side effects."""

import random
from collections.abc import Callable
from typing import Any

import corridors
import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.vector import AutoresetMode

from flyball.app.config import NetworkSettings
from flyball.app.core import NetworkShape
from flyball.app.gym.episodes import EpisodeSummary, UnfinishedEpisodes, trajectory_rows
from flyball.app.gym.evaluation import (
    BadEnvironment,
    GymnasiumEnvironments,
    UnknownEnvironment,
    evaluate_episodes,
    open_environments,
)
from flyball.app.learning.dense import ActorCritic
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy


def forward(observations: Any) -> np.ndarray:
    return np.ones(len(observations), dtype=np.int64)


def hesitant(observations: Any) -> np.ndarray:
    """Turns back when it is far away, and never arrives."""
    return (observations[:, 0] <= 4).astype(np.int64)


def made(count: int, mode: AutoresetMode, success_key: str | None = None) -> GymnasiumEnvironments:
    vector = gymnasium.make_vec(
        "Corridor-v0", num_envs=count, vectorization_mode="sync", vector_kwargs={"autoreset_mode": mode}
    )
    return GymnasiumEnvironments(vector, success_key)


MODES = pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])


def evaluated(
    act: Callable[[Any], np.ndarray], episodes: int = 30, count: int = 4, mode: AutoresetMode = AutoresetMode.NEXT_STEP
) -> EpisodeSummary:
    return evaluate_episodes(made(count, mode), act, episodes=episodes, seed=3, max_steps=10_000)


def test_the_summary_is_that_of_the_walks() -> None:
    summary = evaluated(forward)
    assert (summary.episodes, summary.success_rate) == (30, 1.0)
    assert 1 <= summary.median_steps_to_goal <= 8
    assert summary.mean_return == -summary.mean_steps
    assert summary.dist_at_end_p50 == 0.0


@pytest.mark.parametrize("act", [forward, hesitant])
@pytest.mark.parametrize("count", [1, 4, 7])
def test_both_autoreset_modes_give_the_same_episodes(act, count: int) -> None:
    same, following = (evaluated(act, 30, count, mode) for mode in (AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP))
    assert same == following
    if act is hesitant:
        assert 0 < same.success_rate < 1
        assert same.dist_at_end_p50 is not None


@MODES
def test_success_may_be_what_the_environment_says(mode: AutoresetMode) -> None:
    def by(key: str | None) -> EpisodeSummary:
        return evaluate_episodes(made(2, mode, key), hesitant, episodes=10, seed=3, max_steps=1000)

    assert by("is_success") == by(None)
    with pytest.raises(BadEnvironment, match="no 'arrived'"):
        by("arrived")
    with pytest.raises(UnfinishedEpisodes, match=r"\d+ of 30 episodes"):
        evaluate_episodes(made(2, mode), forward, episodes=30, seed=3, max_steps=20)
    with pytest.raises(BadEnvironment, match="do not reset themselves"):
        made(2, AutoresetMode.DISABLED)


@pytest.mark.parametrize("name", ["NoSuch-v0", "Corridor-v7", "not an id", "no_such_module:Corridor-v0"])
def test_an_environment_that_cannot_be_made_says_why(name: str) -> None:
    with pytest.raises(UnknownEnvironment, match="cannot be made"):
        open_environments(name, 1)
    assert open_environments("corridors:Corridor-v0", 2).step_limit == corridors.LIMIT
    assert open_environments("EndlessCorridor-v0", 1).step_limit is None


@pytest.mark.parametrize("mode", [AutoresetMode.SAME_STEP, AutoresetMode.NEXT_STEP])
def test_a_trajectory_has_every_step_that_counts_and_no_other(mode: AutoresetMode) -> None:
    rows: list[dict[str, Any]] = []
    plan = {"episodes": 5, "seed": 3, "max_steps": 1000}
    watch = lambda *step: rows.extend(trajectory_rows(*step))  # noqa: E731
    summary = evaluate_episodes(made(2, mode), forward, **plan, watch=watch)
    assert len(rows) == summary.mean_steps * 5
    episodes: dict[tuple[int, int], list[dict[str, Any]]] = {}
    for row in rows:
        episodes.setdefault((row["env"], row["episode"]), []).append(row)
    assert sorted(episodes) == [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]
    for steps in episodes.values():
        assert [row["t"] for row in steps] == list(range(len(steps)))
        assert [row["dist"] for row in steps] == list(range(len(steps) - 1, -1, -1))
        assert [row["done"] for row in steps] == [False] * (len(steps) - 1) + [True]
    assert set(rows[0]) == {"env", "episode", "t", "action", "reward", "done", "trunc", "dist"}
    assert rows[0]["action"] == 1


def test_nothing_of_a_training_next_door_is_touched() -> None:
    """Evaluating in the training's environment would leave its observations out of step."""
    settings, shape = NetworkSettings(hidden=(4,)), NetworkShape(1, 2)
    network = ActorCritic(settings, shape).to_empty(device="cpu")
    network.load_state_dict(init_policy(settings, shape, seed=0))
    network.train()
    optimizer = torch.optim.Adam(network.parameters())
    network(torch.ones(1, 1))[0].sum().backward()
    optimizer.step()
    training = made(2, AutoresetMode.NEXT_STEP)
    training.reset(11)
    observations, _ = training.step(np.array([0, 1]))

    def everything() -> str:
        parts = (list(network.state_dict().items()), network.training, [p.grad for p in network.parameters()])
        chance = (random.getstate(), np.random.get_state(), torch.random.get_rng_state().tolist())  # noqa: NPY002
        walked = [environment.unwrapped._distance for environment in training._vector.envs]
        return repr((parts, optimizer.state_dict(), chance, walked, observations))

    before = everything()
    snapshot = Policy(settings, shape, network.state_dict())
    evaluated(lambda seen: snapshot.forward(seen, np.ones((len(seen), 2), dtype=bool))[0].argmax(axis=1))
    assert everything() == before
    with torch.no_grad():
        network.trunk[0].weight.zero_()
    log_probs, _ = snapshot.forward(np.ones((1, 1), np.float32), np.ones((1, 2), dtype=bool))
    fresh, _ = Policy(settings, shape, network.state_dict()).forward(np.ones((1, 1), np.float32), np.ones((1, 2), bool))
    assert (log_probs != fresh).any()
