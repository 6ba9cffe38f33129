"""Play and training of a perceptron, of towers and of a user's conv network on connect four, in one run.

Run with ``pytest tests/benchmarks/bench_networks.py -m benchmark -s``. Rates are by processor time, on one thread.
"""

from pathlib import Path
from statistics import median
from time import process_time

import numpy as np
import pytest
import torch

from app.config import GAMES, NetworkSettings, PpoSettings
from app.core import derive_seed
from app.games import open_table
from app.learning.inference import Policy
from app.learning.learner import load_adam
from app.learning.network import init_policy, load_network
from app.learning.ppo import update
from app.learning.samples import Samples, prepare
from app.play.recording import ShardRecorder
from app.play.rollout import Rollout, Schedule
from app.play.selfplay import IN_FLIGHT, play_recorded

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
CONFIG, ROUNDS = GAMES["connect_four_2p"], 5
SHAPE = open_table(CONFIG, 0).spec.shape
SETTINGS = PpoSettings(batch_size=512, epochs=1, target_kl=10, max_kl=10, learning_rate=1e-4)
NETWORKS = {
    "mlp 256, 128": NetworkSettings(),
    "tower 4 x 32": NetworkSettings(kind="tower"),
    "tower 4 x 32, squeeze-excite": NetworkSettings(kind="tower", squeeze_excite=True),
    "conv_network.py, 16 channels": NetworkSettings(kind="conv_network:build"),
}


def policy_of(settings: NetworkSettings) -> Policy:
    return Policy(settings, SHAPE, init_policy(settings, SHAPE, 0))


def schedule(games: int, seed: int) -> Schedule:
    seating = np.zeros((games, CONFIG.players), dtype=np.int8)
    return Schedule([derive_seed(seed, game) for game in range(games)], seating, (1.0,), seed)


def played(settings: NetworkSettings, seed: int) -> float:
    """Return the rows a second of ``IN_FLIGHT`` games of self-play."""
    policy, rollout = policy_of(settings), schedule(IN_FLIGHT, seed)
    began = process_time()
    outcomes = Rollout(open_table(CONFIG, IN_FLIGHT), [policy], rollout, ShardRecorder()).run()
    return float(outcomes.lengths.sum()) / (process_time() - began)


def trained(settings: NetworkSettings, samples: Samples) -> float:
    """Return the rows a second of an epoch of PPO."""
    network = load_network(settings, SHAPE, init_policy(settings, SHAPE, 0))
    optimizer = load_adam(network, SETTINGS.learning_rate, None)
    generator, began = torch.Generator().manual_seed(1), process_time()
    update(network, optimizer, samples, SETTINGS, generator=generator, report=lambda epoch, metrics: None)
    return len(samples) / (process_time() - began)


def test_rows_a_second_of_every_kind_of_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "examples")
    torch.set_num_threads(1)
    facts = {"model": "0" * 64, "seed": 1, "worker": "bench", "in_flight": IN_FLIGHT}
    shard, _ = play_recorded(CONFIG, [policy_of(NetworkSettings())], schedule(IN_FLIGHT, 1), **facts)
    samples = prepare([shard], SETTINGS, (), 1)
    rates = {name: [] for name in NETWORKS}
    for number in range(ROUNDS + 1):
        for name, settings in NETWORKS.items():
            rates[name].append((played(settings, number), trained(settings, samples)))
    for name, pairs in rates.items():
        play, train = (median(column) for column in zip(*pairs[1:], strict=True))  # the first round warms up
        size = sum(tensor.numel() for tensor in init_policy(NETWORKS[name], SHAPE, 0).values())
        print(f"\n{name}: {size:,} parameters, play {play:,.0f} rows/s, training {train:,.0f} rows/s")  # noqa: T201
    assert all(min(column) > 0 for pairs in rates.values() for column in zip(*pairs, strict=True))
