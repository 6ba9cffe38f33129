"""Connect four by our own rules. Four in a row are found in sets of cells, integers with a bit for each.

A bit that is never set lies between the rows, so no line runs round the edge.
"""

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import inlined, kernel
from app.games import boards
from app.games.board_table import SEATS, BoardRules, BoardTable, finish, game_type, write_move
from app.games.table import Indices

ROWS, COLUMNS = 6, 7
CELLS = ROWS * COLUMNS
_CODEC = boards.connect_four(ROWS, COLUMNS)
_THEIRS, _EMPTY = CELLS, 2 * CELLS  # where the planes after the first, mine, begin; cells from the lowest row up
_ROW = COLUMNS + 1  # bits

_BEGUN = np.zeros((), dtype=game_type(_CODEC, CELLS, ("stones", np.int64, SEATS), ("heights", np.uint8, COLUMNS)))
_BEGUN["views"][:, _EMPTY:] = _BEGUN["open"][:] = 1


class ConnectFourTable(BoardTable):
    """N games of connect four at once, on the usual board; see ``BoardTable``. Actions are columns."""

    def __init__(self, slots: int, max_moves: int | None = None) -> None:
        super().__init__(
            BoardRules("connect_four", version=1, codec=_CODEC, begun=_BEGUN, play=_play), slots, max_moves
        )


@kernel
def _play(games: NDArray[np.void], slots: Indices, columns: Indices, limit: int) -> None:
    """Play ``columns`` [K] in ``slots`` [K], and what is then forced; see ``board_table.Play``."""
    for k in range(len(slots)):
        game, column = games[slots[k]], int(columns[k])
        while column >= 0:
            _drop(game, column, limit)
            column = _forced(game)


@inlined
def _drop(game: np.void, column: int, limit: int) -> None:
    """Let a stone of the seat to move fall into an open column, and end the game if it is over or at the limit."""
    mover, row, played = int(game["mover"]), int(game["heights"][column]), write_move(game, column)
    other, cell = 1 - mover, row * COLUMNS + column
    game["views"][mover, cell] = game["views"][other, _THEIRS + cell] = 1
    game["views"][mover, _EMPTY + cell] = game["views"][other, _EMPTY + cell] = 0
    game["heights"][column] = row + 1
    game["open"][column] = row + 1 < ROWS
    game["stones"][mover] |= 1 << row * _ROW + column
    game["mover"] = other
    if has_four(game["stones"][mover]):
        finish(game, 1 - 2 * mover)
    elif played == limit:
        game["truncated"] = played < CELLS
        finish(game, 0)


@inlined
def _forced(game: np.void) -> int:
    """Return the only column that may be chosen, -1 where there are several or none."""
    only, count = -1, 0
    for column in range(COLUMNS):
        if game["open"][column]:
            only = column
            count += 1
    return only if count == 1 else -1


@kernel
def has_four(stones: int) -> bool:
    """Tell whether a set of cells holds a line of four; the cell in row r and column c is bit 8 r + c."""
    for step in (1, _ROW - 1, _ROW, _ROW + 1):
        pairs = stones & stones >> step
        if pairs & pairs >> 2 * step:
            return True
    return False
