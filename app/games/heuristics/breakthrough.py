"""Breakthrough: reach the last row, stop who is about to, take what costs nothing, run when nobody is in the way."""

import numpy as np
from numpy.typing import NDArray

from app.games.table import Heuristic, Indices, Mask, Observations

WIN, CAPTURE, RUN, LEAVE_HOME = 40.0, 3.0, 8.0, -0.7
LOST, TRADED = -4.0, -1.0
"""What it costs to move where one is taken, for nothing or for a piece of the other's."""
STOP = (25.0, 8.0, 3.0)
"""What it is worth to take a piece that has 1, 2 or 3 rows to go."""
ADVANCE = 0.2

Floats = NDArray[np.float32]


def breakthrough_heuristic(rows: int = 8, columns: int = 8) -> Heuristic:
    """Return the preferences of a player who counts attackers and defenders.

    Planes me, other, empty; I move to higher rows. Actions: cell x (left, ahead, right) x capture.
    """
    cells = rows * columns
    origin, way, capture = np.unravel_index(np.arange(cells * 6), (cells, 3, 2))
    target, row = _targets(origin, way, rows, columns), origin // columns + 1
    from_above, from_below, ahead = _reach(rows, columns)
    fixed = WIN * (row == rows - 1) + ADVANCE * row + LEAVE_HOME * (row == 1)
    stopped = np.zeros(rows + 1)
    stopped[1 : 1 + len(STOP)] = STOP
    taken = capture * (CAPTURE + stopped[np.minimum(row, rows)])
    running = RUN + row - 1

    def prefer(obs: Observations, mask: Mask) -> Floats:
        me, other = obs[:, :cells].astype(np.float32), obs[:, cells : 2 * cells].astype(np.float32)
        attackers = (other @ from_above)[:, target]
        defenders = (me @ from_below)[:, target] - (way != 1)  # the one that moves defends no more
        free = (other @ ahead)[:, target] == 0
        danger = np.where(attackers == 0, 0.0, np.where(defenders < attackers, LOST, TRADED))
        preferences: Floats = np.where(mask, fixed + taken + danger + running * free, 0.0).astype(np.float32)
        return preferences

    return prefer


def _targets(origin: Indices, way: Indices, rows: int, columns: int) -> Indices:
    """Return where each action [A] leads; one that leaves the board, somewhere on it: it is never legal."""
    row, column = np.divmod(origin, columns)
    return np.asarray(np.minimum(row + 1, rows - 1) * columns + np.clip(column + way - 1, 0, columns - 1))


def _reach(rows: int, columns: int) -> tuple[Floats, Floats, Floats]:
    """Return which cells [from] bear on which [to]: diagonally from above, from below, and from anywhere ahead.

    Ahead is where a piece could still meet one that runs straight on.
    """
    row, column = np.divmod(np.arange(rows * columns), columns)
    up, aside = row[:, None] - row[None, :], np.abs(column[:, None] - column[None, :])
    relations = ((up == 1) & (aside == 1), (up == -1) & (aside == 1), (up > 0) & (aside <= up))
    above, below, ahead = (relation.astype(np.float32) for relation in relations)
    return above, below, ahead
