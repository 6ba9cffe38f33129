"""A hand of Hearts: record, dealing, passing, legal cards, playing and points.

A record holds one game. A table calls the kernels that take ``Games`` once a step, for many records.
"""

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.hearts.cards import (
    ALL_HEARTS,
    CARDS,
    FIRST_HEART,
    POINT_CARDS,
    POINTS,
    QUEEN_OF_SPADES,
    RANKS,
    SEATS,
    SUIT,
    TWO_OF_CLUBS,
    lowest,
)
from flyball.app.games.hearts.rules import CLEAN_FIRST_TRICK, MUST_BREAK, QUEEN_BREAKS
from flyball.app.games.table import FINISHED, Indices

LEFT, ACROSS, RIGHT, HOLD = 1, 2, 3, 0
DIRECTION_ORDER = (LEFT, RIGHT, ACROSS, HOLD)
"""Directions of passing in a match, hand by hand."""

PASSED = 3
"""Number of cards that each seat passes."""

GAME = np.dtype(
    [
        ("hand", np.int64, SEATS),  # the cards each seat holds, as sets
        ("given", np.int64, SEATS),  # the cards each seat passed
        ("played", np.int64),
        ("choices", np.int64),  # legal cards of the seat to move, after forced moves
        ("deck", np.uint8, CARDS),  # card k was dealt to seat k mod 4
        ("passes", np.uint8, SEATS * PASSED),  # cards in the order they were chosen, seat by seat
        ("plays", np.uint8, CARDS),
        ("points", np.int8, SEATS),  # taken in this hand
        ("scores", np.int32, SEATS),  # match scores before this hand
        ("voids", np.uint8, SEATS),  # suits that each seat could not follow, as sets
        ("leads", np.int8, SEATS),  # times each seat led unbroken hearts while holding another suit
        ("cards_passed", np.uint8),
        ("cards_played", np.uint8),
        ("mover", np.int8),  # the seat to move; FINISHED when the hand is over
        ("leader", np.int8),  # of the trick
        ("direction", np.uint8),  # seats to the left that passed cards move, as in OpenSpiel
        ("broken", np.bool_),
        ("options", np.uint8),  # see ``HeartsRules.option_set``
    ],
    align=True,
)
Games = NDArray[np.void]
Game = np.void
"""One record of ``GAME``."""

_GOLDEN, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_ALL_PASSED = SEATS * PASSED

# Lookup tables by card. Divisions and unpredictable branches take most of the time here. So suits are looked up,
# remainders by the four seats are `& 3`, and a choice between two cheap values is made without a branch.
_SUIT = np.arange(CARDS) // RANKS
_SAME_SUIT = SUIT << RANKS * _SUIT
_POINTS = (np.arange(CARDS) >= FIRST_HEART) + 13 * (np.arange(CARDS) == QUEEN_OF_SPADES)
_OPENSPIEL = (np.arange(CARDS) % RANKS * SEATS + np.array([0, 1, 3, 2])[_SUIT]).astype(np.uint8).tobytes().ljust(256)
"""OpenSpiel's card numbers (hearts before spades), for ``bytes.translate``. That is as fast as a kernel."""


@kernel
def drawn(seed: int, number: int) -> int:
    """Return random number ``number`` of a seed, uniform in [0, 2**32). Source: SplitMix64 (Steele et al. 2014)."""
    z = np.uint64(seed) + np.uint64(_GOLDEN) * np.uint64(number + 1)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(_MIX_1)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(_MIX_2)
    # int() would keep the value unsigned, and mixing unsigned with signed gives a float.
    return np.int64((z ^ (z >> np.uint64(31))) >> np.uint64(32))  # type: ignore[return-value]


@kernel
def deal(game: Game, seed: int, direction: int, options: int) -> None:
    """Shuffle and deal a hand; keep the scores. A negative ``direction`` is replaced by a random one."""
    deck = game["deck"]
    for k in range(CARDS):
        deck[k] = k
    for k in range(CARDS - 1, 0, -1):
        other = drawn(seed, k) * (k + 1) >> 32
        deck[k], deck[other] = deck[other], deck[k]
    for seat in range(SEATS):
        game["hand"][seat] = game["given"][seat] = 0
        game["points"][seat] = game["voids"][seat] = game["leads"][seat] = 0
    for k in range(CARDS):
        game["hand"][k % SEATS] |= 1 << deck[k]
    game["played"] = 0
    game["cards_passed"] = game["cards_played"] = 0
    game["broken"] = False
    game["options"] = options
    game["direction"] = direction if direction >= 0 else drawn(seed, 0) * SEATS >> 32
    if game["direction"] == HOLD:
        _begin_play(game)
    else:
        game["mover"] = 0
        game["leader"] = FINISHED


@kernel
def is_passing(game: Game) -> bool:
    """Return whether the hand is in its passing phase."""
    passing: bool = game["direction"] != HOLD and game["cards_passed"] < _ALL_PASSED
    return passing


