"""Outcomes of hands, and rewards of seats on the way to them.

A table says at any time what a seat *has earned so far*; what it earned from one decision to the next is a difference,
and the last difference is taken to the outcome. So the rewards of an episode always sum to its outcome, however they
are spread:

- ``terminal``: nothing is earned before the end.
- ``per_trick``: who takes p points has earned -p / 26 more, and each other seat a third of p / 26, as in the
  outcome, which is the lead over the mean of the others. A moon turns signs at the end.
- ``shaped``: as ``per_trick``, with 0.02 more for each suit that the seat has no longer, and 0.05 less for each time
  that it led unbroken hearts although it had something else, which only rules without ``must_break_hearts`` allow.
  Both are given back at the end: a potential (Ng et al. 1999), which cannot make another policy the best one.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.cards import POINTS, RANKS, SEATS, SUIT, SUITS
from app.games.hearts.play import Games, result
from app.games.table import Floats, Indices

Rewards = Literal["terminal", "per_trick", "shaped"]
VOID_BONUS, HEARTS_PENALTY = 0.02, 0.05


def moons(outcomes: Floats) -> NDArray[np.bool_]:
    """Tell which seats [G, 4] shot the moon, from the outcomes of single hands [G, 4]: only that is worth 1."""
    shot: NDArray[np.bool_] = outcomes > 1 - 1 / POINTS
    return shot


def hand_points(outcomes: Floats, *, moon_for_shooter: bool) -> NDArray[np.int64]:
    """Return the points [G, 4] of single hands from their outcomes [G, 4], leads over the others' mean in 26 points.

    Args:
        outcomes: as a table returns them.
        moon_for_shooter: a moon is -26 for its shooter, instead of 26 for each other seat.
    """
    shooter = moons(outcomes)
    moon = np.where(shooter, -POINTS, 0) if moon_for_shooter else np.where(shooter, 0, POINTS)
    plain = np.rint((POINTS - (SEATS - 1) * POINTS * outcomes.astype(np.float64)) / SEATS).astype(np.int64)
    return np.where(shooter.any(axis=1, keepdims=True), moon, plain)


@kernel
def earned_points(games: Games, slots: Indices, seats: NDArray[np.int8], hands: int, out: Floats) -> None:
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
def add_shaping(games: Games, slots: Indices, seats: NDArray[np.int8], out: Floats) -> None:
    """Add the bonus and the penalty of ``seats`` [K] to ``out`` [K]."""
    for k in range(len(slots)):
        game, seat = games[slots[k]], seats[k]
        for suit in range(SUITS):
            if not game["hand"][seat] & SUIT << suit * RANKS:
                out[k] += VOID_BONUS
        out[k] -= HEARTS_PENALTY * game["leads"][seat]


@kernel
def settle_hands(games: Games, slots: Indices, begun: Indices, rules: tuple[int, int, int], returns: Floats) -> Indices:
    """Count the hands in ``slots``, which are over, and return those slots whose games go on.

    Args:
        games: [N] whose scores are raised where they go on.
        slots: distinct.
        begun: [N] hands of each game so far.
        rules: how many hands make a game, the limit of a match, and whether a moon is the shooter's; see
            ``HeartsRules``.
        returns: [N, 4] the outcomes of the games that are over are written here.
    """
    hands, limit, moon_for_shooter = rules
    number, going_on, scores = 0, np.empty(len(slots), dtype=np.int64), np.empty(SEATS, dtype=np.int64)
    for k in range(len(slots)):
        slot = slots[k]
        game = games[slot]
        reached = False
        for seat in range(SEATS):
            scores[seat] = game["scores"][seat] + result(game, seat, moon_for_shooter)
            reached |= scores[seat] >= limit
        if begun[slot] == hands or (not hands and reached):
            for seat in range(SEATS):
                returns[slot, seat] = _outcome(scores, seat, hands)
        else:
            for seat in range(SEATS):
                game["scores"][seat] = scores[seat]
            going_on[number] = slot
            number += 1
    return going_on[:number]


@kernel
def _outcome(scores: NDArray[np.int64], seat: int, hands: int) -> float:
    own: int = scores[seat]
    total = better = equal = 0
    for other in range(SEATS):
        total += scores[other]
        better += scores[other] < own
        equal += scores[other] == own
    if hands:
        return ((total - own) / (SEATS - 1) - own) / (POINTS * hands)
    share = 0.0 if better else 1 / equal
    return (SEATS * share - 1) / (SEATS - 1)
