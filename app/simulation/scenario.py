"""The settings of a simulated run: those of a cluster, at a cluster's pace."""

from collections.abc import Mapping, Sequence
from typing import Any

from app.config import GAMES, MATCHMAKING, GameConfig, RunSettings
from app.core import ConfigKey

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
    model = GAMES[ConfigKey("connect_four_2p")].model_copy(update={"rows_per_training": ROWS_PER_TRAINING})
    return tuple(model.model_copy(update={"key": ConfigKey(f"scale_{number}_2p")}) for number in range(count))


def scale_settings(nodes: int, configs: Sequence[GameConfig]) -> RunSettings:
    """Return the settings of a simulation of these configurations."""
    scheduler = {key.rsplit(".", 1)[1]: value for key, value in PACE.items() if key.startswith("feedback.scheduler")}
    tree = {
        "tick_seconds": PACE["tick_seconds"],
        "feedback": {"scheduler": scheduler},
        "league": {"matchmaking": "mirror"},
    }
    return RunSettings.model_validate({**tree, "selfplay_workers": worker_names(nodes), "configs": configs})
