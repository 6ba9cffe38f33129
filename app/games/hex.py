"""Hex: its codec and our own rules, on boards of any size.

The first seat joins top and bottom, the second left and right. As OpenSpiel does, a position marks the stones that are
joined to one of their edges. A stone wins if it reaches both edges, by itself or through its neighbours.
"""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import SEATS, BoardRules, cut_off, finish, forced, game_type, write_move
from flyball.app.games.codec import Codec, gather, planes, symmetry, turn
from flyball.app.games.table import Indices, Seats


def hex_board(board_size: int = 11) -> Codec:
    """Encode own, opponent's and empty cells, own edges at top and bottom.

    Stones have three planes a seat: joined to no edge, to the first, to the second. The second seat joins left and
    right, so it sees the board transposed. OpenSpiel's planes of winning chains, 0 and 8, are left out: they are empty
    until the end.
    """
    cells = np.arange(board_size**2)
    across = turn("transpose", board_size, board_size)
    first, second = (5, 7, 6, 3, 1, 2, 4), (3, 1, 2, 5, 7, 6, 4)
    views = np.stack([planes(first, cells), planes(second, across)])
    to_game = np.stack([cells, across])
    half = turn("half_turn", board_size, board_size)
    turned = symmetry("half_turn", planes((0, 2, 1, 3, 5, 4, 6), half), half)
    return Codec(views.shape[1], gather(views), to_game, (turned,), planes=(7, board_size, board_size))


# Values of cells. Stones are FREE, FIRST or SECOND by the edge they are joined to, plus COLOUR for the second seat.
FREE, FIRST, SECOND = 0, 1, 2
COLOUR = 3
EMPTY = SEATS * COLOUR
WINNER = EMPTY + 1  # the stone that joined both edges, which is in no plane
_PLANES = np.array([COLOUR, COLOUR + FIRST, COLOUR + SECOND, FREE, FIRST, SECOND, EMPTY, WINNER])
"""The second seat's plane for each value of a cell. The first seat's plane is the value itself."""
_NEIGHBOURS = np.array([(-1, 0), (-1, 1), (0, -1), (0, 1), (1, -1), (1, 0)])


@cache
def hex_rules(board_size: int = 11) -> BoardRules:
    """Return the rules on a board of ``board_size`` x ``board_size`` cells."""
    codec, shape = hex_board(board_size), (board_size, board_size)
    begun = np.zeros((), dtype=game_type(codec, board_size**2, ("cells", np.uint8, shape)))
    begun["open"][:], begun["cells"][:] = 1, EMPTY
    return BoardRules(f"hex(board_size={board_size})", version=1, codec=codec, begun=begun, play=_play, show=_show)


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    stack = np.empty(games["open"].shape[1], dtype=np.int64)
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _place_stone(game, action, limit, stack)
            action = forced(game)


@inlined
def _place_stone(game: np.void, action: int, limit: int, stack: Indices) -> None:
    """Place the mover's stone. The game ends if the stone joins both edges, or at the limit."""
    cells, mover, played = game["cells"], int(game["mover"]), write_move(game, action)
    side, colour = len(cells), COLOUR * mover
    along, across = action // side, action % side  # from the mover's first edge to the second, and from left to right
    row, column = (across, along) if mover else (along, across)
    first, second = along == 0, along == side - 1
    for step in range(len(_NEIGHBOURS)):
        down, right = row + _NEIGHBOURS[step, 0], column + _NEIGHBOURS[step, 1]
        if 0 <= down < side and 0 <= right < side:
            first |= cells[down, right] == colour + FIRST
            second |= cells[down, right] == colour + SECOND
    cells[row, column] = WINNER if first and second else colour + FIRST * first + SECOND * second
    if first != second:
        _join(cells, row, column, colour, stack)
    game["mover"] = 1 - mover
    for down in range(side):
        for right in range(side):  # as the other seat sees it
            game["open"][down * side + right if mover else right * side + down] = cells[down, right] == EMPTY
    if first and second:
        finish(game, 1 - 2 * mover)
    elif played == limit:
        cut_off(game)


@inlined
def _join(cells: NDArray[np.uint8], row: int, column: int, colour: int, stack: Indices) -> None:
    """Mark free stones connected to a stone as joined to its edge."""
    side, count = len(cells), 1
    stack[0] = row * side + column
    while count:
        count -= 1
        near = stack[count]
        for step in range(len(_NEIGHBOURS)):
            down, right = near // side + _NEIGHBOURS[step, 0], near % side + _NEIGHBOURS[step, 1]
            if 0 <= down < side and 0 <= right < side and cells[down, right] == colour + FREE:
                cells[down, right] = cells[row, column]
                stack[count] = down * side + right
                count += 1


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    side = games["cells"].shape[1]
    for k in range(len(slots)):
        cells, view = games[slots[k]]["cells"], views[k]
        view[:] = 0
        for row in range(side):
            for column in range(side):
                plane, cell = int(cells[row, column]), row * side + column
                if seats[k]:
                    plane, cell = _PLANES[plane], column * side + row
                if plane <= EMPTY:
                    view[plane * side * side + cell] = 1
