"""Judges: opponents that are used only in evaluations.

No model learns from judges, so their verdict stays independent. ``solver`` plays perfectly; ``mcts:1000`` is a Monte
Carlo tree search with 1,000 random playouts a move. All other uses of players load them by ``load_player``, which
refuses judges.
"""

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import Compute, GameConfig
from flyball.app.core import MCTS, SOLVER, FlyballError, is_judge
from flyball.app.games import TableSpec
from flyball.app.games.mcts import tree_search
from flyball.app.games.solver import solver_for
from flyball.app.play.own_players import DecidingPlayer, Points, Turn
from flyball.app.play.players import PLAYERS, Player
from flyball.app.store import BlobStore

MOST_PLAYOUTS = 10_000_000
_SEEDS = 2**31 - 1  # number of seeds that OpenSpiel's playouts accept


class NoJudge(FlyballError):
    """A judge that does not exist."""


def load_player_or_judge(store: BlobStore, name: str, spec: TableSpec, compute: Compute, config: GameConfig) -> Player:
    """Return a player for an operator's evaluation, or a judge. Raises as ``load_judge`` and ``load_player``."""
    return load_judge(name, config) if is_judge(name) else PLAYERS.load(store, name, spec, compute, config)


def load_judge(name: str, config: GameConfig) -> DecidingPlayer:
    """Return the judge called ``solver`` or ``mcts:N``. Raises ``NoSolver``, ``NoJudge`` or ``UnknownGame``."""
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
    """Plays a random move among those that keep the position's value under perfect play. Raises ``NoSolver``."""

    def __init__(self, config: GameConfig) -> None:
        self._solver = solver_for(config)

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``."""
        moves = []
        for slot, point in zip(turn.slots.tolist(), points.tolist(), strict=True):
            optimal = sorted(self._solver.optimal(turn.table.history(slot)))
            moves.append(optimal[int(point * len(optimal))])
        return np.array(moves, dtype=np.int32)


class MctsPlayer(DecidingPlayer):
    """Plays by Monte Carlo tree search. Raises ``UnknownGame``. Each move starts a new tree."""

    def __init__(self, playouts: int, config: GameConfig) -> None:
        self._search = tree_search(config, playouts)

    def decide(self, turn: Turn, points: Points) -> NDArray[np.int32]:
        """See ``DecidingPlayer.decide``."""
        moves = [
            self._search.move(turn.table.history(slot), int(point * _SEEDS))
            for slot, point in zip(turn.slots.tolist(), points.tolist(), strict=True)
        ]
        return np.array(moves, dtype=np.int32)
