"""Codecs of board games from OpenSpiel, and a Chinese checkers heuristic.

Tensor layouts and action numbers are those of OpenSpiel 2.0. Tests check the codecs: a position with swapped colours
must look the same to the other seat, and a symmetry must map a legal game to a legal game.

A heuristic sees what a model sees. It returns log-weights: differences of a few units make a choice almost certain, and
differences below 1 leave it open, so that games seldom repeat.
"""

import numpy as np

from flyball.app.games.codec import Codec, gather, identical, planes
from flyball.app.games.table import Floats, Heuristic, Indices, Mask, Observations

_FIELDS = 56  # 40 common fields, which OpenSpiel rotates for the observer, and 4 x 4 goals
_COLOURS = 4


def maedn(players: int = 2) -> Codec:
    """Encode fields x (me, left, across, right), pieces outside, and the die.

    The numbers of pieces outside are 0 to 4. OpenSpiel rotates the board for the observer but not the colours of the
    pieces; this codec rotates both.
    """
    field, colour = np.divmod(np.arange(_FIELDS * _COLOURS), _COLOURS)
    outside = _FIELDS * _COLOURS + np.arange(4)
    die = _FIELDS * _COLOURS + 8 + np.arange(6)
    views = np.stack(
        [np.concatenate([field * _COLOURS + (colour + seat) % _COLOURS, outside, die]) for seat in range(players)]
    )
    return Codec(views.shape[1], gather(views), identical(players, 45), uniform_chance=True)


# The star's 121 cells as (row, doubled column) from its centre, in OpenSpiel's order: by row, then column. The first 10
# are my home, the last 10 my goal; the very last is the goal's far end.
_TRIANGLE = {(r, c) for r in range(-4, 9) for c in range(r - 8, 9 - r, 2)}
_STAR = np.array(sorted(_TRIANGLE | {(-r, c) for r, c in _TRIANGLE}))
_STEPS = np.array([(-1, -1), (-1, 1), (0, -2), (0, 2), (1, -1), (1, 1)])  # the six directions
_HOME = 10  # cells of a home and of a goal


def chinese_checkers(players: int = 2) -> Codec:
    """Encode planes own, next seat's, …, empty, on a turned star.

    The star is turned to put the observer's home first. Actions are 121 cells x 6 directions, then passing. OpenSpiel
    has layouts for 2, 3, 4 and 6 players only.
    """
    homes = {2: (0, 3), 3: (0, 2, 4), 4: (0, 1, 3, 4), 6: (0, 1, 2, 3, 4, 5)}[players]
    # Index of each cell [H, 121] and each direction [H, 6] in the game's numbers, for each of the H homes.
    cells = [_turned_indices(_STAR, home) for home in homes]
    directions = [_turned_indices(_STEPS, home) for home in homes]
    cell, direction = np.divmod(np.arange(121 * 6), 6)
    views = np.stack([planes(range(players + 1), turned) for turned in cells])
    to_game = np.stack([np.append(c[cell] * 6 + d[direction], 726) for c, d in zip(cells, directions, strict=True)])
    return Codec(views.shape[1], gather(views), to_game, heuristic=_chinese_checkers_heuristic())


def _turned_indices(points: Indices, sixths: int) -> Indices:
    """Return the index of each point's image under a clockwise turn.

    In axial coordinates a sixth of a turn maps (x, z) to (-z, x + z).
    """
    z, x = points[:, 0], (points[:, 1] - points[:, 0]) // 2
    for _ in range(sixths):
        x, z = -z, x + z
    places = {tuple(point): i for i, point in enumerate(points.tolist())}
    return np.array([places[point] for point in zip(z.tolist(), (2 * x + z).tolist(), strict=True)])


_TO_FREE, _TO_TIP = 2.0, 2.0  # worth of each step nearer to the goal's free cells, and to its far end
_BEHIND = 0.3  # worth of each step between the moving piece and the goal's far end
_PASS = 3.0  # worth of ending a chain of jumps: less than a jump ahead, more than one back
_FAR = 99


def _chinese_checkers_heuristic() -> Heuristic:
    """Prefer moves of the rearmost pieces towards the goal's free cells. The heuristic looks one step or jump ahead."""
    cells, origin = len(_STAR), np.repeat(np.arange(len(_STAR)), len(_STEPS))
    places = {tuple(cell): k for k, cell in enumerate(_STAR.tolist())}

    def targets(moves: Indices) -> Indices:
        """Return the target cells [C x 6] of moves from every cell.

        ``moves`` is [6, 2]. The index C stands for a target off the star.
        """
        return np.array([places.get(tuple(cell), cells) for cell in (_STAR[:, None] + moves).reshape(-1, 2).tolist()])

    def distances(goals: Indices) -> Floats:
        """Return the steps [C, G] from every cell to each goal."""
        rows, columns = np.abs(_STAR[:, None] - goals).transpose(2, 0, 1)
        return np.asarray(np.maximum(rows, (rows + columns) // 2), dtype=np.float32)

    near, far = targets(_STEPS), targets(2 * _STEPS)
    to_goal, to_tip = distances(_STAR[-_HOME:]), distances(_STAR[-1:])[:, 0]

    def prefer(obs: Observations, mask: Mask) -> Floats:
        arrived, empty = obs[:, cells - _HOME : cells] > 0, np.pad(obs[:, -cells:] > 0, ((0, 0), (0, 1)))
        to_free = np.where(arrived[:, None, :], _FAR, to_goal).min(axis=2)
        to_free[:, -_HOME:][arrived] = 0  # pieces that have arrived
        left = np.pad(_TO_FREE * to_free + _TO_TIP * to_tip, ((0, 0), (0, 1)))
        target = np.where(empty[:, near], near, far)
        gained = left[:, origin] - np.take_along_axis(left, target, axis=1) + _BEHIND * to_tip[origin]
        preferences = np.pad(gained, ((0, 0), (0, 1)), constant_values=_PASS)
        return np.where(mask, preferences, 0).astype(np.float32)

    return prefer
