"""The features of ``layout``, read from OpenSpiel's information state: by this the two engines can be compared."""

import numpy as np
from numpy.typing import NDArray

from app.games.codec import Codec
from app.games.hearts.cards import CARDS, FIRST_HEART, POINTS, QUEEN_OF_SPADES, RANKS, SEATS, SUITS
from app.games.hearts.encode import (
    BROKEN,
    CARD,
    DIRECTION,
    DIRECTION_ORDER,
    IN_TRICK,
    LAST,
    LED,
    PASSING,
    POSITION,
    SCORE_UNIT,
    SCORES,
    SEEN,
    SIZE,
    TRICK,
    TRICKS,
    VOIDS,
)
from app.games.oh_hell import Played, read_tricks, relative
from app.games.table import Indices

_SUITS = np.array([0, 1, 3, 2])  # the game orders clubs, diamonds, hearts, spades; we put hearts last
_OURS = (_SUITS[np.arange(CARDS) % SUITS] * RANKS) + np.arange(CARDS) // SUITS
_THEIRS = np.argsort(_OURS)
_RECEIVED, _HAND, _POINTS, _RECORD = 108, 160, 212, 356  # where the parts of the information state begin
_POINT_STEPS, _POINT_OFFSET = 36, 10  # points are a thermometer of 36 steps that starts at -10


def hearts(qs_breaks_hearts: bool = True) -> Codec:  # noqa: FBT001, FBT002  # a parameter of the game
    """Actions are cards as we number them. A moon is worth exactly 1."""

    def encode(raw: NDArray[np.float32], seats: NDArray[np.int8]) -> NDArray[np.float32]:
        return _encode(raw, seats, [QUEEN_OF_SPADES] if qs_breaks_hearts else [])

    return Codec(
        SIZE,
        encode,
        np.tile(_THEIRS, (SEATS, 1)),
        kind=np.float32,
        scale=POINTS,
        uniform_chance=True,
    )


def _encode(raw: NDArray[np.float32], seats: NDArray[np.int8], also_break: list[int]) -> NDArray[np.float32]:
    played = read_tricks(raw[:, _RECORD:], seats, SEATS, _OURS)
    out = np.zeros((len(raw), SIZE), dtype=np.float32)
    out[:, :CARDS] = raw[:, _HAND + _THEIRS]
    points = raw[:, _POINTS:_RECORD].reshape(-1, SEATS, _POINT_STEPS).sum(axis=2) - _POINT_OFFSET
    out[:, SCORES : SCORES + SEATS] = relative(points, seats) / SCORE_UNIT
    out[:, DIRECTION : DIRECTION + 4] = raw[:, DIRECTION_ORDER]
    received = raw[:, _RECEIVED:_HAND].any(axis=1)
    out[:, PASSING] = (played.count == 0) & ~received & (raw[:, 0] == 0)
    out[:, TRICKS] = played.count // SEATS / RANKS
    out[:, IN_TRICK] = out[:, POSITION] = played.count % SEATS / SEATS
    breaking = (played.card >= FIRST_HEART) | np.isin(played.card, also_break)
    out[played.row[breaking], BROKEN] = 1
    _write_cards(out, played)
    return out


def _write_cards(out: NDArray[np.float32], played: Played) -> None:
    row, card = played.row, played.card
    out[row, SEEN + card] = 1
    _write_void(out, played)
    current = played.order >= (played.count - played.count % SEATS)[row]
    out[row[current], LED + played.led[current]] = 1
    _write_card(out, row[current], TRICK + played.order[current] % SEATS * CARD, card[current])
    age = played.count[row] - 1 - played.order
    recent = age < SEATS
    _write_card(out, row[recent], LAST + age[recent] * CARD, card[recent])


def _write_void(out: NDArray[np.float32], played: Played) -> None:
    shown = (played.seat > 0) & (played.card // RANKS != played.led)
    out[played.row[shown], VOIDS + (played.seat[shown] - 1) * SUITS + played.led[shown]] = 1


def _write_card(out: NDArray[np.float32], row: Indices, start: Indices, card: Indices) -> None:
    suit, rank = np.divmod(card, RANKS)
    out[row, start + suit] = 1
    out[row, start + SUITS + rank] = 1
