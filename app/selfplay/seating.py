"""Who sits where in self-play, decided before the games begin and never changed within one."""

import numpy as np
from numpy.typing import NDArray

from app.selfplay.rollout import HERO


def selfplay_seating(games: int, players: int, opponents: int, share: float, seed: int) -> NDArray[np.int8]:
    """Return who sits where [G, P]: 0 for the hero, 1 … for the opponents.

    Args:
        games: G.
        players: P.
        opponents: how many opponents there are; with none the hero takes every seat.
        share: of the games, how many are played against opponents. In these the hero has one seat, in rotation,
            and every other seat an opponent drawn for it.
        seed: of the draws.
    """
    seating = np.full((games, players), HERO, dtype=np.int8)
    if not opponents:
        return seating
    draws = np.random.default_rng(seed)
    against = np.flatnonzero(draws.random(games) < share)
    seating[against] = draws.integers(1, opponents + 1, (len(against), players))
    seating[against, np.arange(len(against)) % players] = HERO
    return seating
