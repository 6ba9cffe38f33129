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
from app.games.hearts.play import is_passing
from app.games.hearts.state import Game, Games

Indices = NDArray[np.int64]
_BIT = 1 << np.arange(CARDS, dtype=np.int64)  # a table: the compiler makes vectors of it, but not of shifts
_SUIT, _RANK = np.arange(CARDS) // RANKS, SUITS + np.arange(CARDS) % RANKS
_PLACE = np.argsort(DIRECTION_ORDER)  # of each direction among the features


@kernel
def observe(games: Games, slots: Indices, obs: NDArray[np.float32], mask: NDArray[np.bool_]) -> None:
    """Write what the seats to move in ``slots`` [K] know into ``obs`` [K, 270], what they may do into [K, 52]."""
    for k in range(len(slots)):
        game = games[slots[k]]
        _features(game, game["mover"], obs[k])
        _spread(game["choices"], mask[k], 0)


@kernel
def view(games: Games, slots: Indices, seats: NDArray[np.int8], obs: NDArray[np.float32]) -> None:
    """Write what ``seats`` [K] know in ``slots`` [K] into ``obs`` [K, 270]."""
    for k in range(len(slots)):
        _features(games[slots[k]], seats[k], obs[k])


@kernel
def _features(game: Game, seat: int, out: NDArray[np.float32]) -> None:
    played, plays = game["cards_played"], game["plays"]
    first = played - played % SEATS
    out[LED:IN_TRICK] = 0
    out[DIRECTION:VOIDS] = 0
    out[LAST:] = 0
    _spread(game["hand"][seat], out, HAND)
    _spread(game["played"], out, SEEN)
    if played > first:
        out[LED + plays[first] // RANKS] = 1
    for k in range(first, played):
        _write_card(plays[k], out, TRICK + (k - first) * CARD)
    out[IN_TRICK] = out[POSITION] = (played - first) / SEATS
    out[POSITION + 1] = 0
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
        _write_card(plays[played - 1 - age], out, LAST + age * CARD)


# Places are handed over as numbers: a slice of an array costs more than what is written into it here.


@kernel
def _write_card(card: int, out: NDArray[np.float32], start: int) -> None:
    out[start + _SUIT[card]] = 1
    out[start + _RANK[card]] = 1


@kernel
def _spread(cards: int, out: NDArray[np.generic], start: int) -> None:
    for card in range(CARDS):
        out[start + card] = cards & _BIT[card] != 0
