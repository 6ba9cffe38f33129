"""Solvers: the game-theoretic value of every move, for judges (``flyball.app.play.judges``), never for learning."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

import pyspiel

from flyball.app.config import GameConfig
from flyball.app.core import FlyballError
from flyball.app.games.connect_four_solver import ConnectFourSolver
from flyball.app.games.own import is_own
from flyball.app.games.tic_tac_toe_solver import TicTacToeSolver


class NoSolver(FlyballError):
    """A game that no solver knows."""


class Solver(Protocol):
    """Solver of positions of one game for two. Actions have the rules' numbers, which both seats share."""

    lengths: tuple[int, int]  # fewest and most moves before a position that tests are drawn from

    def values(self, history: Sequence[int]) -> dict[int, int]:
        """Return the value of each legal action after ``history``: 1 is a win of the mover, 0 a draw, -1 a loss."""

    def optimal(self, history: Sequence[int]) -> frozenset[int]:
        """Return the actions that keep the position's value. This can be faster than ``values``."""

    def quiet(self, history: Sequence[int]) -> bool:
        """Return whether neither side could win at once, if to move."""


SOLVERS: dict[str, Callable[[], Solver]] = {"connect_four": ConnectFourSolver, "tic_tac_toe": TicTacToeSolver}
"""Solvers by OpenSpiel's name; they know the games without options."""


def solver_for(config: GameConfig) -> Solver:
    """Return the solver of a configuration's game. A process has one solver of each game. Raises ``NoSolver``."""
    name = config.game.partition("(")[0]
    if name not in SOLVERS or is_own(config.game) or config.max_moves is not None or not _usual(config.game, name):
        raise NoSolver(
            f"No solver knows {config.game} as {config.key} plays it.",
            hint=f"There are solvers of {' and '.join(SOLVERS)}, without options and move limits.",
        )
    return _solver(name)


def _usual(game: str, name: str) -> bool:
    return bool(pyspiel.load_game(game).get_parameters() == pyspiel.load_game(name).get_parameters())


@cache
def _solver(name: str) -> Solver:
    return SOLVERS[name]()
