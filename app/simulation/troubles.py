"""Troubles and their times: drawn once from the seed, the same for all controllers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.random import Generator

from app.core import derive_seed
from app.simulation.agenda import DAY_US, HOUR_US, START_US
from app.simulation.plant_settings import EpisodeSettings, TroubleSettings


class Episode(NamedTuple):
    """A trouble in [start, end), microseconds since 1970; ``severity`` in (0, 1]."""

    start_us: int
    end_us: int
    severity: float


def stream(seed: int, *purpose: str | int) -> Generator:
    """Return a generator of its own for a purpose."""
    return np.random.default_rng(derive_seed(seed, "simulation", *purpose))


def draw_times(per_day: float, end_us: int, rng: Generator) -> list[int]:
    """Draw the times of a Poisson process from the start of the simulation to its end."""
    times, now = [], float(START_US)
    while per_day > 0:
        now += float(rng.exponential(DAY_US / per_day))
        if now >= end_us:
            break
        times.append(int(now))
    return times


def draw_episodes(settings: EpisodeSettings, end_us: int, rng: Generator) -> tuple[Episode, ...]:
    """Draw episodes that do not overlap; their lengths are exponential."""
    episodes: list[Episode] = []
    for start in draw_times(settings.per_day, end_us, rng):
        length = int(rng.exponential(settings.hours * HOUR_US)) + 1
        severity = float(rng.uniform(*settings.severity))
        if not episodes or start >= episodes[-1].end_us:
            episodes.append(Episode(start, start + length, severity))
    return tuple(episodes)


def severity_at(episodes: Sequence[Episode], now_us: int) -> float:
    """Return the severity of the episode that is on, 0 when none is."""
    return next((e.severity for e in episodes if e.start_us <= now_us < e.end_us), 0.0)


@dataclass(frozen=True, slots=True)
class NodeTroubles:
    """Troubles of one node."""

    dead: tuple[Episode, ...]
    slow: tuple[Episode, ...]
    corrupt: tuple[Episode, ...]
    parity: tuple[Episode, ...]
    failing: tuple[Episode, ...]

    @classmethod
    def draw(cls, settings: TroubleSettings, end_us: int, seed: int, node: str) -> "NodeTroubles":
        """Draw a node's troubles."""
        return cls(
            dead=draw_episodes(settings.dead_nodes, end_us, stream(seed, "dead", node)),
            slow=draw_episodes(settings.slow_nodes, end_us, stream(seed, "slow", node)),
            corrupt=draw_episodes(settings.corrupt_nodes, end_us, stream(seed, "corrupt", node)),
            parity=draw_episodes(settings.parity_nodes, end_us, stream(seed, "parity", node)),
            failing=draw_episodes(settings.failing_nodes, end_us, stream(seed, "failing", node)),
        )
