"""Self-play in batches against a forward pass for each position.

The other side plays one game at a time, in the same run. Run with
``pytest tests/benchmarks/bench_selfplay.py -m benchmark -s``. The ratio is asserted, not the figures.
"""

from time import perf_counter

import numpy as np
import pyspiel
import pytest
import torch
from taking_turns import selfplay

from flyball.app.config import GAMES, PROFILES
from flyball.app.games import open_table
from flyball.app.learning.dense import ActorCritic
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy, load_network, masked_log_probs
from flyball.app.play.selfplay import IN_FLIGHT

pytestmark = pytest.mark.benchmark
ROUNDS = 5
RATIO = 5


def network_of(config) -> ActorCritic:
    spec = open_table(config, 0).spec
    parameters = init_policy(config.network, spec.shape, seed=0)
    return load_network(config.network, spec.shape, parameters)


def policy_of(config) -> Policy:
    spec = open_table(config, 0).spec
    parameters = init_policy(config.network, spec.shape, seed=0)
    return Policy(config.network, spec.shape, parameters)


def batched(config, policy: Policy, games: int, seed: int) -> float:
    """Return rows a second, including the recording."""
    began = perf_counter()
    return selfplay(config, policy, games, seed) / (perf_counter() - began)


def one_at_a_time(config, network: ActorCritic, games: int, seed: int) -> float:
    """Return rows a second of a plain loop.

    It uses OpenSpiel's lists, with a forward pass for each position and one game at a time.
    """
    game, rng = pyspiel.load_game(config.game), np.random.default_rng(seed)
    rows, began = 0, perf_counter()
    for _ in range(games):
        state = game.new_initial_state()
        while not state.is_terminal():
            obs = torch.tensor(state.observation_tensor())[None]
            mask = torch.tensor(state.legal_actions_mask(), dtype=torch.bool)[None]
            with torch.inference_mode():
                log_probs = masked_log_probs(network(obs)[0], mask)
            probabilities = np.exp(log_probs[0].double().numpy())
            state.apply_action(rng.choice(len(probabilities), p=probabilities / probabilities.sum()))
            rows += 1
    return rows / (perf_counter() - began)


@pytest.mark.parametrize("key", ["connect_four_2p", "othello_2p"])
def test_batches_beat_one_game_at_a_time(key: str) -> None:
    config = GAMES[key]
    policy, network = policy_of(config), network_of(config)
    pairs = [(batched(config, policy, 1024, seed), one_at_a_time(config, network, 12, seed)) for seed in range(ROUNDS)]
    fast, slow = np.median(np.array(pairs), axis=0)
    print(f"{key}: {fast:,.0f} rows/s batched, {slow:,.0f} one at a time, {fast / slow:.1f} times")  # noqa: T201
    assert fast / slow >= RATIO


@pytest.mark.parametrize("key", [key for key in PROFILES["full"] if key != "shogi_2p"])  # see bench_shogi.py
def test_rows_a_second_of_every_configuration(key: str) -> None:
    config = GAMES[key]
    policy = policy_of(config)
    rates = [batched(config, policy, IN_FLIGHT, seed) for seed in range(3)]
    print(f"{key}: {np.median(rates):,.0f} rows/s")  # noqa: T201
    assert min(rates) > 0
