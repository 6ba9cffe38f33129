"""Breakthrough on boards of any size: codec, heuristic, and our own rules."""

from functools import cache

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import (
    EMPTY,
    SEATS,
    BoardRules,
    cut_off,
    finish,
    forced,
    game_type,
    show_pieces,
    write_move,
)
from flyball.app.games.codec import Codec, gather, planes, symmetry, turn
from flyball.app.games.table import Floats, Heuristic, Indices, Mask, Observations, Seats


def breakthrough(rows: int = 8, columns: int = 8) -> Codec:
    """Encode planes of own, opponent's and empty cells, own moving up.

    Actions are cell x (left, up, right) x capture.
    """
    identity, flipped = np.arange(rows * columns), turn("up_down", rows, columns)
    views = np.stack([planes((0, 1, 2), identity), planes((1, 0, 2), flipped)])
    cell, direction, capture = np.unravel_index(np.arange(rows * columns * 6), (rows * columns, 3, 2))
    to_game = np.stack(
        [(cells[cell] * 6 + first + direction) * 2 + capture for cells, first in ((identity, 0), (flipped, 3))]
    )
    mirrored = turn("left_right", rows, columns)
    image = (mirrored[cell] * 3 + 2 - direction) * 2 + capture
    mirror = symmetry("left_right", planes((0, 1, 2), mirrored), image)
    heuristic = _breakthrough_heuristic(rows, columns)
    return Codec(views.shape[1], gather(views), to_game, (mirror,), heuristic=heuristic, planes=(3, rows, columns))


_WIN, _CAPTURE, _RUN, _LEAVE_HOME, _ADVANCE = 40.0, 3.0, 8.0, -0.7, 0.2
_LOST, _TRADED = -4.0, -1.0  # cost of moving where the piece can be lost for nothing, or traded
_STOP = (25.0, 8.0, 3.0)  # worth of taking a piece that is 1, 2 or 3 rows from winning


def _breakthrough_heuristic(rows: int, columns: int) -> Heuristic:
    """Prefer winning, then stopping a piece about to win.

    Safe captures and free runs follow. A cell is safe by the numbers of pieces that attack and defend it.
    """
    cells = rows * columns
    origin, way, capture = np.unravel_index(np.arange(cells * 6), (cells, 3, 2))
    row, column = np.divmod(origin, columns)
    # Targets off the board are clipped onto it; such an action is never legal.
    target = np.minimum(row + 1, rows - 1) * columns + np.clip(column + way - 1, 0, columns - 1)
    fixed = _WIN * (row == rows - 2) + _ADVANCE * (row + 1) + _LEAVE_HOME * (row == 0)
    stopped = np.pad(_STOP, (1, rows))
    capture_worth = capture * (_CAPTURE + stopped[row + 1])
    # Relations [from, to]: the cell "from" is diagonally above or below the cell "to", or a piece on it could stop a
    # runner.
    cell_row, cell_column = np.divmod(np.arange(cells), columns)
    up, aside = cell_row[:, None] - cell_row, np.abs(cell_column[:, None] - cell_column)
    relations = ((up == 1) & (aside == 1), (up == -1) & (aside == 1), (up > 0) & (aside <= up))
    from_above, from_below, ahead = (relation.astype(np.float32) for relation in relations)

    def prefer(obs: Observations, mask: Mask) -> Floats:
        me, other = obs[:, :cells].astype(np.float32), obs[:, cells : 2 * cells].astype(np.float32)
        attackers = (other @ from_above)[:, target]
        defenders = (me @ from_below)[:, target] - (way != 1)  # the moving piece does not defend its target
        free = (other @ ahead)[:, target] == 0
        danger = np.where(attackers == 0, 0.0, np.where(defenders < attackers, _LOST, _TRADED))
        return np.where(mask, fixed + capture_worth + danger + (_RUN + row) * free, 0.0).astype(np.float32)

    return prefer


_WAYS = 3  # to move: up to the left, straight up, up to the right
_FULL = 6  # rows of a board on which each seat begins with two rows of pieces instead of one


@cache
def breakthrough_rules(rows: int = 8, columns: int = 8) -> BoardRules:
    """Return the rules on a board of ``rows`` x ``columns`` cells."""
    codec, homes = breakthrough(rows, columns), 2 if rows >= _FULL else 1
    # Every move brings a piece one row up, at most to the last but one; only the winning move reaches the last.
    longest = SEATS * columns * sum(rows - 2 - home for home in range(homes)) + 1
    begun = np.zeros((), dtype=game_type(codec, longest, ("pieces", np.uint8, (rows, columns))))
    begun["pieces"][:] = EMPTY
    begun["pieces"][:homes], begun["pieces"][-homes:] = 0, 1
    _allow(begun.reshape(1)[0], 0)
    return BoardRules(f"breakthrough(rows={rows},columns={columns})", 1, codec, begun, _play, _show)


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _move(game, action, limit)
            action = forced(game)


@inlined
def _move(game: np.void, action: int, limit: int) -> None:
    """Move a piece of the mover.

    The game ends if the piece reaches the last row or the other seat has no piece left, or at the limit.
    """
    mover, played = int(game["mover"]), write_move(game, action)
    board = game["pieces"][:: 1 - 2 * mover]  # from the mover's home
    rows, columns = board.shape
    cell, way = action // (2 * _WAYS), action // 2 % _WAYS
    row, column = cell // columns, cell % columns
    board[row, column], board[row + 1, column + way - 1] = EMPTY, mover
    game["mover"] = 1 - mover
    can_move = _allow(game, 1 - mover)
    if row + 1 == rows - 1 or not can_move:  # on two columns or more, a seat with pieces can always move
        finish(game, 1 - 2 * mover)
    elif played == limit:
        cut_off(game)


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    for k in range(len(slots)):
        show_pieces(games[slots[k]]["pieces"][:: 1 - 2 * seats[k]], seats[k], views[k])


@inlined
def _allow(game: np.void, mover: int) -> bool:
    """Open the mover's legal actions; return whether there are any."""
    board, can_move = game["pieces"][:: 1 - 2 * mover], False
    rows, columns = board.shape
    game["open"][:] = 0
    for row in range(rows - 1):
        for column in range(columns):
            if board[row, column] == mover:
                for way in range(_WAYS):
                    aside = column + way - 1
                    if 0 <= aside < columns and board[row + 1, aside] != mover:
                        captures = board[row + 1, aside] != EMPTY
                        if not captures or way != 1:
                            game["open"][((row * columns + column) * _WAYS + way) * 2 + captures] = 1
                            can_move = True
    return can_move
