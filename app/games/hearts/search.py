"""The hard bot: hidden cards are dealt at random as far as they are unknown, and every choice is played out.

Perfect-information Monte Carlo (Ginsberg 2001): all choices are tried on the same deals, by the normal bot in every
seat, and the one with the best mean outcome is taken. A deal respects what the seat knows: how many cards the others
hold, and which suits they do not.
"""

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.cards import ALL, CARDS, RANKS, SEATS, count, lowest
from app.games.hearts.normal import WEIGHTS, normal_choice
from app.games.hearts.play import Game, Games, choose, drawn, is_passing, legal, result

_TRIES = 20
"""Deals that are begun before the voids are let go: a deal card by card can end in a corner."""


@kernel
def search(scratch: Games, choices: int, seed: int, deals: int) -> int:
    """Return the card of ``choices`` that is best on average for seat 0, which is to move.

    After an eighth, a quarter and a half of the deals the worse half of the cards is given up (sequential halving,
    Karnin et al. 2013). Cards to be passed are chosen as the normal bot does: there are most of them when each takes
    longest to play out, and trying them gains little.

    Args:
        scratch: [3] the game as the seat knows it, and two to play on.
        choices: a set of two or more.
        seed: of the deals.
        deals: how many.
    """
    if is_passing(scratch[0]):
        return normal_choice(scratch[0], 0, choices, WEIGHTS)
    worth = np.zeros(CARDS)
    for number in range(1, deals + 1):
        scratch[1] = scratch[0]
        deal_hidden(scratch[1], seed + number * 0x5851F42D)
        for card in range(CARDS):
            if choices >> card & 1:
                scratch[2] = scratch[1]
                worth[card] += _played_out(scratch[2], card)
        if number in (deals // 8, deals // 4, deals // 2):
            choices = _best(choices, worth, (count(choices) + 1) // 2)
    return lowest(_best(choices, worth, 1))


@kernel
def _best(cards: int, worth: NDArray[np.float64], number: int) -> int:
    """Return so many of the cards, those that are worth most."""
    chosen = 0
    for _ in range(number):
        best = lowest(cards)
        for card in range(CARDS):
            if cards >> card & 1 and worth[card] > worth[best]:
                best = card
        chosen |= 1 << best
        cards ^= 1 << best
    return chosen


@kernel
def deal_hidden(game: Game, seed: int) -> None:
    """Deal the cards that seat 0 does not know to the others at random."""
    hidden = ALL & ~game["hand"][0] & ~game["played"]
    drawn_so_far = 0
    if is_passing(game):  # what the seat has given already is hidden from the observation too
        for _ in range(game["cards_passed"]):
            card = _pick(hidden, drawn(seed, drawn_so_far))
            drawn_so_far += 1
            game["given"][0] |= 1 << card
            hidden ^= 1 << card
    for attempt in range(_TRIES):
        if _dealt(game, hidden, seed + (attempt + 1) * 0x2545F491, attempt + 1 < _TRIES):
            return


@kernel
def _dealt(game: Game, hidden: int, seed: int, by_voids: int) -> bool:
    """Deal the hidden cards, those with the fewest possible holders first; tell whether it worked out."""
    room = np.empty(SEATS, dtype=np.int64)
    _measure(game, room)
    number = 0
    for holders in range(1, SEATS):
        cards = _held_by(game, hidden, holders) if by_voids else (hidden if holders == 1 else 0)
        while cards:
            card = _pick(cards, drawn(seed, number))
            seat = _holder(game, room, card // RANKS, drawn(seed, number + 1), by_voids)
            number += 2
            if seat < 0:
                return False
            cards ^= 1 << card
            room[seat] -= 1
            game["hand"][seat] |= 1 << card
    return True


@kernel
def _measure(game: Game, room: NDArray[np.int64]) -> None:
    """Empty the hands of the others, and write how many cards each seat has to get into ``room`` [4]."""
    played = game["cards_played"]
    room[0] = 0
    for seat in range(1, SEATS):
        game["hand"][seat] = 0
        in_trick = (seat - game["leader"]) % SEATS < played % SEATS
        room[seat] = RANKS - played // SEATS - (1 if in_trick else 0)


@kernel
def _held_by(game: Game, hidden: int, holders: int) -> int:
    """Return the hidden cards that so many of the others may hold."""
    cards = 0
    for card in range(CARDS):
        if hidden >> card & 1:
            possible = 0
            for seat in range(1, SEATS):
                possible += 1 - (game["voids"][seat] >> card // RANKS & 1)
            if possible == holders:
                cards |= 1 << card
    return cards


@kernel
def _holder(game: Game, room: NDArray[np.int64], suit: int, point: int, by_voids: int) -> int:
    """Draw who gets a card, by the room there is; -1 when nobody can."""
    total = 0
    for seat in range(1, SEATS):
        if not (by_voids and game["voids"][seat] >> suit & 1):
            total += room[seat]
    left = point * total >> 32
    for seat in range(1, SEATS):
        if not (by_voids and game["voids"][seat] >> suit & 1):
            left -= room[seat]
            if left < 0:
                return seat
    return -1


@kernel
def _pick(cards: int, point: int) -> int:
    """Return one card of a set, ``point`` being even in [0, 2**32)."""
    for _ in range(point * count(cards) >> 32):
        cards &= cards - 1
    return lowest(cards)


@kernel
def _played_out(game: Game, card: int) -> float:
    """Return how the game ends for seat 0 if it chooses ``card`` and the normal bot goes on: its lead in points."""
    choose(game, card)
    choices = legal(game)
    while choices:
        forced = choices & (choices - 1) == 0
        choose(game, lowest(choices) if forced else normal_choice(game, game["mover"], choices, WEIGHTS))
        choices = legal(game)
    own, others = result(game, 0, 0), 0
    for seat in range(1, SEATS):
        others += result(game, seat, 0)
    return others / (SEATS - 1) - own
