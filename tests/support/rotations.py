"""Rotations of made-up match results."""

import numpy as np

from flyball.app.play.match_statistics import count_rotations


def rotations(wins: int, draws: int, losses: int, players: int = 2) -> tuple[int, ...]:
    """Return the counts of rotations of independent games.

    The games are in a random order, which is always the same.
    """
    scores = np.repeat([1.0, 0.5, 0.0], [wins, draws, losses])
    return count_rotations(np.random.default_rng([wins, draws, losses]).permutation(scores), players)
