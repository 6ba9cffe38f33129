"""Chinese checkers: towards the free cells of the goal, by jumps where it can, and those furthest behind first."""

import numpy as np
from numpy.typing import NDArray

from app.games.table import Heuristic, Indices, Mask, Observations

HOME = 10
"""Cells of a home and of a goal."""
TO_FREE, TO_TIP, BEHIND = 2.0, 2.0, 0.3
"""What a cell nearer to the goal's free cells is worth, to its far end, and to move who has a cell further to go."""
PASS = 3.0
"""What it is worth not to jump on; a jump ahead is worth more, one back less."""
_FAR = 99

Floats = NDArray[np.float32]


def chinese_checkers_heuristic(star: Indices, steps: Indices) -> Heuristic:
    """Return the preferences of a player who looks at a single step or jump.

    Planes me, the others, empty. Actions: cell x direction, then passing.

    Args:
        star: [C, 2] rows and doubled columns of the cells; the first are my home, the last my goal, its end the very
            last.
        steps: [6, 2] the directions in the same terms.
    """
    cells, origin = len(star), np.repeat(np.arange(len(star)), len(steps))
    near, far = _targets(star, steps), _targets(star, 2 * steps)
    to_goal = _distances(star, star[-HOME:])
    to_tip = _distances(star, star[-1:])[:, 0]

    def prefer(obs: Observations, mask: Mask) -> Floats:
        held, empty = obs[:, cells - HOME : cells] > 0, np.pad(obs[:, -cells:] > 0, ((0, 0), (0, 1)))
        to_free = np.where(held[:, None, :], _FAR, to_goal).min(axis=2)
        to_free[:, -HOME:][held] = 0  # who has arrived
        left = np.pad(TO_FREE * to_free + TO_TIP * to_tip, ((0, 0), (0, 1)))
        target = np.where(empty[:, near], near, far)
        gained = left[:, origin] - np.take_along_axis(left, target, axis=1) + BEHIND * to_tip[origin]
        preferences: Floats = np.where(mask, np.pad(gained, ((0, 0), (0, 1)), constant_values=PASS), 0)
        return preferences.astype(np.float32)

    return prefer


def _targets(star: Indices, moves: Indices) -> Indices:
    """Return where each of the moves [M, 2] leads from every cell [C x M]; C outside the star."""
    places = {tuple(cell): k for k, cell in enumerate(star.tolist())}
    return np.array([places.get(tuple(cell), len(star)) for cell in (star[:, None] + moves).reshape(-1, 2).tolist()])


def _distances(star: Indices, goals: Indices) -> Floats:
    """Return the number of steps from every cell to each of the goals [C, G]."""
    rows, columns = np.abs(star[:, None] - goals).transpose(2, 0, 1)
    return np.asarray(np.maximum(rows, (rows + columns) // 2), dtype=np.float32)
