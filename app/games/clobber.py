"""Clobber: its codec and our own rules, on boards of any size."""

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
    show_boards,
    write_move,
)
from flyball.app.games.codec import Codec, gather, identical, planes, symmetry, turn
from flyball.app.games.table import Indices, Symmetry


def clobber(rows: int = 5, columns: int = 6) -> Codec:
    """Encode planes of own, opponent's and empty cells. Actions are cell x (up, right, down, left)."""
    views = np.tile(planes((0, 1, 2), np.arange(rows * columns)), (2, 1))
    actions = rows * columns * 4
    symmetries: tuple[Symmetry, ...] = ()
    if rows % 2:  # with an even number, the mirrored chequered start would swap colours
        flipped = turn("up_down", rows, columns)
        cell, direction = np.divmod(np.arange(actions), 4)
        image = flipped[cell] * 4 + np.array([2, 1, 0, 3])[direction]
        symmetries = (symmetry("up_down", planes((0, 1, 2), flipped), image),)
    return Codec(views.shape[1], gather(views), identical(2, actions), symmetries, planes=(3, rows, columns))


_STEPS = np.array([(-1, 0), (0, 1), (1, 0), (0, -1)])  # up, right, down, left, in rows and columns


@cache
def clobber_rules(rows: int = 5, columns: int = 6) -> BoardRules:
    """Return the rules on a board of ``rows`` x ``columns`` cells."""
    codec = clobber(rows, columns)
    longest = max(rows * columns - 1, 1)  # every move takes a piece
    begun = np.zeros((), dtype=game_type(codec, longest, ("pieces", np.uint8, (rows, columns))))
    begun["pieces"] = (np.arange(rows)[::-1, None] + np.arange(columns)) % SEATS  # the first seat has the corner
    _allow(begun.reshape(1)[0], 0)
    return BoardRules(f"clobber(rows={rows},columns={columns})", 1, codec, begun, _play, show_boards)


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _take(game, action, limit)
            action = forced(game)


@inlined
def _take(game: np.void, action: int, limit: int) -> None:
    """Take a piece next to one of the mover's. The game ends if the other seat cannot move, or at the limit."""
    mover, played, pieces = int(game["mover"]), write_move(game, action), game["pieces"]
    cell, way = action // len(_STEPS), action % len(_STEPS)
    row, column = cell // pieces.shape[1], cell % pieces.shape[1]
    pieces[row, column], pieces[row + _STEPS[way, 0], column + _STEPS[way, 1]] = EMPTY, mover
    game["mover"] = 1 - mover
    if not _allow(game, 1 - mover):
        finish(game, 1 - 2 * mover)
    elif played == limit:
        cut_off(game)


@inlined
def _allow(game: np.void, mover: int) -> bool:
    """Open the mover's legal actions; return whether there are any."""
    pieces, can_move = game["pieces"], False
    rows, columns = pieces.shape
    for row in range(rows):
        for column in range(columns):
            for way in range(len(_STEPS)):
                beside, aside = row + _STEPS[way, 0], column + _STEPS[way, 1]
                legal = pieces[row, column] == mover and 0 <= beside < rows and 0 <= aside < columns
                legal = legal and pieces[beside, aside] == 1 - mover
                game["open"][(row * columns + column) * len(_STEPS) + way] = legal
                can_move |= legal
    return can_move
