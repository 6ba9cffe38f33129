"""The settings of a simulated run: those of a cluster, at a cluster's pace."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.random import Generator

from app.config import GAMES, MATCHMAKING, GameConfig, RunSettings
from app.core import ConfigKey, derive_seed
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


ROWS_PER_TRAINING = 32_768
"""Four times the laptop's: 36 nodes bring rows quickly, and a training shall be worth the minutes it takes."""

PACE: Mapping[str, float] = {
    "tick_seconds": 60.0,
    "feedback.scheduler.lease_seconds": 7200.0,
    "feedback.scheduler.node_silent_seconds": 1800.0,
}
"""Requests take a quarter of an hour, two wait at a node, and slow nodes are five times slower: leases are longer."""

PLAYED_ALONE = {f"league.matchmaking.{name}": value for name, value in MATCHMAKING["mirror"].model_dump().items()}
"""Models meet only themselves: games against others give fewer rows, and what they are worth is not modelled."""


def worker_names(nodes: int) -> tuple[str, ...]:
    """Return the names of the self-play workers, one a node."""
    width = len(str(nodes))
    return tuple(f"selfplay_worker@node{number:0{width}}" for number in range(1, nodes + 1))


def simulated(nodes: int, keys: Sequence[ConfigKey]) -> dict[str, Any]:
    """Return the settings that a simulation presets, by dotted key as in ``flyball.toml``."""
    rows = {f"games.{key}.rows_per_training": ROWS_PER_TRAINING for key in keys}
    return {**PACE, **PLAYED_ALONE, "selfplay_workers": list(worker_names(nodes)), "configs": list(keys), **rows}


def many_configs(count: int) -> tuple[GameConfig, ...]:
    """Return ``count`` configurations of one game, for questions of scale."""
    model = GAMES[ConfigKey("connect_four_2p")].replace(rows_per_training=ROWS_PER_TRAINING)
    return tuple(model.replace(key=ConfigKey(f"scale_{number}_2p")) for number in range(count))


def scale_settings(nodes: int, configs: Sequence[GameConfig]) -> RunSettings:
    """Return the settings of a simulation of these configurations."""
    scheduler = {key.rsplit(".", 1)[1]: value for key, value in PACE.items() if key.startswith("feedback.scheduler")}
    tree = {
        "tick_seconds": PACE["tick_seconds"],
        "feedback": {"scheduler": scheduler},
        "league": {"matchmaking": "mirror"},
    }
    return RunSettings.model_validate({**tree, "selfplay_workers": worker_names(nodes), "configs": configs})
