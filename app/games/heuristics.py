"""Simple strong players for some games: what they prefer follows from the observation and the mask alone.

They see what a model sees, so the same seat at the same table can be given to either, and none sees hidden cards.
They return log-weights: differences of a few make a choice all but certain, and those below 1 leave it open, so that
games seldom repeat.
"""

import numpy as np

from app.games.table import Floats, Heuristic, Indices, Mask, Observations

IN_A_ROW = 4
WIN, BLOCK, GIVE, WASTE = 40.0, 20.0, -10.0, -3.0
OPEN_LINE, STONE = 0.1, 0.3
"""Worth of a line without the other's stones, and of each stone in it, times the stones there are."""


def connect_four_heuristic(rows: int = 6, columns: int = 7) -> Heuristic:
    """Win, else block, give nothing away, and build where most lines are open: one move is looked ahead.

    Planes me, other, empty, from the lowest row up.
    """
    cells = rows * columns
    lines = _lines(rows, columns)

    def building(stones: Floats) -> Floats:
        return np.asarray(OPEN_LINE + STONE * stones * stones, dtype=np.float32)

    def prefer(obs: Observations, mask: Mask) -> Floats:
        me, other = obs[:, :cells].astype(np.float32), obs[:, cells : 2 * cells].astype(np.float32)
        mine, theirs = me @ lines.T, other @ lines.T
        empty = np.float32(1) - me - other
        i_win = empty * (((mine == IN_A_ROW - 1) & (theirs == 0)) @ lines > 0)
        they_win = empty * (((theirs == IN_A_ROW - 1) & (mine == 0)) @ lines > 0)
        built = (building(mine) * (theirs == 0) + building(theirs) * (mine == 0)) @ lines
        here = WIN * i_win + BLOCK * they_win + built
        leaving = np.pad(GIVE * they_win + WASTE * i_win, ((0, 0), (0, columns)))
        height = rows - empty.reshape(-1, rows, columns).sum(axis=1).astype(np.int64)
        landing = height * columns + np.arange(columns)  # where a stone comes to lie in each column
        chosen = np.take_along_axis(here, np.minimum(landing, cells - 1), axis=1)
        next_up = np.take_along_axis(leaving, np.minimum(landing + columns, cells + columns - 1), axis=1)
        return np.where(mask, chosen + next_up, np.float32(0)).astype(np.float32)

    return prefer


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


CAPTURE, RUN, LEAVE_HOME, ADVANCE = 3.0, 8.0, -0.7, 0.2
LOST, TRADED = -4.0, -1.0
"""Cost of moving where one is taken, for nothing or for a piece of the other's."""
STOP = (25.0, 8.0, 3.0)
"""Worth of taking a piece that has 1, 2 or 3 rows to go."""


def breakthrough_heuristic(rows: int = 8, columns: int = 8) -> Heuristic:
    """Reach the last row, stop who is about to, take what costs nothing, run when nobody is in the way.

    Planes me, other, empty; I move to higher rows. Actions: cell x (left, ahead, right) x capture. Attackers and
    defenders of a cell are counted.
    """
    cells = rows * columns
    origin, way, capture = np.unravel_index(np.arange(cells * 6), (cells, 3, 2))
    row, column = np.divmod(origin, columns)
    # An action that leaves the board leads somewhere on it: it is never legal.
    target = np.minimum(row + 1, rows - 1) * columns + np.clip(column + way - 1, 0, columns - 1)
    fixed = WIN * (row == rows - 2) + ADVANCE * (row + 1) + LEAVE_HOME * (row == 0)
    stopped = np.zeros(rows + 1)
    stopped[1 : 1 + len(STOP)] = STOP
    taken = capture * (CAPTURE + stopped[row + 1])
    # Which cells [from] bear on which [to]: diagonally from above or below, and where a runner could still be met.
    cell_row, cell_column = np.divmod(np.arange(cells), columns)
    up, aside = cell_row[:, None] - cell_row, np.abs(cell_column[:, None] - cell_column)
    relations = ((up == 1) & (aside == 1), (up == -1) & (aside == 1), (up > 0) & (aside <= up))
    from_above, from_below, ahead = (relation.astype(np.float32) for relation in relations)

    def prefer(obs: Observations, mask: Mask) -> Floats:
        me, other = obs[:, :cells].astype(np.float32), obs[:, cells : 2 * cells].astype(np.float32)
        attackers = (other @ from_above)[:, target]
        defenders = (me @ from_below)[:, target] - (way != 1)  # the one that moves defends no more
        free = (other @ ahead)[:, target] == 0
        danger = np.where(attackers == 0, 0.0, np.where(defenders < attackers, LOST, TRADED))
        return np.where(mask, fixed + taken + danger + (RUN + row) * free, 0.0).astype(np.float32)

    return prefer


HOME = 10
"""Cells of a home and of a goal."""
TO_FREE, TO_TIP, BEHIND = 2.0, 2.0, 0.3
"""Worth of a cell nearer to the goal's free cells, of one nearer to its far end, and of each cell still to go."""
PASS = 3.0
"""Worth of not jumping on; a jump ahead is worth more, one back less."""
_FAR = 99


def chinese_checkers_heuristic(star: Indices, steps: Indices) -> Heuristic:
    """Go towards the free cells of the goal, by jumps where possible, and those furthest behind first.

    Planes me, the others, empty. Actions: cell x direction, then passing. A single step or jump is looked at.

    Args:
        star: [C, 2] rows and doubled columns of the cells; the first are my home, the last my goal, its end the very
            last.
        steps: [6, 2] the directions in the same terms.
    """
    cells, origin = len(star), np.repeat(np.arange(len(star)), len(steps))
    places = {tuple(cell): k for k, cell in enumerate(star.tolist())}

    def targets(moves: Indices) -> Indices:
        """Return where each of the moves [6, 2] leads from every cell [C x 6]; C outside the star."""
        return np.array([places.get(tuple(cell), cells) for cell in (star[:, None] + moves).reshape(-1, 2).tolist()])

    def distances(goals: Indices) -> Floats:
        """Return the number of steps from every cell to each of the goals [C, G]."""
        rows, columns = np.abs(star[:, None] - goals).transpose(2, 0, 1)
        return np.asarray(np.maximum(rows, (rows + columns) // 2), dtype=np.float32)

    near, far = targets(steps), targets(2 * steps)
    to_goal, to_tip = distances(star[-HOME:]), distances(star[-1:])[:, 0]

    def prefer(obs: Observations, mask: Mask) -> Floats:
        held, empty = obs[:, cells - HOME : cells] > 0, np.pad(obs[:, -cells:] > 0, ((0, 0), (0, 1)))
        to_free = np.where(held[:, None, :], _FAR, to_goal).min(axis=2)
        to_free[:, -HOME:][held] = 0  # who has arrived
        left = np.pad(TO_FREE * to_free + TO_TIP * to_tip, ((0, 0), (0, 1)))
        target = np.where(empty[:, near], near, far)
        gained = left[:, origin] - np.take_along_axis(left, target, axis=1) + BEHIND * to_tip[origin]
        preferences = np.pad(gained, ((0, 0), (0, 1)), constant_values=PASS)
        return np.where(mask, preferences, 0).astype(np.float32)

    return prefer
