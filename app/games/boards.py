"""Board games from the mover's perspective, with their symmetries.

Layouts of the tensors and numbers of the actions are OpenSpiel's (version 2.0); the tests hold them to it: a
position with the colours swapped must look the same to the other seat, and the image of a game must be a game.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from app.games.codec import Codec, gather, identical, symmetry
from app.games.heuristics import breakthrough_heuristic, chinese_checkers_heuristic, connect_four_heuristic
from app.games.table import Floats, Indices, Symmetry

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
_OTHELLO = ("half_turn", "transpose", "anti_transpose")  # those that keep the four discs of the start


def tic_tac_toe() -> Codec:
    """Planes me, other, empty; 9 cells."""
    views = np.stack([planes((2, 1, 0), np.arange(9)), planes((1, 2, 0), np.arange(9))])
    return Codec(27, gather(views), identical(2, 9), _square_symmetries(_TURNS, 3, 3))


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
        views.shape[1], gather(views), identical(2, actions), _square_symmetries(_TURNS, board_size, 4, passing=True)
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


def _square_symmetries(names: Iterable[str], size: int, count: int, *, passing: bool = False) -> tuple[Symmetry, ...]:
    """Symmetries of a game whose actions are the cells of a square, and a last one for passing."""

    def build(name: str) -> Symmetry:
        cells = turn(name, size, size)
        action = np.append(cells, size * size) if passing else cells
        return symmetry(name, planes(range(count), cells), action)

    return tuple(map(build, names))


def planes(order: Sequence[int], cells: Indices) -> Indices:
    """Return the gather that puts planes into ``order``, each with its cells taken from ``cells``."""
    return (np.asarray(order, dtype=np.int64)[:, None] * len(cells) + cells[None, :]).ravel()


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
    # (row, doubled column) of the 121 cells from the centre, in the game's order: by row, then column.
    triangle = {(r, c) for r in range(-4, 9) for c in range(r - 8, 9 - r, 2)}
    star = np.array(sorted(triangle | {(-r, c) for r, c in triangle}))
    # Where each cell [H, 121] and each direction [H, 6] comes to lie when a home is turned to the first one's place.
    cells = [_turned(star, home) for home in homes]
    directions = [_turned(_STEPS, home) for home in homes]
    cell, direction = np.divmod(np.arange(121 * 6), 6)
    views = np.stack([planes(range(players + 1), turned) for turned in cells])
    to_game = np.stack([np.append(c[cell] * 6 + d[direction], 726) for c, d in zip(cells, directions, strict=True)])
    heuristic = chinese_checkers_heuristic(star, _STEPS)
    return Codec(views.shape[1], gather(views), to_game, heuristic=heuristic)


def _turned(points: Indices, sixths: int) -> Indices:
    """Return which of the points each becomes when all are turned clockwise about the centre by sixths.

    In axial coordinates a sixth maps (x, z) to (-z, x + z).
    """
    z, x = points[:, 0], (points[:, 1] - points[:, 0]) // 2
    for _ in range(sixths):
        x, z = -z, x + z
    places = {tuple(point): i for i, point in enumerate(points.tolist())}
    return np.array([places[point] for point in zip(z.tolist(), (2 * x + z).tolist(), strict=True)])


_CELLS = 81
_FORCED = 3 * _CELLS  # where the one-hot of the forced board begins
_HERE = _FORCED + 10
_WON = _HERE + 18
_SIZE = _WON + 18
_LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])


def ultimate_tic_tac_toe() -> Codec:
    """Planes me, other, empty of 9 boards x 9 cells, the forced board, its cells, the boards won.

    The forced board is one of ten, the tenth being free choice, which shows no cells. The last two are pairs of
    nine, mine and the other's. They are added to OpenSpiel's tensor because otherwise an action, a number from 0 to
    8, would mean another cell every move.
    """
    forced = _FORCED + 1 + np.arange(10)  # the game writes the seat to move in between
    views = np.stack([np.append(planes(order, np.arange(_CELLS)), forced) for order in ((2, 1, 0), (1, 2, 0))])
    pick = gather(views)

    def encode(raw: Floats, seats: NDArray[np.int8]) -> NDArray[np.uint8]:
        base = np.asarray(pick(raw, seats), dtype=np.uint8)
        stones = base[:, : 2 * _CELLS].reshape(-1, 2, 9, 9)
        # The product with the one-hot is the forced board; free choice is in no board.
        here = np.einsum("kb,kpbc->kpc", base[:, _FORCED : _FORCED + 9], stones)
        won = stones[..., _LINES].all(axis=-1).any(axis=-1)
        return np.concatenate([base, here.reshape(-1, 18), won.reshape(-1, 18).astype(np.uint8)], axis=1)

    return Codec(_SIZE, encode, identical(2, 9), tuple(map(_ultimate_symmetry, _TURNS)))


def _ultimate_symmetry(name: str) -> Symmetry:
    cells = turn(name, 3, 3)
    boards = (cells[:, None] * 9 + cells[None, :]).ravel()
    pair = planes((0, 1), cells)
    forced = np.append(_FORCED + cells, _FORCED + 9)
    observation = [planes((0, 1, 2), boards), forced, _HERE + pair, _WON + pair]
    return symmetry(name, np.concatenate(observation), cells)
