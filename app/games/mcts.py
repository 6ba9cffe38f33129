"""Monte Carlo tree search by random playouts.

It plays games for two with perfect information and without chance. OpenSpiel's search plays the games that it knows.
Our own plays Shogi and minishogi (``flyball.app.games.shogi.playouts``).
"""

from collections.abc import Sequence
from typing import Protocol

import pyspiel

from flyball.app.config import GameConfig
from flyball.app.games.catalogue import openspiel_rules, own_shogi
from flyball.app.games.openspiel import Rules
from flyball.app.games.own import is_own
from flyball.app.games.shogi.playouts import PlayoutSearch
from flyball.app.games.shogi.replay import LONGEST
from flyball.app.games.table import UnknownGame

_EXPLORATION = 2.0  # constant c of UCT, as in OpenSpiel's own examples
_MEMORY_MB = 1000  # of a tree, at most


class TreeSearch(Protocol):
    """UCT with a random playout for each new node, and proven values."""

    def move(self, history: Sequence[int], seed: int) -> int:
        """Return an action, numbered for the seat to move, after a history numbered by the rules."""


def tree_search(config: GameConfig, playouts: int) -> TreeSearch:
    """Return the tree search of ``playouts`` playouts a move for a configuration. Raises ``UnknownGame``."""
    if not is_own(config.game):
        if (shogi := own_shogi(config)) is not None:
            return PlayoutSearch(shogi, config.max_moves or LONGEST, playouts, _EXPLORATION)
        rules = openspiel_rules(config)
        if config.players == 2 and rules.spec.searchable:
            return OpenSpielSearch(rules, playouts)
    raise UnknownGame(
        f"Tree search by playouts does not play {config.game}.",
        hint="It plays Shogi, minishogi, and OpenSpiel's games for two, with perfect information and without chance.",
    )


class OpenSpielSearch:
    """OpenSpiel's search; see ``TreeSearch``."""

    def __init__(self, rules: Rules, playouts: int) -> None:
        self._game, self._numbers, self._playouts = rules.game, rules.codec.from_game, playouts

    def move(self, history: Sequence[int], seed: int) -> int:
        """See ``TreeSearch.move``."""
        state = self._game.new_initial_state()
        for action in history:
            state.apply_action(action)
        playouts = pyspiel.RandomRolloutEvaluator(n_rollouts=1, seed=seed)
        bot = pyspiel.MCTSBot(
            self._game, playouts, _EXPLORATION, self._playouts, _MEMORY_MB, solve=True, seed=seed, verbose=False
        )
        return int(self._numbers[state.current_player(), bot.step(state)])
