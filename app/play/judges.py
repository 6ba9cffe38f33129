"""Judges: players that evaluations meet and nobody learns from, so that their verdict stays independent.

``solver`` plays perfectly; ``mcts:1000`` is OpenSpiel's Monte Carlo tree search with 1,000 random playouts a move. All
other uses of players load them by ``load_player``, which refuses judges.
"""

import numpy as np
import pyspiel
from numpy.typing import NDArray

from app.config import Compute, GameConfig
from app.core import MCTS, SOLVER, FlyballError, is_judge
from app.games import TableSpec, UnknownGame
from app.games.catalogue import openspiel_rules
from app.games.own import is_own
from app.games.solver import solver_for
from app.play.own_players import DecidingPlayer, Points, Turn
from app.play.players import PLAYERS, Player
from app.store import BlobStore

MOST_PLAYOUTS = 10_000_000
_EXPLORATION = 2.0  # constant c of UCT, as in OpenSpiel's own examples
_MEMORY_MB = 1000  # of a tree, at most
_SEEDS = 2**31 - 1


class NoJudge(FlyballError):
    """A judge that does not exist, or does not play this game."""


def load_player_or_judge(store: BlobStore, name: str, spec: TableSpec, compute: Compute, config: GameConfig) -> Player:
    """Return a player for an evaluation by an operator. Raises as ``load_judge`` and ``load_player``."""
    return load_judge(name, config) if is_judge(name) else PLAYERS.load(store, name, spec, compute, config)


def load_judge(name: str, config: GameConfig) -> DecidingPlayer:
    """Return the judge of a name: ``solver`` or ``mcts:N``. Raises ``NoSolver``, ``NoJudge`` or ``UnknownGame``."""
    kind, _, playouts = name.partition(":")
    if name == SOLVER:
        return SolverPlayer(config)
    if kind == MCTS and playouts.isdecimal() and 1 <= int(playouts) <= MOST_PLAYOUTS:
        return MctsPlayer(int(playouts), config)
    raise NoJudge(
        f"There is no judge {name!r}.",
        hint=f"Judges are solver, and mcts:1000 with any number of playouts up to {MOST_PLAYOUTS:,}.",
    )


class SolverPlayer(DecidingPlayer):
    """Plays a move that keeps the position's value, each of these equally often. Raises ``NoSolver``."""

    def __init__(self, config: GameConfig) -> None:
        self._solver = solver_for(config)

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``."""
        moves = []
        for slot, point in zip(turn.slots.tolist(), points.tolist(), strict=True):
            values = self._solver.values(turn.table.history(slot))
            best = max(values.values())
            optimal = [action for action, value in values.items() if value == best]
            moves.append(optimal[int(point * len(optimal))])
        return np.array(moves, dtype=np.int32)


class MctsPlayer(DecidingPlayer):
    """Plays by OpenSpiel's MCTS: UCT with random playouts and proven values, a new tree for each move.

    Raises ``NoJudge`` for other games than OpenSpiel's for two, with perfect information and without chance.
    """

    def __init__(self, playouts: int, config: GameConfig) -> None:
        self._playouts = playouts
        refused = NoJudge(
            f"mcts does not play {config.game}.",
            hint="It plays OpenSpiel's games for two, with perfect information and without chance.",
        )
        if is_own(config.game):
            raise refused
        try:
            rules = openspiel_rules(config.game, config.players)
        except UnknownGame as error:
            raise refused from error
        kind = rules.game.get_type()
        perfect = kind.information == pyspiel.GameType.Information.PERFECT_INFORMATION
        certain = kind.chance_mode == pyspiel.GameType.ChanceMode.DETERMINISTIC
        if config.players != 2 or not perfect or not certain:
            raise refused
        self._game, self._numbers = rules.game, rules.codec.from_game

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``."""
        found = [
            self._move(turn.table.history(slot), int(point * _SEEDS))
            for slot, point in zip(turn.slots.tolist(), points.tolist(), strict=True)
        ]
        return np.array(found, dtype=np.int32)

    def _move(self, history: list[int], seed: int) -> int:
        state = self._game.new_initial_state()
        for action in history:
            state.apply_action(action)
        playouts = pyspiel.RandomRolloutEvaluator(n_rollouts=1, seed=seed)
        bot = pyspiel.MCTSBot(
            self._game, playouts, _EXPLORATION, self._playouts, _MEMORY_MB, solve=True, seed=seed, verbose=False
        )
        return int(self._numbers[state.current_player(), bot.step(state)])
