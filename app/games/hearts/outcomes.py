"""Outcomes of finished hands: results of games, or scores to go on with."""

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.cards import POINTS, SEATS
from app.games.hearts.play import result
from app.games.hearts.state import Games

Indices = NDArray[np.int64]


@kernel
def settle_hands(
    games: Games, slots: Indices, begun: Indices, rules: tuple[int, int, int], returns: NDArray[np.float32]
) -> Indices:
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
