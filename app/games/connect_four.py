"""Connect four: its codec, a heuristic, and our own rules.

Each seat's stones are an integer with a bit for each cell. One bit between the rows is never set, so that no four in
a row runs round the edge.
"""

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import SEATS, BoardRules, finish, forced, game_type, write_move
from flyball.app.games.codec import Codec, gather, identical, planes, symmetry, turn
from flyball.app.games.table import Floats, Heuristic, Indices, Mask, Observations, Seats

ROWS, COLUMNS = 6, 7
CELLS = ROWS * COLUMNS
IN_A_ROW = 4


def connect_four(rows: int = ROWS, columns: int = COLUMNS) -> Codec:
    """Encode planes of own, opponent's and empty cells, lowest row first. An action is a column."""
    cells = np.arange(rows * columns)
    views = np.stack([planes((0, 1, 2), cells), planes((1, 0, 2), cells)])
    mirror = symmetry("left_right", planes((0, 1, 2), turn("left_right", rows, columns)), np.arange(columns)[::-1])
    heuristic, shape = _heuristic(rows, columns), (3, rows, columns)
    return Codec(views.shape[1], gather(views), identical(SEATS, columns), (mirror,), heuristic=heuristic, planes=shape)


_WIN, _BLOCK, _GIVE, _WASTE = 40.0, 20.0, -10.0, -3.0
_OPEN_LINE, _STONE = 0.1, 0.3  # worth of a line without the opponent's stones, and of its stones squared


def _heuristic(rows: int, columns: int) -> Heuristic:
    """Prefer to win, then block, then avoid helping the opponent. Otherwise build open lines."""
    cells = rows * columns
    lines = _lines(rows, columns)

    def building(stones: Floats) -> Floats:
        return np.asarray(_OPEN_LINE + _STONE * stones * stones, dtype=np.float32)

    def prefer(obs: Observations, mask: Mask) -> Floats:
        me, other = obs[:, :cells].astype(np.float32), obs[:, cells : 2 * cells].astype(np.float32)
        mine, theirs = me @ lines.T, other @ lines.T
        empty = np.float32(1) - me - other
        i_win = empty * (((mine == IN_A_ROW - 1) & (theirs == 0)) @ lines > 0)
        they_win = empty * (((theirs == IN_A_ROW - 1) & (mine == 0)) @ lines > 0)
        built = (building(mine) * (theirs == 0) + building(theirs) * (mine == 0)) @ lines
        preference = _WIN * i_win + _BLOCK * they_win + built
        leaving = np.pad(_GIVE * they_win + _WASTE * i_win, ((0, 0), (0, columns)))
        height = rows - empty.reshape(-1, rows, columns).sum(axis=1).astype(np.int64)
        landing = height * columns + np.arange(columns)  # the cell that a stone in each column falls to
        chosen = np.take_along_axis(preference, np.minimum(landing, cells - 1), axis=1)
        next_up = np.take_along_axis(leaving, np.minimum(landing + columns, cells + columns - 1), axis=1)
        return np.where(mask, chosen + next_up, np.float32(0)).astype(np.float32)

    return prefer


def _lines(rows: int, columns: int) -> Floats:
    """Return the lines of four as masks [L, rows x columns]."""
    last = IN_A_ROW - 1
    lines = [
        [(row + k * up) * columns + column + k * right for k in range(IN_A_ROW)]
        for up, right in ((0, 1), (1, 0), (1, 1), (1, -1))
        for row in range(rows - last * up)
        for column in range(columns)
        if 0 <= column + last * right < columns
    ]
    incidence = np.zeros((len(lines), rows * columns), dtype=np.float32)
    np.put_along_axis(incidence, np.array(lines), 1, axis=1)
    return incidence


_CODEC = connect_four()
_THEIRS, _EMPTY = CELLS, 2 * CELLS  # first features of the opponent's and empty planes
_ROW = COLUMNS + 1  # bits of a row

_BEGUN = np.zeros((), dtype=game_type(_CODEC, CELLS, ("stones", np.int64, SEATS), ("heights", np.uint8, COLUMNS)))
_BEGUN["open"][:] = 1


@kernel
def _play(games: NDArray[np.void], slots: Indices, columns: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    for k in range(len(slots)):
        game, column = games[slots[k]], int(columns[k])
        while column >= 0:
            _drop(game, column, limit)
            column = forced(game)


@inlined
def _drop(game: np.void, column: int, limit: int) -> None:
    """Drop the mover's stone into an open column. The game ends if it is won or full, or at the limit."""
    mover, row, played = int(game["mover"]), int(game["heights"][column]), write_move(game, column)
    game["heights"][column] = row + 1
    game["open"][column] = row + 1 < ROWS
    game["stones"][mover] |= 1 << row * _ROW + column
    game["mover"] = 1 - mover
    if has_four(game["stones"][mover]):
        finish(game, 1 - 2 * mover)
    elif played == limit:
        game["truncated"] = played < CELLS
        finish(game, 0)


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    for k in range(len(slots)):
        game, seat, view = games[slots[k]], seats[k], views[k]
        mine, theirs = game["stones"][seat], game["stones"][1 - seat]
        for row in range(ROWS):
            for column in range(COLUMNS):
                cell, bit = row * COLUMNS + column, row * _ROW + column
                own, others = mine >> bit & 1, theirs >> bit & 1
                view[cell] = own
                view[_THEIRS + cell] = others
                view[_EMPTY + cell] = 1 - own - others


@kernel
def has_four(stones: int) -> bool:
    """Return whether cells hold a line of four. The cell in row r, column c is bit 8 r + c."""
    for step in (1, _ROW - 1, _ROW, _ROW + 1):
        pairs = stones & stones >> step
        if pairs & pairs >> 2 * step:
            return True
    return False


CONNECT_FOUR = BoardRules("connect_four", version=1, codec=_CODEC, begun=_BEGUN, play=_play, show=_show)
