"""Hearts players of three levels, as preferences over the observation: ``Heuristic``s, which see no hidden card.

- ``easy``: the first legal card.
- ``normal``: see ``normal``. One against three random ones takes 1.58 ± 0.13 points a hand, against easy ones
  2.28 ± 0.21 (each by 4,000 hands, every deal with the bot in each seat; four equal players take 6.5 and a little for
  moons). It costs about a microsecond a decision.
- ``hard``: see ``search``. One against three normal ones takes 6.05 ± 0.17 points, 1.48 ± 0.25 fewer than they do. It
  costs about a millisecond a decision.
"""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import kernel
from app.games.hearts.cards import CARDS
from app.games.hearts.normal import WEIGHTS, normal_choice
from app.games.hearts.play import drawn
from app.games.hearts.recall import recall
from app.games.hearts.rules import HeartsRules
from app.games.hearts.search import search
from app.games.hearts.state import GAME, option_set
from app.games.table import Heuristic, Mask, Observations

DEALS = 128
"""Deals of the hard bot. With 20 it takes more points than a normal one: it sees moons in the noise."""

_SURE = 40.0
"""The log-weight of the card that is chosen, against 0: the bots do not mix."""


def easy() -> Heuristic:
    """Return the preferences of who always chooses the first legal card."""
    return lambda _obs, mask: _only(mask.argmax(axis=1))


def normal(rules: HeartsRules) -> Heuristic:
    """Return the preferences of the normal bot."""
    options = option_set(rules)
    return lambda obs, mask: _only(_choose_normal(_floats(obs), np.ascontiguousarray(mask), options))


def hard(rules: HeartsRules, deals: int = DEALS, seed: int = 0) -> Heuristic:
    """Return the preferences of the hard bot; the same position and seed always give the same choice."""
    options = option_set(rules)
    return lambda obs, mask: _only(_choose_hard(_floats(obs), np.ascontiguousarray(mask), options, deals, seed))


LEVELS: dict[str, Callable[[HeartsRules], Heuristic]] = {"easy": lambda _rules: easy(), "normal": normal, "hard": hard}
"""The bots by name."""


def _only(chosen: NDArray[np.int64]) -> NDArray[np.float32]:
    weights = np.zeros((len(chosen), CARDS), dtype=np.float32)
    weights[np.arange(len(chosen)), chosen] = _SURE
    return weights


def _floats(obs: Observations) -> NDArray[np.float32]:
    return np.ascontiguousarray(obs, dtype=np.float32)


@kernel
def _choose_normal(obs: NDArray[np.float32], mask: Mask, options: int) -> NDArray[np.int64]:
    """Return the normal bot's cards [K]."""
    chosen = np.empty(len(obs), dtype=np.int64)
    game = np.zeros(1, dtype=GAME)[0]
    for k in range(len(obs)):
        recall(obs[k], options, game)
        chosen[k] = normal_choice(game, 0, _choices(mask[k]), WEIGHTS)
    return chosen


@kernel
def _choose_hard(obs: NDArray[np.float32], mask: Mask, options: int, deals: int, seed: int) -> NDArray[np.int64]:
    """Return the hard bot's cards [K]; each position has its own deals, whatever others it is asked with."""
    chosen = np.empty(len(obs), dtype=np.int64)
    scratch = np.zeros(3, dtype=GAME)
    for k in range(len(obs)):
        recall(obs[k], options, scratch[0])
        choices = _choices(mask[k])
        position = drawn(drawn(scratch[0]["hand"][0], choices) + scratch[0]["played"], seed)
        chosen[k] = search(scratch, choices, position, deals)
    return chosen


@kernel
def _choices(mask: NDArray[np.bool_]) -> int:
    choices = 0
    for card in range(CARDS):
        if mask[card]:
            choices |= 1 << card
    return choices
