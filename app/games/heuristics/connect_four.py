"""Connect four: win, else stop the other from winning, give nothing away, and build where most lines are open."""

import numpy as np
from numpy.typing import NDArray

from app.games.table import Heuristic, Mask, Observations

IN_A_ROW = 4
WIN, BLOCK, GIVE, WASTE = 40.0, 20.0, -10.0, -3.0
OPEN_LINE, STONE = 0.1, 0.3
"""What a line without the other's stones is worth, and what each stone in it adds, times the stones there are."""

Floats = NDArray[np.float32]


def connect_four_heuristic(rows: int = 6, columns: int = 7) -> Heuristic:
    """Return the preferences of a player who looks one move ahead; planes me, other, empty, from the lowest row up."""
    lines = _lines(rows, columns)
    cells = rows * columns

    def prefer(obs: Observations, mask: Mask) -> Floats:
        me, other = obs[:, :cells].astype(np.float32), obs[:, cells : 2 * cells].astype(np.float32)
        mine, theirs = me @ lines.T, other @ lines.T
        empty = np.float32(1) - me - other
        i_win = empty * (((mine == IN_A_ROW - 1) & (theirs == 0)) @ lines > 0)
        they_win = empty * (((theirs == IN_A_ROW - 1) & (mine == 0)) @ lines > 0)
        building = (_building(mine) * (theirs == 0) + _building(theirs) * (mine == 0)) @ lines
        landing, above = _landing(empty, rows, columns)
        here = WIN * i_win + BLOCK * they_win + building
        leaving = GIVE * they_win + WASTE * i_win
        chosen = np.take_along_axis(here, landing, axis=1)
        next_up = np.take_along_axis(np.pad(leaving, ((0, 0), (0, columns))), above, axis=1)
        preferences: Floats = np.where(mask, chosen + next_up, np.float32(0)).astype(np.float32)
        return preferences

    return prefer


def _building(stones: Floats) -> Floats:
    return np.asarray(OPEN_LINE + STONE * stones * stones, dtype=np.float32)


def _landing(empty: Floats, rows: int, columns: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the cells where a stone comes to lie in each column [K, columns], and those above them."""
    height = rows - empty.reshape(-1, rows, columns).sum(axis=1).astype(np.int64)
    landing = height * columns + np.arange(columns)
    return np.minimum(landing, rows * columns - 1), np.minimum(landing + columns, (rows + 1) * columns - 1)


def _lines(rows: int, columns: int) -> Floats:
    """Return which cells are in each of the lines of four [L, rows x columns]."""
    found = []
    for down, right in ((0, 1), (1, 0), (1, 1), (1, -1)):
        for row in range(rows):
            for column in range(columns):
                line = [(row + step * down, column + step * right) for step in range(IN_A_ROW)]
                if all(0 <= r < rows and 0 <= c < columns for r, c in line):
                    found.append([r * columns + c for r, c in line])
    incidence = np.zeros((len(found), rows * columns), dtype=np.float32)
    np.put_along_axis(incidence, np.array(found), 1, axis=1)
    return incidence
