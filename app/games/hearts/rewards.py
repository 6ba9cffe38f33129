"""Rewards of seats on the way to their outcome.

A table tells at any time what a seat *has earned so far*; what it earned from one decision to the next is a
difference, and the last difference is taken to the outcome. So the rewards of an episode always sum to its outcome,
however they are spread:

- ``terminal``: nothing is earned before the end.
- ``per_trick``: who takes p points has earned -p / 26 more, and each other seat a third of p / 26, as in the
  outcome, which is the lead over the mean of the others. A moon turns signs at the end.
- ``shaped``: besides, 0.02 for each suit that the seat has none of any more, and -0.05 for each time that it led
  unbroken hearts although it had something else, which only rules without ``must_break_hearts`` allow. Both are
  given back at the end: a potential (Ng et al. 1999), which cannot make another policy the best one.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.cards import POINTS, RANKS, SEATS, SUIT, SUITS
from app.games.hearts.state import Games

Rewards = Literal["terminal", "per_trick", "shaped"]
VOID_BONUS, HEARTS_PENALTY = 0.02, 0.05


@kernel
def earned_points(
    games: Games, slots: NDArray[np.int64], seats: NDArray[np.int8], hands: int, out: NDArray[np.float32]
) -> None:
    """Write what ``seats`` [K] have earned by points in games of ``hands`` into ``out`` [K]."""
    for k in range(len(slots)):
        game = games[slots[k]]
        own = total = 0
        for seat in range(SEATS):
            points = game["scores"][seat] + game["points"][seat]
            total += points
            if seat == seats[k]:
                own = points
        out[k] = ((total - own) / (SEATS - 1) - own) / (POINTS * hands)


@kernel
def add_shaping(games: Games, slots: NDArray[np.int64], seats: NDArray[np.int8], out: NDArray[np.float32]) -> None:
    """Add the bonus and the penalty of ``seats`` [K] to ``out`` [K]."""
    for k in range(len(slots)):
        game, seat = games[slots[k]], seats[k]
        for suit in range(SUITS):
            if not game["hand"][seat] & SUIT << suit * RANKS:
                out[k] += VOID_BONUS
        out[k] -= HEARTS_PENALTY * game["leads"][seat]
