"""Own rules of board games against OpenSpiel's table, in one process.

The two take turns. Run with ``pytest tests/benchmarks/bench_boards.py -m benchmark -s``. The ratio is asserted, not the
figures.
"""

from time import process_time

import numpy as np
import pytest

from flyball.app.config import GAMES, GameConfig
from flyball.app.games import FINISHED, Table, open_table
from flyball.app.games.catalogue import BOARDS

pytestmark = pytest.mark.benchmark
SLOTS, STEPS, ROUNDS = 512, 100, 5
RATIO = 4
CONFIGS = [
    config for config in GAMES.values() if config.engine == "flyball" and config.game.partition("(")[0] in BOARDS
]


def cost(config: GameConfig, seed: int) -> float:
    """Return the processor time of a random decision, in µs. The position is observed, masked and stepped."""
    table, slots, rng, spent = open_table(config, SLOTS), np.arange(SLOTS), np.random.default_rng(seed), 0.0
    table.reset(slots, [0] * SLOTS)
    for _ in range(STEPS):
        began = process_time()
        _, mask = table.observe(slots)
        spent += process_time() - began
        actions = (rng.random(mask.shape, dtype=np.float32) * mask).argmax(axis=1).astype(np.int32)
        began = process_time()
        table.step(slots, actions)
        spent += process_time() - began
        over = np.flatnonzero(table.seats() == FINISHED)
        table.reset(over, [0] * len(over))
    return 1e6 * spent / (SLOTS * STEPS)


def copying(table: Table) -> float:
    """Return processor time, in µs, of a copy of a game."""
    half = np.arange(SLOTS // 2)
    table.reset(half, [0] * len(half))
    began = process_time()
    for _ in range(STEPS):
        table.copy_from(table, half, half + len(half))
    return 1e6 * (process_time() - began) / (STEPS * len(half))


@pytest.mark.parametrize("config", CONFIGS, ids=[config.key for config in CONFIGS])
def test_own_rules_beat_openspiel(config: GameConfig) -> None:
    engines = [config, config.replace(engine="openspiel")]
    for engine in engines:
        cost(engine, ROUNDS)  # compiles
    rounds = np.array([[cost(engine, seed) for engine in engines] for seed in range(ROUNDS)])
    (ours, theirs), ratios = np.median(rounds, axis=0), rounds[:, 1] / rounds[:, 0]
    own, other = (np.median([copying(open_table(engine, SLOTS)) for _ in range(ROUNDS)]) for engine in engines)
    print(  # noqa: T201
        f"{config.key}: {ours:.3f} µs a decision, OpenSpiel {theirs:.2f}, {ratios.min():.0f} to {ratios.max():.0f} "
        f"times; {own:.3f} µs a copy, OpenSpiel {other:.2f}"
    )
    assert np.median(ratios) >= RATIO
