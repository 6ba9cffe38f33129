"""Oh Hell: a compact observation of the seat to move, read from OpenSpiel's information state.

In order, for T tricks at most and P players: tricks in this hand T; dealer P; trump card 52 and suit 4; own hand 52;
bids P x (none, 0 … T); tricks won P thermometers of T; cards seen 52; the trick's cards by player (P - 1) x 52; led
suit 4. Players are in the order me, left, …
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.games.codec import Codec, identical
from app.games.table import Indices

CARDS = 52
SUITS = 4


@dataclass(frozen=True, slots=True, eq=False)
class Played:
    """The M cards that have been played in K positions, position by position, in the order of play.

    Attributes:
        row: [M] the position, 0 … K - 1.
        card: [M] suit x 13 + rank.
        seat: [M] who played it, as places to the left of the observer.
        order: [M] number of the card in its game.
        trick: [M] number of its trick.
        led: [M] the suit led to its trick.
        count: [K] cards played in each position.
    """

    row: Indices
    card: Indices
    seat: Indices
    order: Indices
    trick: Indices
    led: Indices
    count: Indices


def read_tricks(block: NDArray[np.float32], seats: NDArray[np.int8], players: int, cards: Indices) -> Played:
    """Read the part of an information state that lists the tricks.

    Args:
        block: [K, tricks x (2 x players - 1) x 52], each trick written from its leader's seat onward.
        seats: [K] the observers.
        players: number of seats.
        cards: [52] our number of each of the game's cards.
    """
    row, index = np.divmod(np.flatnonzero(block != 0), block.shape[1])  # of floats, nonzero is ten times as slow
    place, card = np.divmod(index, CARDS)
    trick, place = np.divmod(place, 2 * players - 1)
    count = np.bincount(row, minlength=len(block))
    order = np.arange(len(row)) - (np.cumsum(count) - count)[row]
    ours = cards[card]
    led = ours[np.arange(len(row)) - order % players] // (CARDS // SUITS)
    return Played(row, ours, (place - seats.astype(np.int64)[row]) % players, order, trick, led, count)


def relative(values: NDArray[np.float32], seats: NDArray[np.int8]) -> NDArray[np.float32]:
    """Turn per-seat values [K, P, ...] so that the observers [K] come first."""
    players = values.shape[1]
    turned = (np.arange(players)[None, :] + seats[:, None]) % players
    own_first: NDArray[np.float32] = values[np.arange(len(values))[:, None], turned]
    return own_first


_RANKS = CARDS // SUITS
_OURS = np.arange(CARDS) % SUITS * _RANKS + np.arange(CARDS) // SUITS
_THEIRS = np.argsort(_OURS)


def oh_hell(players: int = 3) -> Codec:
    """Actions: the game's cards, 0 … 51, then bids of 0 and up."""
    tricks = (CARDS - 1) // players
    encoder = _Encoder(players, tricks)
    return Codec(encoder.size, encoder.encode, identical(players, CARDS + tricks + 1), uniform_chance=True)


class _Encoder:
    def __init__(self, players: int, tricks: int) -> None:
        self._players, self._tricks = players, tricks
        bids, won = players * (tricks + 2), players * tricks
        # Where the parts begin in the information state …
        self._raw = _starts(tricks, players, CARDS, CARDS, CARDS, bids, won)
        # … and in the observation.
        self._own = _starts(tricks, players, CARDS, SUITS, CARDS, bids, won, CARDS, (players - 1) * CARDS, SUITS)
        self.size = int(self._own[-1])

    def encode(self, raw: NDArray[np.float32], seats: NDArray[np.int8]) -> NDArray[np.uint8]:
        """Return the observations [K, D] of information states [K, R]."""
        k, players, tricks = len(raw), self._players, self._tricks
        count, dealer, trump, _, hand, bids, won, record = self._raw
        trumps = raw[:, trump + _THEIRS]
        parts = (
            raw[:, count:dealer],
            relative(raw[:, dealer:trump], seats),
            trumps,
            trumps.reshape(k, SUITS, _RANKS).any(axis=2),
            raw[:, hand + _THEIRS],
            relative(raw[:, bids:won].reshape(k, players, tricks + 2), seats).reshape(k, -1),
            relative(raw[:, won:record].reshape(k, players, tricks), seats).reshape(k, -1),
        )
        out = np.zeros((k, self.size), dtype=np.uint8)
        out[:, : self._own[7]] = np.concatenate(parts, axis=1)
        self._write_cards(out, read_tricks(raw[:, record:], seats, players, _OURS))
        return out

    def _write_cards(self, out: NDArray[np.uint8], played: Played) -> None:
        seen, table, led = self._own[7:10]
        out[played.row, seen + played.card] = 1
        current = played.order >= (played.count - played.count % self._players)[played.row]
        row, seat = played.row[current], played.seat[current]
        others = seat > 0  # an observer who has played to the trick is not to move
        out[row[others], table + (seat[others] - 1) * CARDS + played.card[current][others]] = 1
        out[row, led + played.led[current]] = 1


def _starts(*sizes: int) -> Indices:
    return np.cumsum((0, *sizes))
