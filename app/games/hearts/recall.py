"""From an observation back to a game, as far as the seat knows it: the seat is number 0, and holds the only hand."""

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.bits import count, points_of
from app.games.hearts.cards import CARDS, RANKS, SEATS, SUITS
from app.games.hearts.layout import (
    BROKEN,
    CARD,
    DIRECTION,
    DIRECTION_ORDER,
    HAND,
    IN_TRICK,
    PASSING,
    SCORE_UNIT,
    SCORES,
    SEEN,
    TRICK,
    VOIDS,
)
from app.games.hearts.state import PASSED, Game

_DIRECTIONS = np.array(DIRECTION_ORDER)


@kernel
def recall(obs: NDArray[np.float32], options: int, game: Game) -> None:
    """Make ``game`` what the observation [270] of the seat to move says, under the rules' ``options``.

    Of the tricks before the present one it says only which cards were played, and that is all the bots ask. In a match
    to several hands the points of this one can't be told from the scores, and count as none.
    """
    for seat in range(SEATS):
        game["hand"][seat] = game["given"][seat] = 0
        game["voids"][seat] = game["leads"][seat] = game["scores"][seat] = 0
    game["hand"][0] = _gather(obs[HAND : HAND + CARDS])
    game["played"] = _gather(obs[SEEN : SEEN + CARDS])
    for k in range(1, SEATS):
        for suit in range(SUITS):
            if obs[VOIDS + (k - 1) * SUITS + suit] > 0:
                game["voids"][k] |= 1 << suit
    in_trick = round(obs[IN_TRICK] * SEATS)
    played = count(game["played"])
    game["cards_played"] = played
    game["mover"] = 0
    game["leader"] = (SEATS - in_trick) % SEATS
    game["broken"] = obs[BROKEN] > 0
    game["options"] = options
    for k in range(len(_DIRECTIONS)):
        if obs[DIRECTION + k] > 0:
            game["direction"] = _DIRECTIONS[k]
    game["cards_passed"] = RANKS - count(game["hand"][0]) if obs[PASSING] > 0 else SEATS * PASSED
    for k in range(in_trick):
        game["plays"][played - in_trick + k] = _read_card(obs[TRICK + k * CARD : TRICK + (k + 1) * CARD])
    _recall_points(obs, game, played - in_trick)


@kernel
def _gather(features: NDArray[np.float32]) -> int:
    cards = 0
    for card in range(CARDS):
        if features[card] > 0:
            cards |= 1 << card
    return cards


@kernel
def _read_card(features: NDArray[np.float32]) -> int:
    card = 0
    for suit in range(SUITS):
        if features[suit] > 0:
            card += suit * RANKS
    for rank in range(RANKS):
        if features[SUITS + rank] > 0:
            card += rank
    return card


@kernel
def _recall_points(obs: NDArray[np.float32], game: Game, first: int) -> None:
    """Read the points that each seat has taken, unless they are not those of the tricks before ``first``."""
    left, total = 0, 0
    for card in range(CARDS):
        if game["played"] >> card & 1:
            left += points_of(card)
    for k in range(first, game["cards_played"]):
        left -= points_of(game["plays"][k])
    for seat in range(SEATS):
        points = round(obs[SCORES + seat] * SCORE_UNIT)
        total += points
        game["points"][seat] = min(max(points, 0), 26)
    if total != left:
        for seat in range(SEATS):
            game["points"][seat] = 0
