"""The 270 features of an observation.

Seats are in the order me, left, across, right.

Own hand 52; cards played 52; led suit 4; the trick's cards in order of play 4 x (suit 4 + rank 13); cards in the trick
/ 4, own position / 4, padding; scores / 100; hearts broken; tricks / 13; passing; direction left, right, across, hold;
voids shown by left, across, right 3 x 4; the last four cards, newest first, 4 x 17.

Scores are the match's before this hand plus the points taken in this hand. In a game of one hand they are the hand's
points. The features omit the three cards that the seat passed, and who played which card in older tricks.
"""

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.hearts.cards import CARDS, RANKS, SEATS, SUITS
from flyball.app.games.hearts.play import DIRECTION_ORDER, Game, Games, is_passing
from flyball.app.games.table import Floats, Indices

CARD = SUITS + RANKS
HAND = 0
SEEN = HAND + CARDS
LED = SEEN + CARDS
TRICK = LED + SUITS
IN_TRICK = TRICK + SEATS * CARD
POSITION = IN_TRICK + 1
SCORES = POSITION + 2
BROKEN = SCORES + SEATS
TRICKS = BROKEN + 1
PASSING = TRICKS + 1
DIRECTION = PASSING + 1
VOIDS = DIRECTION + 4
LAST = VOIDS + (SEATS - 1) * SUITS
SIZE = LAST + SEATS * CARD

SCORE_UNIT = 100

# Lookup tables of features: copying a row as a vector is faster than writing zeros, then single ones.
_EIGHT = (np.arange(256)[:, None] >> np.arange(8) & 1).astype(np.float32)  # features of 8 cards
_EIGHT_LEGAL = _EIGHT.astype(np.uint8)
_SUITS = _EIGHT[: 1 << SUITS, :SUITS].copy()
_DIRECTIONS = (np.array(DIRECTION_ORDER) == np.arange(len(DIRECTION_ORDER))[:, None]).astype(np.float32)
_NONE = CARDS  # no card
_CARD = np.zeros((CARDS + 1, CARD), dtype=np.float32)
_CARD[np.arange(CARDS), np.arange(CARDS) // RANKS] = 1
_CARD[np.arange(CARDS), SUITS + np.arange(CARDS) % RANKS] = 1


@kernel
def observe(games: Games, slots: Indices, obs: Floats, mask: NDArray[np.uint8]) -> None:
    """Write observations [K, 270] and masks [K, 52] for the seats to move in ``slots`` [K]."""
    for k in range(len(slots)):
        game = games[slots[k]]
        _write(game, game["mover"], obs, k)
        _spread(game["choices"], _EIGHT_LEGAL, mask, k, 0)


@kernel
def view(games: Games, slots: Indices, seats: NDArray[np.int8], obs: Floats) -> None:
    """Write ``obs`` [K, 270] for ``seats`` [K] in ``slots`` [K]."""
    for k in range(len(slots)):
        _write(games[slots[k]], seats[k], obs, k)


@inlined
def _write(game: Game, seat: int, obs: Floats, row: int) -> None:
    _spread(game["hand"][seat], _EIGHT, obs, row, HAND)
    _spread(game["played"], _EIGHT, obs, row, SEEN)
    played, plays = int(game["cards_played"]), game["plays"]
    in_trick = played & 3
    first = played - in_trick
    _copy(_CARD[plays[first] if in_trick else _NONE], SUITS, obs, row, LED)
    for k in range(SEATS):
        _copy(_CARD[plays[first + k] if k < in_trick else _NONE], CARD, obs, row, TRICK + k * CARD)
    obs[row, IN_TRICK] = obs[row, POSITION] = in_trick / SEATS
    obs[row, POSITION + 1] = 0
    for k in range(SEATS):
        other = (seat + k) & 3
        obs[row, SCORES + k] = (game["scores"][other] + game["points"][other]) / SCORE_UNIT
    obs[row, BROKEN] = game["broken"]
    obs[row, TRICKS] = (played >> 2) / RANKS
    obs[row, PASSING] = is_passing(game)
    _copy(_DIRECTIONS[game["direction"]], len(DIRECTION_ORDER), obs, row, DIRECTION)
    for k in range(1, SEATS):
        _copy(_SUITS[game["voids"][(seat + k) & 3]], SUITS, obs, row, VOIDS + (k - 1) * SUITS)
    for age in range(SEATS):
        _copy(_CARD[plays[played - 1 - age] if age < played else _NONE], CARD, obs, row, LAST + age * CARD)


@inlined
def _spread(cards: int, table: NDArray[np.generic], out: NDArray[np.generic], row: int, start: int) -> None:
    """Write the features of a set of cards: six groups of eight, then four."""
    for byte in range(CARDS // 8):
        for k in range(8):
            out[row, start + 8 * byte + k] = table[cards >> 8 * byte & 255, k]
    for k in range(4):
        out[row, start + CARDS - 4 + k] = table[cards >> CARDS - 4, k]


@inlined
def _copy(features: NDArray[np.generic], size: int, out: NDArray[np.generic], row: int, start: int) -> None:
    for k in range(size):
        out[row, start + k] = features[k]
