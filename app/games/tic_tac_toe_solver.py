"""The value of every move in tic-tac-toe, by minimax."""

from collections.abc import Sequence
from functools import cache

from flyball.app.games.tic_tac_toe import CELLS, LINES

_Cells = frozenset[int]
_CELLS: _Cells = frozenset(range(CELLS))
_LINES: tuple[_Cells, ...] = tuple(map(frozenset, LINES.tolist()))


class TicTacToeSolver:
    """Solves tic-tac-toe by minimax; see ``solver.Solver``."""

    lengths = (1, 7)

    def values(self, history: Sequence[int]) -> dict[int, int]:
        """See ``solver.Solver.values``."""
        mine, theirs = _stones(history)
        return {cell: -_worth(theirs, mine | {cell}) for cell in sorted(_CELLS - mine - theirs)}

    def optimal(self, history: Sequence[int]) -> frozenset[int]:
        """See ``solver.Solver.optimal``."""
        values = self.values(history)
        best = max(values.values())
        return frozenset(action for action, value in values.items() if value == best)

    def quiet(self, history: Sequence[int]) -> bool:
        """See ``solver.Solver.quiet``."""
        mine, theirs = _stones(history)
        return not any(_won(side | {cell}) for side in (mine, theirs) for cell in _CELLS - mine - theirs)


def _stones(history: Sequence[int]) -> tuple[_Cells, _Cells]:
    """Return the mover's and the opponent's cells."""
    mover = len(history) % 2
    return frozenset(history[mover::2]), frozenset(history[1 - mover :: 2])


def _won(cells: _Cells) -> bool:
    return any(line <= cells for line in _LINES)


@cache
def _worth(mine: _Cells, theirs: _Cells) -> int:
    """Return a position's value for the mover; there are 5,478 positions."""
    if _won(theirs):
        return -1
    return max((-_worth(theirs, mine | {cell}) for cell in _CELLS - mine - theirs), default=0)
