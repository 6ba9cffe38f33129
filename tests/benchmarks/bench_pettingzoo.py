"""Self-play of connect four through four kinds of tables.

They are PettingZoo's environment, a game of one class, OpenSpiel's rules and our own.

Nim is measured as a class and as a table, the examples of games of one's own.

Run with ``pytest tests/benchmarks/bench_pettingzoo.py -m benchmark -s``. All are measured in one run, by CPU time on
one thread, with the same network and 256 games at once. Only the order of the slowest and the fastest is asserted.
"""

from pathlib import Path

import numpy as np
import pytest
from taking_turns import rate, selfplay

from flyball.app.config import GAMES, GameConfig
from flyball.app.games import open_table
from flyball.app.learning.inference import Policy
from flyball.app.learning.network import init_policy, threads

pytestmark = pytest.mark.benchmark
OURS = GAMES["connect_four_2p"]
TABLES = {
    "our rules": OURS,
    "OpenSpiel": OURS.replace(engine="openspiel"),
    "one class": GameConfig(key="class_2p", game="plain_connect_four:ConnectFour", players=2, network=OURS.network),
    "PettingZoo": GameConfig(key="foreign_2p", game="pettingzoo:connect_four_v3", players=2, network=OURS.network),
}
NIM = {
    "Nim, one class": GameConfig(key="nim_2p", game="nim:Nim", players=2),
    "Nim, a table": GameConfig(key="nim_2p", game="nim_table:nim", players=2),
}
EXAMPLES = Path(__file__).parents[1] / "examples"
ROUNDS, GAMES_PLAYED = 5, 512


def rows_a_second(config: GameConfig, seed: int) -> float:
    """Return recorded rows a second of processor time. A new network plays the games against itself."""
    spec = open_table(config, 0).spec
    policy = Policy(config.network, spec.shape, init_policy(config.network, spec.shape, seed=0))
    return rate(lambda number: selfplay(config, policy, GAMES_PLAYED, number), seed)


def measured(configs: dict[str, GameConfig]) -> dict[str, float]:
    """Return each configuration's median rate over rounds.

    Each round plays each configuration once; the first round compiles and is not counted.
    """
    with threads(1):
        rounds = [{name: rows_a_second(config, seed) for name, config in configs.items()} for seed in range(ROUNDS + 1)]
    rates = {name: sorted(one[name] for one in rounds[1:]) for name in configs}
    for name, sample in rates.items():
        print(f"{name}: {np.median(sample):,.0f} rows/s ({sample[0]:,.0f} to {sample[-1]:,.0f})")  # noqa: T201
    return {name: float(np.median(sample)) for name, sample in rates.items()}


def test_self_play_through_each_kind_of_table() -> None:
    rates = measured(TABLES)
    assert rates["PettingZoo"] < rates["our rules"]


def test_table_of_nim_is_faster_than_its_class(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    rates = measured(NIM)
    assert rates["Nim, one class"] < rates["Nim, a table"]
