"""Trick-taking games: reading OpenSpiel's record of the tricks out of its information state."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

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
