"""From games to what their seats see and may do; see ``layout`` for the features."""

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.cards import CARDS, RANKS, SEATS, SUITS
from app.games.hearts.layout import (
    BROKEN,
    CARD,
    DIRECTION,
    DIRECTION_ORDER,
    HAND,
    IN_TRICK,
    LAST,
    LED,
    PASSING,
    POSITION,
    SCORE_UNIT,
    SCORES,
    SEEN,
    TRICK,
    TRICKS,
    VOIDS,
)
from app.games.hearts.play import is_passing, legal
from app.games.hearts.state import Game, Games

Indices = NDArray[np.int64]
_BIT = 1 << np.arange(CARDS, dtype=np.int64)  # a table: the compiler makes vectors of it, but not of shifts
_PLACE = np.argsort(DIRECTION_ORDER)  # of each direction among the features


@kernel
def observe(games: Games, slots: Indices, obs: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
    """Write what the seats to move in ``slots`` [K] know into ``obs`` [K, 270], what they may do into [K, 52]."""
    for k in range(len(slots)):
        game = games[slots[k]]
        _features(game, game["mover"], obs[k])
        _spread(legal(game), mask[k])


@kernel
def view(games: Games, slots: Indices, seats: NDArray[np.int8], obs: NDArray[np.float32]) -> None:
    """Write what ``seats`` [K] know in ``slots`` [K] into ``obs`` [K, 270]."""
    for k in range(len(slots)):
        _features(games[slots[k]], seats[k], obs[k])


@kernel
def _features(game: Game, seat: int, out: NDArray[np.float32]) -> None:
    played, plays = game["cards_played"], game["plays"]
    first = played - played % SEATS
    out[:] = 0
    _spread(game["hand"][seat], out[HAND : HAND + CARDS])
    _spread(game["played"], out[SEEN : SEEN + CARDS])
    if played > first:
        out[LED + plays[first] // RANKS] = 1
    for k in range(first, played):
        _write_card(plays[k], out[TRICK + (k - first) * CARD :])
    out[IN_TRICK] = out[POSITION] = (played - first) / SEATS
    for k in range(SEATS):
        other = (seat + k) % SEATS
        out[SCORES + k] = (game["scores"][other] + game["points"][other]) / SCORE_UNIT
    out[BROKEN] = game["broken"]
    out[TRICKS] = first // SEATS / RANKS
    out[PASSING] = is_passing(game)
    out[DIRECTION + _PLACE[game["direction"]]] = 1
    for k in range(1, SEATS):
        for suit in range(SUITS):
            out[VOIDS + (k - 1) * SUITS + suit] = game["voids"][(seat + k) % SEATS] >> suit & 1
    for age in range(min(played, SEATS)):
        _write_card(plays[played - 1 - age], out[LAST + age * CARD :])


@kernel
def _write_card(card: int, out: NDArray[np.float32]) -> None:
    out[card // RANKS] = 1
    out[SUITS + card % RANKS] = 1


@kernel
def _spread(cards: int, out: NDArray[np.generic]) -> None:
    for card in range(CARDS):
        out[card] = cards & _BIT[card] != 0
