"""The scale that a game's observations imply."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from flyball.app.games.game import BrokenGame, Game, GameTable
from flyball.app.games.table import FINISHED, TableSpec

GAMES, MOVES = 16, 64
"""Games that are looked at, and moves of each."""

ANY_OUTCOME = 1e9
"""Scale of outcomes beyond that of any game, because the configuration's is not known here."""

SMALL = 8
"""Largest number that a network takes as it is: counts of pieces, say."""


def implied_scale(make: Callable[[], Game], spec: TableSpec, name: str) -> float:
    """Return the divisor of uint8 observations: the largest if most other than 0 are above ``SMALL``, otherwise 1."""
    if spec.observation_type is not np.uint8:
        return 1.0
    try:
        numbers = _numbers(GameTable(make, replace(spec, outcome_scale=ANY_OUTCOME), name, GAMES))
    except BrokenGame:
        return 1.0  # whoever plays the game gets the error
    positive = numbers[numbers > 0]
    return float(positive.max()) if np.count_nonzero(positive > SMALL) * 2 > len(positive) else 1.0


def _numbers(table: GameTable) -> NDArray[Any]:
    """Return all observations of random games."""
    rng, observations = np.random.default_rng(0), []
    table.reset(np.arange(GAMES), range(GAMES))
    for _ in range(MOVES):
        live = np.flatnonzero(table.seats() != FINISHED)
        if not len(live):
            break
        obs, mask = table.observe(live)
        observations.append(obs)
        table.step(live, (rng.random(mask.shape) * mask).argmax(axis=1).astype(np.int32))
    return np.concatenate(observations) if observations else np.zeros((0, table.spec.observation_size), dtype=np.uint8)
