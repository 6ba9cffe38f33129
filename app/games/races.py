"""Race games for several players from the mover's perspective.

Layouts of the tensors and numbers of the actions are OpenSpiel's (version 2.0).
"""

import numpy as np

from app.games.codec import Codec, gather, identical
from app.games.heuristics import chinese_checkers_heuristic
from app.games.table import Indices

_FIELDS = 56  # 40 common ones, already rotated for the observer, and 4 x 4 goals
_COLOURS = 4
_STEPS = np.array([(-1, -1), (-1, 1), (0, -2), (0, 2), (1, -1), (1, 1)])  # rows and doubled columns


def maedn(players: int = 2) -> Codec:
    """Fields x (me, left, across, right), pieces still outside (a count up to 4) and the die.

    The game rotates the board for the observer but not the colours of the pieces; this does.
    """
    field, colour = np.divmod(np.arange(_FIELDS * _COLOURS), _COLOURS)
    outside = _FIELDS * _COLOURS + np.arange(4)
    die = _FIELDS * _COLOURS + 8 + np.arange(6)
    views = np.stack(
        [np.concatenate([field * _COLOURS + (colour + seat) % _COLOURS, outside, die]) for seat in range(players)]
    )
    return Codec(views.shape[1], gather(views), identical(players, 45), uniform_chance=True)


def chinese_checkers(players: int = 2) -> Codec:
    """Planes me, next, …, empty of the 121 cells, the star turned so that my home is always the first one.

    Actions: cell x direction, then passing. Only the layouts for 2, 3, 4 and 6 players exist.
    """
    homes = {2: (0, 3), 3: (0, 2, 4), 4: (0, 1, 3, 4), 6: (0, 1, 2, 3, 4, 5)}[players]
    cells, directions = _sixths()
    cell, direction = np.divmod(np.arange(121 * 6), 6)
    planes = np.arange(players + 1)[:, None] * 121
    views = np.stack([(planes + cells[home][None, :]).ravel() for home in homes])
    to_game = np.stack([np.append(cells[home][cell] * 6 + directions[home][direction], 726) for home in homes])
    heuristic = chinese_checkers_heuristic(_star(), _STEPS)
    return Codec(views.shape[1], gather(views), to_game, heuristic=heuristic)


def _sixths() -> tuple[Indices, Indices]:
    """Return where each cell [6, 121] and each direction [6, 6] comes to lie after 0 … 5 sixths of a turn."""
    centred = _star()
    cells, directions = [], []
    for sixths in range(6):
        cells.append(_find(_turned(centred, sixths), centred))
        directions.append(_find(_turned(_STEPS, sixths), _STEPS))
    return np.stack(cells), np.stack(directions)


def _star() -> Indices:
    """Return (row, doubled column) of the 121 cells from the centre, in the game's order: by row, then column."""
    triangle = {(r, c) for r in range(-4, 9) for c in range(r - 8, 9 - r, 2)}
    star = triangle | {(-r, c) for r, c in triangle}
    return np.array(sorted(star))


def _turned(points: Indices, sixths: int) -> Indices:
    """Turn points clockwise about the centre. In axial coordinates a sixth maps (x, z) to (-z, x + z)."""
    z, x = points[:, 0], (points[:, 1] - points[:, 0]) // 2
    for _ in range(sixths):
        x, z = -z, x + z
    return np.stack([z, 2 * x + z], axis=1)


def _find(points: Indices, among: Indices) -> Indices:
    places = {tuple(point): i for i, point in enumerate(among.tolist())}
    return np.array([places[tuple(point)] for point in points.tolist()])
