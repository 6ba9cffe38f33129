"""Two-player board games from the mover's perspective, with their symmetries.

Layouts of the tensors and numbers of the actions are OpenSpiel's (version 2.0); the tests hold them to it: a
position with the colours swapped must look the same to the other seat, and the image of a game must be a game.
"""

from collections.abc import Callable, Sequence

import numpy as np

from app.games.codec import Codec, gather, identical, symmetry
from app.games.heuristics import breakthrough_heuristic, connect_four_heuristic
from app.games.table import Indices, Symmetry

# The eight symmetries of a square, as operations on a grid of cell numbers, without the identity.
_TURNS: dict[str, Callable[[Indices], Indices]] = {
    "left_right": lambda grid: grid[:, ::-1],
    "up_down": lambda grid: grid[::-1, :],
    "half_turn": lambda grid: grid[::-1, ::-1],
    "transpose": lambda grid: grid.T,
    "anti_transpose": lambda grid: grid[::-1, ::-1].T,
    "quarter_turn": np.rot90,
    "three_quarter_turn": lambda grid: np.rot90(grid, 3),
}
SQUARE = tuple(_TURNS)
_OTHELLO = ("half_turn", "transpose", "anti_transpose")  # those that keep the four discs of the start


def tic_tac_toe() -> Codec:
    """Planes me, other, empty; 9 cells."""
    views = np.stack([planes((2, 1, 0), np.arange(9)), planes((1, 2, 0), np.arange(9))])
    return Codec(27, gather(views), identical(2, 9), _square_symmetries(SQUARE, 3, 3))


def connect_four(rows: int = 6, columns: int = 7) -> Codec:
    """Planes me, other, empty; a column is an action."""
    cells = np.arange(rows * columns)
    views = np.stack([planes((0, 1, 2), cells), planes((1, 0, 2), cells)])
    mirror = symmetry("left_right", planes((0, 1, 2), turn("left_right", rows, columns)), np.arange(columns)[::-1])
    heuristic = connect_four_heuristic(rows, columns)
    return Codec(views.shape[1], gather(views), identical(2, columns), (mirror,), heuristic=heuristic)


def breakthrough(rows: int = 8, columns: int = 8) -> Codec:
    """Planes me, other, empty; I always move to higher rows. Actions: cell x (left, ahead, right) x capture."""
    here, flipped = np.arange(rows * columns), turn("up_down", rows, columns)
    views = np.stack([planes((0, 1, 2), here), planes((1, 0, 2), flipped)])
    cell, direction, capture = np.unravel_index(np.arange(rows * columns * 6), (rows * columns, 3, 2))
    to_game = np.stack(
        [(cells[cell] * 6 + first + direction) * 2 + capture for cells, first in ((here, 0), (flipped, 3))]
    )
    mirrored = turn("left_right", rows, columns)
    image = (mirrored[cell] * 3 + 2 - direction) * 2 + capture
    mirror = symmetry("left_right", planes((0, 1, 2), mirrored), image)
    return Codec(views.shape[1], gather(views), to_game, (mirror,), heuristic=breakthrough_heuristic(rows, columns))


def hex_board(board_size: int = 11) -> Codec:
    """Planes mine, joined to my first and second edge, then the other's three, then empty; I join up and down.

    The second seat joins the other two edges, so it sees the board transposed. Won chains (planes 0 and 8) occur
    only in finished games and are left out.
    """
    cells = np.arange(board_size**2)
    across = turn("transpose", board_size, board_size)
    first, second = (5, 7, 6, 3, 1, 2, 4), (3, 1, 2, 5, 7, 6, 4)
    views = np.stack([planes(first, cells), planes(second, across)])
    to_game = np.stack([cells, across])
    half = turn("half_turn", board_size, board_size)
    turned = symmetry("half_turn", planes((0, 2, 1, 3, 5, 4, 6), half), half)
    return Codec(views.shape[1], gather(views), to_game, (turned,))


def go(board_size: int = 19) -> Codec:
    """Planes me, other, empty, and one of ones for the second seat, who has the komi; passing is the last action."""
    cells = np.arange(board_size**2)
    views = np.stack([planes((0, 1, 2, 3), cells), planes((1, 0, 2, 3), cells)])
    actions = board_size**2 + 1
    return Codec(
        views.shape[1], gather(views), identical(2, actions), _square_symmetries(SQUARE, board_size, 4, passing=True)
    )


def othello() -> Codec:
    """Planes me, other, empty; passing is the last action."""
    views = np.tile(planes((1, 2, 0), np.arange(64)), (2, 1))
    return Codec(192, gather(views), identical(2, 65), _square_symmetries(_OTHELLO, 8, 3, passing=True))


def clobber(rows: int = 5, columns: int = 6) -> Codec:
    """Planes me, other, empty; actions: cell x (up, right, down, left)."""
    views = np.tile(planes((0, 1, 2), np.arange(rows * columns)), (2, 1))
    actions = rows * columns * 4
    symmetries: tuple[Symmetry, ...] = ()
    if rows % 2:  # only then does a turned chequered start keep its colours
        flipped = turn("up_down", rows, columns)
        cell, direction = np.divmod(np.arange(actions), 4)
        image = flipped[cell] * 4 + np.array([2, 1, 0, 3])[direction]
        symmetries = (symmetry("up_down", planes((0, 1, 2), flipped), image),)
    return Codec(views.shape[1], gather(views), identical(2, actions), symmetries)


def turn(name: str, rows: int, columns: int) -> Indices:
    """Return where each cell of a turned grid comes from, [rows x columns]."""
    grid = np.arange(rows * columns).reshape(rows, columns)
    return np.ascontiguousarray(_TURNS[name](grid)).ravel()


def _square_symmetries(names: Sequence[str], size: int, count: int, *, passing: bool = False) -> tuple[Symmetry, ...]:
    """Symmetries of a game whose actions are the cells of a square, and a last one for passing."""

    def build(name: str) -> Symmetry:
        cells = turn(name, size, size)
        action = np.append(cells, size * size) if passing else cells
        return symmetry(name, planes(range(count), cells), action)

    return tuple(map(build, names))


def planes(order: Sequence[int], cells: Indices) -> Indices:
    """Return the gather that puts planes into ``order``, each with its cells taken from ``cells``."""
    return (np.asarray(order, dtype=np.int64)[:, None] * len(cells) + cells[None, :]).ravel()
