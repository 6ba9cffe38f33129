"""Hearts players of three levels: ``Heuristic``s of the observation, which see no hidden card.

- ``easy``: the first legal card.
- ``normal``: see ``app.games.hearts.normal``. One against three random ones takes 1.58 ± 0.13 points a hand, against
  easy ones 2.28 ± 0.21 (each by 4,000 hands, every deal with the bot in each seat; four equal players take 6.5 and a
  little for moons). It costs about a microsecond a decision.
- ``hard``: see ``app.games.hearts.search``. One against three normal ones takes 6.05 ± 0.17 points, 1.48 ± 0.25 fewer
  than they do. It costs about a millisecond a decision.
"""

from collections.abc import Callable

import numpy as np

from app.core.kernels import kernel
from app.games.hearts.cards import CARDS, POINTS, RANKS, SEATS, SUITS, count, points_of
from app.games.hearts.encode import (
    BROKEN,
    CARD,
    DIRECTION,
    HAND,
    IN_TRICK,
    PASSING,
    SCORE_UNIT,
    SCORES,
    SEEN,
    TRICK,
    VOIDS,
)
from app.games.hearts.normal import WEIGHTS, normal_choice
from app.games.hearts.play import DIRECTION_ORDER, GAME, PASSED, Game, drawn
from app.games.hearts.rules import HeartsRules
from app.games.hearts.search import search
from app.games.table import Floats, Heuristic, Indices, Mask, Observations


@kernel
def recall(obs: Floats, options: int, game: Game) -> None:  # noqa: C901 - one place for every feature
    """Make ``game`` what the observation [270] of the seat to move says, under the rules' ``options``.

    Of the tricks before the present one it says only which cards were played, and that is all the bots ask. In a match
    to several hands the points of this one can't be told from the scores, and count as none.
    """
    for seat in range(SEATS):
        game["hand"][seat] = game["given"][seat] = 0
        game["voids"][seat] = game["leads"][seat] = game["scores"][seat] = 0
    game["hand"][0] = _gather(obs[HAND : HAND + CARDS])
    game["played"] = _gather(obs[SEEN : SEEN + CARDS])
    for k in range(1, SEATS):
        for suit in range(SUITS):
            if obs[VOIDS + (k - 1) * SUITS + suit] > 0:
                game["voids"][k] |= 1 << suit
    in_trick = round(obs[IN_TRICK] * SEATS)
    played = count(game["played"])
    game["cards_played"] = played
    game["mover"] = 0
    game["leader"] = (SEATS - in_trick) % SEATS
    game["broken"] = obs[BROKEN] > 0
    game["options"] = options
    for k in range(len(DIRECTION_ORDER)):
        if obs[DIRECTION + k] > 0:
            game["direction"] = DIRECTION_ORDER[k]
    game["cards_passed"] = RANKS - count(game["hand"][0]) if obs[PASSING] > 0 else SEATS * PASSED
    for k in range(in_trick):
        for card in range(CARDS):
            if obs[TRICK + k * CARD + card // RANKS] > 0 and obs[TRICK + k * CARD + SUITS + card % RANKS] > 0:
                game["plays"][played - in_trick + k] = card
    _recall_points(obs, game, played - in_trick)


@kernel
def _gather(features: Floats | Mask) -> int:
    """Return the set of the cards whose features [52] are set."""
    cards = 0
    for card in range(CARDS):
        if features[card] > 0:
            cards |= 1 << card
    return cards


@kernel
def _recall_points(obs: Floats, game: Game, first: int) -> None:
    """Read the points that each seat has taken, unless they are not those of the tricks before ``first``."""
    left, total = 0, 0
    for card in range(CARDS):
        if game["played"] >> card & 1:
            left += points_of(card)
    for k in range(first, game["cards_played"]):
        left -= points_of(game["plays"][k])
    for seat in range(SEATS):
        points = round(obs[SCORES + seat] * SCORE_UNIT)
        total += points
        game["points"][seat] = min(max(points, 0), POINTS)
    if total != left:
        for seat in range(SEATS):
            game["points"][seat] = 0


DEALS = 128
"""Deals of the hard bot. With 20 it takes more points than a normal one: it sees moons in the noise."""

_SURE = 40.0
"""The log-weight of the card that is chosen, against 0: the bots do not mix."""


def normal(rules: HeartsRules) -> Heuristic:
    """Return the preferences of the normal bot."""
    return lambda obs, mask: _only(_choose_normal(*_dense(obs, mask), rules.option_set))


def hard(rules: HeartsRules, deals: int = DEALS, seed: int = 0) -> Heuristic:
    """Return the preferences of the hard bot; the same position and seed always give the same choice."""
    return lambda obs, mask: _only(_choose_hard(*_dense(obs, mask), rules.option_set, deals, seed))


LEVELS: dict[str, Callable[[HeartsRules], Heuristic]] = {
    "easy": lambda _rules: lambda _obs, mask: _only(mask.argmax(axis=1)),  # the first legal card
    "normal": normal,
    "hard": hard,
}
"""The bots by name."""


def _dense(obs: Observations, mask: Mask) -> tuple[Floats, Mask]:
    """Return what the kernels are compiled for."""
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
        chosen[k] = normal_choice(game, 0, _gather(mask[k]), WEIGHTS)
    return chosen


@kernel
def _choose_hard(obs: Floats, mask: Mask, options: int, deals: int, seed: int) -> Indices:
    """Return the hard bot's cards [K]; each position has its own deals, whatever others it is asked with."""
    chosen = np.empty(len(obs), dtype=np.int64)
    scratch = np.zeros(3, dtype=GAME)
    for k in range(len(obs)):
        recall(obs[k], options, scratch[0])
        choices = _gather(mask[k])
        position = drawn(drawn(scratch[0]["hand"][0], choices) + scratch[0]["played"], seed)
        chosen[k] = search(scratch, choices, position, deals)
    return chosen
