"""Seating in self-play, fixed before the games begin."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core import derive_seed
from app.selfplay.draws import draw_points, number_streams
from app.selfplay.rollout import HERO, Indices, Schedule


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


def selfplay_schedule(
    games: int,
    players: int,
    lineups: Sequence[tuple[Sequence[int], int]],
    temperatures: Sequence[float],
    seed: int,
    *,
    opening_plies: int = 0,
) -> Schedule:
    """Return ``games`` games with the seating of ``selfplay_seating``, drawn from ``seed``.

    Each game begins with 0 to ``opening_plies`` random decisions, every number as often.
    """
    return Schedule(
        seeds=[derive_seed(seed, "game", game) for game in range(games)],
        seating=selfplay_seating(games, players, lineups),
        temperatures=temperatures,
        seed=derive_seed(seed, "choices"),
        openings=_opening_lengths(games, opening_plies, derive_seed(seed, "openings")),
    )


def _opening_lengths(games: int, longest: int, seed: int) -> Indices:
    numbers = np.arange(games)
    points = draw_points(number_streams(seed, numbers), np.zeros(games, dtype=np.int64))
    return (points * (longest + 1)).astype(np.int64)
