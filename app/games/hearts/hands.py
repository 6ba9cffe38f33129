"""Hands in batches: the kernels that a table calls once a step."""

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import inlined, kernel
from app.games.hearts.bits import lowest
from app.games.hearts.cards import CARDS, RANKS, SEATS
from app.games.hearts.play import choose, deal, legal
from app.games.hearts.state import HOLD, PASSED, Game, Games

Indices = NDArray[np.int64]
RECORD = 1 + CARDS + SEATS * PASSED + CARDS
"""The longest history of a hand: the direction, the deal, the cards passed, the plays."""


@inlined
def play_forced(game: Game) -> None:
    """Play while there is one card to choose, and note the choices of whoever then has several; none: it is over."""
    choices = legal(game)
    while choices and choices & (choices - 1) == 0:
        choose(game, lowest(choices))
        choices = legal(game)
    game["choices"] = choices


@kernel
def deal_hands(games: Games, slots: Indices, seeds: Indices, directions: Indices, options: int) -> None:
    """Begin a hand in each of ``slots``, and play what is forced."""
    for k in range(len(slots)):
        game = games[slots[k]]
        deal(game, seeds[k], directions[k], options)
        play_forced(game)


@kernel
def play_hands(games: Games, slots: Indices, actions: Indices, over: Indices) -> tuple[int, int]:
    """Choose ``actions`` in ``slots`` [K], and play what is then forced; write the slots of ended hands into ``over``.

    Return the number of the first action that is illegal, which is not played, nor are those after it (without any,
    K), and how many hands have ended.
    """
    ended = 0
    for k in range(len(slots)):
        game = games[slots[k]]
        action: int = actions[k]
        if action < 0 or action >= CARDS or not game["choices"] >> action & 1:
            return k, ended
        choose(game, action)
        play_forced(game)
        if not game["choices"]:
            over[ended] = slots[k]
            ended += 1
    return len(slots), ended


@kernel
def write_record(games: Games, slot: int, out: NDArray[np.int32]) -> int:
    """Write a hand's history as OpenSpiel numbers it into ``out`` [RECORD]; return its length."""
    game = games[slot]
    out[0] = game["direction"]
    for k in range(CARDS):
        out[1 + k] = theirs(game["deck"][k])
    length = 1 + CARDS
    if game["direction"] != HOLD:
        for k in range(game["cards_passed"]):
            out[length + k] = theirs(game["passes"][k])
        length += game["cards_passed"]
    for k in range(game["cards_played"]):
        out[length + k] = theirs(game["plays"][k])
    return length + int(game["cards_played"])


@kernel
def theirs(card: int) -> int:
    """Return OpenSpiel's number of a card: rank x 4 + suit, suits clubs, diamonds, hearts, spades."""
    suit = card // RANKS
    if suit >= 2:
        suit = 5 - suit
    return card % RANKS * SEATS + suit
