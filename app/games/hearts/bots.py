"""Hearts bots of three levels, as ``Heuristic``s that see no hidden card.

- ``easy``: plays the first legal card.
- ``normal``: see ``flyball.app.games.hearts.normal``. It takes 1.58 ± 0.13 points a hand against three random players
  and 2.28 ± 0.21 against three easy ones (each over 4,000 hands, every deal with the bot in each seat). Four equal
  players take 6.5 each, and slightly more because of moons. A decision takes about a microsecond.
- ``hard``: see ``search``. It takes 6.05 ± 0.17 points a hand against three normal bots, 1.48 ± 0.25 fewer than they
  do. A decision takes about a millisecond.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import kernel
from flyball.app.games.hearts import encode as layout
from flyball.app.games.hearts.cards import ALL, CARDS, POINTS, RANKS, SEATS, SUITS, count, lowest, points_of
from flyball.app.games.hearts.normal import normal_choice
from flyball.app.games.hearts.play import (
    DIRECTION_ORDER,
    GAME,
    PASSED,
    Game,
    Games,
    choose,
    drawn,
    is_passing,
    legal,
    result,
)
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.table import NORMAL, Floats, Heuristic, Indices, Mask, Observations

DEALS = 128
"""Random deals of the hard bot for each decision; with 20, noise looks like moons: the normal bot plays better."""

_SURE = 40.0
"""Log-weight of the chosen card. All others have 0, so that the choice is practically certain."""

_TRIES = 20
"""Attempts to deal the hidden cards. Dealing card by card can get stuck, so the last attempt ignores voids."""


def normal(rules: HeartsRules) -> Heuristic:
    """Return the normal bot for a set of rules."""
    return lambda obs, mask: _only(_choose_normal(*_dense(obs, mask), rules.option_set))


def hard(rules: HeartsRules, deals: int = DEALS) -> Heuristic:
    """Return the deterministic hard bot for a set of rules."""
    return lambda obs, mask: _only(_choose_hard(*_dense(obs, mask), rules.option_set, deals))


LEVELS: dict[str, Callable[[HeartsRules], Heuristic]] = {
    "easy": lambda _rules: lambda _obs, mask: _only(mask.argmax(axis=1)),
    NORMAL: normal,
    "hard": hard,
}
"""The bots by name."""


def _dense(obs: Observations, mask: Mask) -> tuple[Floats, Mask]:
    """Return contiguous arrays, as the kernels are compiled for."""
    return np.ascontiguousarray(obs, dtype=np.float32), np.ascontiguousarray(mask)


def _only(chosen: Indices) -> Floats:
    weights = np.zeros((len(chosen), CARDS), dtype=np.float32)
    weights[np.arange(len(chosen)), chosen] = _SURE
    return weights


@kernel
def _choose_normal(obs: Floats, mask: Mask, options: int) -> Indices:
    """Return the normal bot's cards [K]."""
    chosen = np.empty(len(obs), dtype=np.int64)
    game = np.zeros(1, dtype=GAME)[0]
    for k in range(len(obs)):
        recall(obs[k], options, game)
        chosen[k] = normal_choice(game, _gather(mask[k]))
    return chosen


@kernel
def _choose_hard(obs: Floats, mask: Mask, options: int, deals: int) -> Indices:
    """Return the hard bot's cards [K]; each position seeds its own deals."""
    chosen = np.empty(len(obs), dtype=np.int64)
    scratch = np.zeros(3, dtype=GAME)
    for k in range(len(obs)):
        recall(obs[k], options, scratch[0])
        choices = _gather(mask[k])
        seed = drawn(drawn(scratch[0]["hand"][0], choices) + scratch[0]["played"], 0)
        chosen[k] = search(scratch, choices, seed, deals)
    return chosen