@kernel
def legal(game: Game) -> int:
    """Return the mover's legal cards, none when the hand is over."""
    seat = game["mover"]
    if seat == FINISHED:
        return 0
    hand: int = game["hand"][seat]
    if is_passing(game):
        return hand
    played = int(game["cards_played"])
    if played & 3 == 0:
        if played == 0:
            return 1 << TWO_OF_CLUBS
        if game["options"] & MUST_BREAK and not game["broken"] and hand & ~ALL_HEARTS:
            return hand & ~ALL_HEARTS
        return hand
    following = hand & _SAME_SUIT[game["plays"][played & -4]]
    other = hand
    if played < SEATS and game["options"] & CLEAN_FIRST_TRICK and hand & ~POINT_CARDS:
        other = hand & ~POINT_CARDS
    return following or other


@kernel
def choose(game: Game, card: int) -> None:
    """Pass or play a legal card for the seat to move."""
    seat = game["mover"]
    game["hand"][seat] ^= 1 << card
    if not is_passing(game):
        _play(game, seat, card)
        return
    number = game["cards_passed"]
    game["given"][seat] |= 1 << card
    game["passes"][number] = card
    game["cards_passed"] = number + 1
    if number + 1 < _ALL_PASSED:
        game["mover"] = (number + 1) // PASSED
        return
    for giver in range(SEATS):
        game["hand"][(giver + game["direction"]) % SEATS] |= game["given"][giver]
    _begin_play(game)


@kernel
def _begin_play(game: Game) -> None:
    """Give the lead to the holder of the two of clubs."""
    for seat in range(SEATS):
        if game["hand"][seat] & 1 << TWO_OF_CLUBS:
            game["mover"] = game["leader"] = seat


@kernel
def _play(game: Game, seat: int, card: int) -> None:
    number, plays = int(game["cards_played"]), game["plays"]
    first = number & -4
    plays[number] = card
    led = _SUIT[plays[first]]
    unbroken = (number == first) & (not game["broken"]) & (card >= FIRST_HEART)
    game["leads"][seat] += unbroken & (game["hand"][seat] & ~ALL_HEARTS != 0)
    game["voids"][seat] |= (_SUIT[card] != led) << led
    game["cards_played"] = number + 1
    game["played"] |= 1 << card
    breaks = (card >= FIRST_HEART) | (card == QUEEN_OF_SPADES) & (game["options"] & QUEEN_BREAKS != 0)
    game["broken"] |= breaks
    if number & 3 < SEATS - 1:
        game["mover"] = (seat + 1) & 3
        return
    best, winner, points = plays[first], 0, _POINTS[plays[first]]
    for k in range(1, SEATS):
        other = plays[first + k]
        takes = (other > best) & (_SUIT[other] == led)
        best = other if takes else best
        winner = k if takes else winner
        points += _POINTS[other]
    taker = (game["leader"] + winner) & 3
    game["points"][taker] += points
    game["leader"] = taker
    game["mover"] = taker if number + 1 < CARDS else FINISHED


@kernel
def result(game: Game, seat: int, moon_for_shooter: int) -> int:
    """Return a seat's points for a finished hand; see ``HeartsRules.moon_for_shooter``."""
    points = game["points"]
    if points[seat] == POINTS:
        return -POINTS if moon_for_shooter else 0
    for other in range(SEATS):
        if points[other] == POINTS:
            return 0 if moon_for_shooter else POINTS
    return int(points[seat])


@inlined
def play_forced(game: Game) -> None:
    """Play forced cards, then store the legal cards in ``choices``. ``choices`` is empty when the hand is over."""
    choices = legal(game)
    while choices and choices & (choices - 1) == 0:
        choose(game, lowest(choices))
        choices = legal(game)
    game["choices"] = choices


@kernel
def deal_hands(games: Games, slots: Indices, seeds: Indices, directions: Indices, options: int) -> None:
    """Begin hands in ``slots`` and play forced cards; see ``deal``."""
    for k in range(len(slots)):
        game = games[slots[k]]
        deal(game, seeds[k], directions[k], options)
        play_forced(game)


@kernel
def play_hands(games: Games, slots: Indices, actions: Indices, over: Indices) -> tuple[int, int]:
    """Play ``actions`` [K] in ``slots`` [K], then forced cards.

    Write the slots of ended hands into ``over``. Return the index of the first illegal action, K if all are legal, and
    the number of ended hands. The illegal action and all after it are not played.
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


def hand_history(game: Game) -> list[int]:
    """Return a hand's actions so far in OpenSpiel's numbers: direction, deal, passes, plays."""
    passed = game["cards_passed"] if game["direction"] != HOLD else 0
    cards = game["deck"].tobytes() + game["passes"][:passed].tobytes() + game["plays"][: game["cards_played"]].tobytes()
    return [int(game["direction"]), *cards.translate(_OPENSPIEL)]
