"""OpenSpiel's Monte Carlo tree search, for its games for two with perfect information and without chance."""

from collections.abc import Sequence

import pyspiel

from app.config import GameConfig
from app.games.catalogue import openspiel_rules, own_shogi
from app.games.own import is_own
from app.games.table import UnknownGame

_EXPLORATION = 2.0  # constant c of UCT, as in OpenSpiel's own examples
_MEMORY_MB = 1000  # of a tree, at most


class TreeSearch:
    """UCT with a random playout for each new node, and with proven values. Raises ``UnknownGame`` for other games."""

    def __init__(self, config: GameConfig, playouts: int) -> None:
        self._playouts = playouts
        refused = UnknownGame(
            f"OpenSpiel's tree search does not play {config.game}.",
            hint="It plays OpenSpiel's games for two, with perfect information and without chance.",
        )
        if is_own(config.game) or own_shogi(config) is not None:  # OpenSpiel ends games of Shogi that go on for us
            raise refused
        rules = openspiel_rules(config.game, config.players)
        if config.players != 2 or not rules.spec.searchable:
            raise refused
        self._game, self._numbers = rules.game, rules.codec.from_game

    def move(self, history: Sequence[int], seed: int) -> int:
        """Return an action, in the numbers of the seat to move, after a history in the rules' numbers."""
        state = self._game.new_initial_state()
        for action in history:
            state.apply_action(action)
        playouts = pyspiel.RandomRolloutEvaluator(n_rollouts=1, seed=seed)
        bot = pyspiel.MCTSBot(
            self._game, playouts, _EXPLORATION, self._playouts, _MEMORY_MB, solve=True, seed=seed, verbose=False
        )
        return int(self._numbers[state.current_player(), bot.step(state)])