@kernel
def recall(obs: Floats, options: int, game: Game) -> None:  # noqa: C901, PLR0912 - one place for every feature
    """Rebuild ``game`` from the observation [270] of the seat to move.

    Of earlier tricks, only the set of played cards is restored; the bots need no more. When the observed scores include
    earlier hands of a match, the points of this hand are unknown and count as 0.
    """
    for seat in range(SEATS):
        game["hand"][seat] = game["given"][seat] = 0
        game["voids"][seat] = game["leads"][seat] = game["scores"][seat] = 0
    game["hand"][0] = _gather(obs[layout.HAND : layout.HAND + CARDS])
    game["played"] = _gather(obs[layout.SEEN : layout.SEEN + CARDS])
    for k in range(1, SEATS):
        for suit in range(SUITS):
            if obs[layout.VOIDS + (k - 1) * SUITS + suit] > 0:
                game["voids"][k] |= 1 << suit
    in_trick = round(obs[layout.IN_TRICK] * SEATS)
    played = count(game["played"])
    game["cards_played"] = played
    game["mover"] = 0
    game["leader"] = (SEATS - in_trick) % SEATS
    game["broken"] = obs[layout.BROKEN] > 0
    game["options"] = options
    for k in range(len(DIRECTION_ORDER)):
        if obs[layout.DIRECTION + k] > 0:
            game["direction"] = DIRECTION_ORDER[k]
    game["cards_passed"] = RANKS - count(game["hand"][0]) if obs[layout.PASSING] > 0 else SEATS * PASSED
    for k in range(in_trick):
        begin = layout.TRICK + k * layout.CARD
        for card in range(CARDS):
            if obs[begin + card // RANKS] > 0 and obs[begin + SUITS + card % RANKS] > 0:
                game["plays"][played - in_trick + k] = card
    missing = 0  # points of earlier tricks, less the points that seats have
    for card in range(CARDS):
        if game["played"] >> card & 1:
            missing += points_of(card)
    for k in range(played - in_trick, played):
        missing -= points_of(game["plays"][k])
    for seat in range(SEATS):
        points = round(obs[layout.SCORES + seat] * layout.SCORE_UNIT)
        missing -= points
        game["points"][seat] = min(max(points, 0), POINTS)
    if missing != 0:
        for seat in range(SEATS):
            game["points"][seat] = 0


@kernel
def _gather(features: Floats | Mask) -> int:
    """Return the set of cards whose features [52] are positive."""
    cards = 0
    for card in range(CARDS):
        if features[card] > 0:
            cards |= 1 << card
    return cards


@kernel
def search(scratch: Games, choices: int, seed: int, deals: int) -> int:
    """Return the card of ``choices`` with seat 0's best average lead.

    Seat 0 is to move.

    Perfect-information Monte Carlo (Ginsberg 2001): each deal distributes the hidden cards at random, consistent with
    the shown voids. Every choice is played out on the same deals, with the normal bot in every seat. After an eighth, a
    quarter and a half of the deals, the worse half of the choices is dropped (sequential halving, Karnin et al. 2013).
    The normal bot chooses the cards to pass, because searching them costs most (many choices, long games) and gains
    little.

    Args:
        scratch: [3] the game as the seat knows it, then two work records.
        choices: a set of two or more cards.
        seed: of the deals.
        deals: the number of random deals.
    """
    if is_passing(scratch[0]):
        return normal_choice(scratch[0], choices)
    worth = np.zeros(CARDS)
    for number in range(1, deals + 1):
        scratch[1] = scratch[0]
        deal_hidden(scratch[1], seed + number * 0x5851F42D)
        for card in range(CARDS):
            if choices >> card & 1:
                scratch[2] = scratch[1]
                worth[card] += _lead_after(scratch[2], card)
        if number in (deals // 8, deals // 4, deals // 2):
            choices = _best(choices, worth, (count(choices) + 1) // 2)
    return lowest(_best(choices, worth, 1))


@kernel
def _best(cards: int, worth: NDArray[np.float64], number: int) -> int:
    """Return the ``number`` cards that are worth most."""
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
def _lead_after(game: Game, card: int) -> float:
    """Return seat 0's final lead in points after playing ``card``. Normal bots play on."""
    choose(game, card)
    choices = legal(game)
    while choices:
        forced = choices & (choices - 1) == 0
        choose(game, lowest(choices) if forced else normal_choice(game, choices))
        choices = legal(game)
    own, others = result(game, 0, 0), 0
    for seat in range(1, SEATS):
        others += result(game, seat, 0)
    return others / (SEATS - 1) - own


@kernel
def deal_hidden(game: Game, seed: int) -> None:
    """Deal the cards that are hidden from seat 0 at random."""
    hidden = ALL & ~game["hand"][0] & ~game["played"]
    drawn_so_far = 0
    if is_passing(game):  # the observation hides even the cards that the seat has already passed
        for _ in range(game["cards_passed"]):
            card = _pick(hidden, drawn(seed, drawn_so_far))
            drawn_so_far += 1
            game["given"][0] |= 1 << card
            hidden ^= 1 << card
    for attempt in range(1, _TRIES + 1):
        if _try_deal(game, hidden, seed + attempt * 0x2545F491, attempt < _TRIES):
            return


@kernel
def _try_deal(game: Game, hidden: int, seed: int, by_voids: int) -> bool:
    """Deal the hidden cards; return False if stuck. The cards with the fewest possible holders are dealt first."""
    room = np.zeros(SEATS, dtype=np.int64)  # cards that each seat still needs
    for seat in range(1, SEATS):
        game["hand"][seat] = 0
        in_trick = (seat - game["leader"]) % SEATS < game["cards_played"] % SEATS
        room[seat] = RANKS - game["cards_played"] // SEATS - (1 if in_trick else 0)
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
def _held_by(game: Game, hidden: int, holders: int) -> int:
    """Return the hidden cards that exactly ``holders`` other seats may hold."""
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
def _holder(game: Game, room: Indices, suit: int, point: int, by_voids: int) -> int:
    """Return a seat for a card, by ``point`` in [0, 2**32) in proportion to the seats' room; -1 if none can take it."""
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
    """Return a random card of a set. ``point`` is uniform in [0, 2**32)."""
    for _ in range(point * count(cards) >> 32):
        cards &= cards - 1
    return lowest(cards)
