"""Inference and training of all kinds of networks, by precision.

Run with ``pytest tests/benchmarks/bench_networks.py -m benchmark -s``. Rates are by processor time, on one thread.
"""

from collections.abc import Callable
from functools import partial
from time import process_time

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from app.config import GAMES, Compute, NetworkSettings, Precision
from app.core import NetworkShape
from app.games import open_table
from app.learning.devices import arithmetic
from app.learning.inference import Policy
from app.learning.learner import load_adam
from app.learning.network import init_policy, load_network
from app.learning.ppo import descend

pytestmark = [pytest.mark.benchmark, pytest.mark.timeout(600)]
ROUNDS = 5
NETWORKS = {
    "mlp 256, 128": NetworkSettings(),
    "windows": NetworkSettings(kind="windows"),
    "windows, 2 residual blocks": NetworkSettings(kind="windows", hidden=(256,), residual=2),
    "tower 4 x 32": NetworkSettings(kind="tower"),
    "tower 4 x 64": NetworkSettings(kind="tower", channels=64),
    "tower 4 x 32, squeeze-excite": NetworkSettings(kind="tower", squeeze_excite=True),
}
PRECISIONS: tuple[Precision, ...] = ("float32", "bfloat16")
SHORTEST_S = 0.05  # of a measurement


def calls_a_second(calls: dict[str, Callable[[], object]]) -> dict[str, float]:
    """Return the rate of each of ``calls``, in calls a second. It is the best of rounds that take turns."""
    best = dict.fromkeys(calls, 0.0)
    for call in calls.values():
        call()
    for _ in range(ROUNDS):
        for name, call in calls.items():
            count, began = 0, process_time()
            while (passed := process_time() - began) < SHORTEST_S:
                call()
                count += 1
            best[name] = max(best[name], count / passed)
    return best


def positions(shape: NetworkShape, rows: int) -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 2, (rows, shape.features), dtype=np.uint8)


@pytest.mark.parametrize("key", ["connect_four_2p", "hex7_2p", "go7_2p", "othello_2p"])
def test_positions_a_second_by_precision_and_rows(key: str) -> None:
    torch.set_num_threads(1)
    shape = open_table(GAMES[key], 0).spec.shape
    for name, settings in NETWORKS.items():
        parameters = init_policy(settings, shape, 0)
        policies = {
            precision: Policy(settings, shape, parameters, Compute(precision=precision)) for precision in PRECISIONS
        }
        rates = {}
        for rows in (8, 64, 512):
            obs = positions(shape, rows)
            found = calls_a_second({each: partial(policy.outputs, obs) for each, policy in policies.items()})
            rates |= {f"{each}, {rows}": rate * rows for each, rate in found.items()}
        exact, rounded = (policies[each].outputs(obs) for each in PRECISIONS)
        told = ", ".join(f"{each}: {rate:,.0f}" for each, rate in rates.items())
        apart = np.abs(exact - rounded).max()
        print(f"\n{key}, {name}: {told}; largest difference {apart:.4f} of {np.abs(exact).max():.2f}")  # noqa: T201
        assert apart < 0.05


@pytest.mark.parametrize("key", ["connect_four_2p", "othello_2p"])
def test_training_rows_a_second_by_precision(key: str) -> None:
    torch.set_num_threads(1)
    shape = open_table(GAMES[key], 0).spec.shape
    for name, settings in NETWORKS.items():
        for rows in (512, 2048):
            steps = {precision: training_step(settings, shape, rows, precision) for precision in PRECISIONS}
            rates = {each: rate * rows for each, rate in calls_a_second(steps).items()}
            told = ", ".join(f"{each}: {rate:,.0f}" for each, rate in rates.items())
            print(f"\n{key}, {name}, batches of {rows}: {told} rows/s")  # noqa: T201
            assert min(rates.values()) > 0


def training_step(
    settings: NetworkSettings, shape: NetworkShape, rows: int, precision: Precision
) -> Callable[[], object]:
    """Return a function that makes a step of Adam. Its targets are fixed, and like a search's policies and outcomes."""
    network = load_network(settings, shape, init_policy(settings, shape, 0))
    optimizer, obs = load_adam(network, 1e-4, None), torch.from_numpy(positions(shape, rows))
    generator = torch.Generator().manual_seed(0)
    wanted = torch.softmax(torch.randn(rows, shape.actions, generator=generator), dim=1)
    outcomes = torch.randn(rows, generator=generator).sign()

    def step() -> None:
        with arithmetic(obs.device, precision):
            logits, values = network(obs)
        policy_loss = -(wanted * torch.log_softmax(logits.float(), dim=1)).sum(dim=1).mean()
        descend(network, optimizer, policy_loss + (values.float() - outcomes).square().mean(), max_norm=0.5)

    return step
