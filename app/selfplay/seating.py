"""Who sits where in self-play, decided before the games begin and never changed within one."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.selfplay.rollout import HERO


def selfplay_seating(games: int, players: int, lineups: Sequence[tuple[Sequence[int], int]]) -> NDArray[np.int8]:
    """Return who sits where [G, P], as numbers of players; 0 is the hero.

    Args:
        games: G; those that are left over after the lineups are the hero's alone, in every seat.
        players: P.
        lineups: (who sits in the P - 1 seats after the hero's, number of games) each. The hero's seat rotates.
    """
    seating = np.full((games, players), HERO, dtype=np.int8)
    first = 0
    for opponents, count in lineups:
        heroes = np.arange(count) % players
        for place, opponent in enumerate(opponents, 1):
            seating[np.arange(first, first + count), (heroes + place) % players] = opponent
        first += count
    return seating
