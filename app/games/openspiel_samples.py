"""Samples of random games of OpenSpiel.

They show whether a game is cooperative, and which states its tensors tell apart. The samples are the same in every
process.
"""

from collections.abc import Callable, Iterator
from functools import cache
from random import Random
from typing import Any

import pyspiel

STATES = 1_000
"""States of a sample. A sample ends in the middle of a game."""

FEWEST_GAMES = 16
"""Finished games that a verdict needs."""


def sampled_states(game: Any, seed: int = 0) -> Iterator[Any]:
    """Yield the decisions and the ends of random games. The states change after they are yielded."""
    rng, count = Random(seed), 0
    while True:
        state = game.new_initial_state()
        while not state.is_terminal():
            if state.is_chance_node():
                actions, weights = zip(*state.chance_outcomes(), strict=True)
                state.apply_action(rng.choices(actions, weights)[0])
                continue
            yield state
            if (count := count + 1) >= STATES:
                return
            state.apply_action(rng.choice(state.legal_actions()))
        yield state


@cache
def is_cooperative(name: str) -> bool:
    """Return whether all seats of a game always get the same. A game that is not declared to be so is sampled."""
    game = pyspiel.load_game(name)
    utility = game.get_type().utility
    if utility == pyspiel.GameType.Utility.IDENTICAL:
        return True
    if utility != pyspiel.GameType.Utility.GENERAL_SUM:
        return False
    finished = 0
    for state in sampled_states(game):
        if state.is_terminal():
            if len({*state.returns()}) > 1:
                return False
            finished += 1
    return finished >= FEWEST_GAMES


def states_told_apart(game: Any, see: Callable[[Any], bytes], seed: int) -> tuple[int, int] | None:
    """Return how many states of a sample ``see`` tells apart, of how many.

    ``see`` returns what the seat to move sees. None if the game does not name its information states.
    """
    if not game.get_type().provides_information_state_string:
        return None
    views: dict[str, tuple[int, bytes]] = {}
    for state in sampled_states(game, seed):
        if not state.is_terminal():
            views.setdefault(state.information_state_string(), (state.current_player(), see(state)))
    return len({*views.values()}), len(views)
