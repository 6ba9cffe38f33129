"""Hearts: 270 features of the seat to move, read from OpenSpiel's information state.

In order (HEARTS facts of the design): own hand 52; cards seen 52; led suit 4; the trick's cards in order of play
4 x (suit 4 + rank 13); cards in the trick / 4, own position / 4, padding; points 4; hearts broken; tricks / 13;
passing; direction left, right, across, hold; voids shown by left, across, right 3 x 4; the last four cards, newest
first, 4 x 17. One game is one hand, so the points are this hand's, of 26, where a match would have its score of 100.
"""

import numpy as np
from numpy.typing import NDArray

from app.games.codec import Codec
from app.games.heuristics import hearts_heuristic
from app.games.table import Indices
from app.games.tricks import CARDS, SUITS, Played, read_tricks, relative

SIZE = 270
_PLAYERS, _RANKS, _TRICKS = 4, 13, 13
_SUITS = np.array([0, 1, 3, 2])  # the game orders clubs, diamonds, hearts, spades; we put hearts last
_OURS = (_SUITS[np.arange(CARDS) % SUITS] * _RANKS) + np.arange(CARDS) // SUITS
_THEIRS = np.argsort(_OURS)
_DIRECTIONS = np.array([1, 3, 2, 0])  # the game: hold, left, across, right
_RECEIVED, _HAND, _POINTS, _RECORD = 108, 160, 212, 356  # where the parts of the information state begin
_POINT_STEPS, _POINT_OFFSET = 36, 10  # points are a thermometer of 36 steps that starts at -10
_SEEN, _LED, _TRICK, _IN_TRICK, _SCORES, _BROKEN, _DIRECTION, _VOIDS, _LAST = 52, 104, 108, 176, 179, 183, 186, 190, 202
_CARD = SUITS + _RANKS
_QUEEN_OF_SPADES, _FIRST_HEART = 36, 39


def hearts() -> Codec:
    """Cards are numbered suit x 13 + rank, suits clubs, diamonds, spades, hearts. A moon is worth exactly 1."""
    return Codec(
        SIZE,
        _encode,
        np.tile(_THEIRS, (_PLAYERS, 1)),
        kind=np.float32,
        scale=26.0,
        uniform_chance=True,
        heuristic=hearts_heuristic(),
    )


def _encode(raw: NDArray[np.float32], seats: NDArray[np.int8]) -> NDArray[np.float32]:
    played = read_tricks(raw[:, _RECORD:], seats, _PLAYERS, _OURS)
    out = np.zeros((len(raw), SIZE), dtype=np.float32)
    out[:, :CARDS] = raw[:, _HAND + _THEIRS]
    points = raw[:, _POINTS:_RECORD].reshape(-1, _PLAYERS, _POINT_STEPS).sum(axis=2) - _POINT_OFFSET
    out[:, _SCORES : _SCORES + _PLAYERS] = relative(points, seats) / 26
    out[:, _DIRECTION : _DIRECTION + 4] = raw[:, _DIRECTIONS]
    received = raw[:, _RECEIVED:_HAND].any(axis=1)
    out[:, _BROKEN + 2] = (played.count == 0) & ~received & (raw[:, 0] == 0)
    out[:, _BROKEN + 1] = played.count // _PLAYERS / _TRICKS
    out[:, _IN_TRICK] = out[:, _IN_TRICK + 1] = played.count % _PLAYERS / _PLAYERS
    _write_cards(out, played)
    return out


def _write_cards(out: NDArray[np.float32], played: Played) -> None:
    row, card = played.row, played.card
    out[row, _SEEN + card] = 1
    out[row[(card == _QUEEN_OF_SPADES) | (card >= _FIRST_HEART)], _BROKEN] = 1
    _write_void(out, played)
    current = played.order >= (played.count - played.count % _PLAYERS)[row]
    out[row[current], _LED + played.led[current]] = 1
    _write_card(out, row[current], _TRICK + played.order[current] % _PLAYERS * _CARD, card[current])
    age = played.count[row] - 1 - played.order
    recent = age < _PLAYERS
    _write_card(out, row[recent], _LAST + age[recent] * _CARD, card[recent])


def _write_void(out: NDArray[np.float32], played: Played) -> None:
    shown = (played.seat > 0) & (played.card // _RANKS != played.led)
    out[played.row[shown], _VOIDS + (played.seat[shown] - 1) * SUITS + played.led[shown]] = 1


def _write_card(out: NDArray[np.float32], row: Indices, start: Indices, card: Indices) -> None:
    suit, rank = np.divmod(card, _RANKS)
    out[row, start + suit] = 1
    out[row, start + SUITS + rank] = 1
