"""Rates of works that take turns, by processor time."""

from collections.abc import Callable
from statistics import median
from time import process_time

import numpy as np

from flyball.app.config import GameConfig
from flyball.app.core import derive_seed
from flyball.app.games import open_table
from flyball.app.learning.inference import Policy
from flyball.app.play.recording import ShardRecorder
from flyball.app.play.rollout import Rollout, Schedule
from flyball.app.play.selfplay import IN_FLIGHT


def rate(work: Callable[[int], float], seed: int) -> float:
    """Return units of work a second of processor time. A work gets a seed, and returns the units that it did."""
    began = process_time()
    return work(seed) / (process_time() - began)


def median_rates(*works: Callable[[int], float], rounds: int) -> list[float]:
    """Return the median rates of works that take turns. Another round before warms up."""
    table = [[rate(work, seed) for work in works] for seed in range(rounds + 1)]
    return [median(column) for column in zip(*table[1:], strict=True)]


def selfplay(config: GameConfig, policy: Policy, games: int, seed: int) -> float:
    """Play and record games of a policy against itself, ``IN_FLIGHT`` at a time; return their rows."""
    seating = np.zeros((games, config.players), dtype=np.int8)
    schedule = Schedule([derive_seed(seed, game) for game in range(games)], seating, (1.0,), seed)
    return float(Rollout(open_table(config, IN_FLIGHT), [policy], schedule, ShardRecorder()).run().lengths.sum())
