"""Ultimate tic-tac-toe: its codec and our own rules.

Nine boards are the cells of a board. A mark sends the other seat to the board of the cell's number. If that board is
over, the other seat first chooses a board, which is an action of its own.
"""

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import EMPTY, BoardRules, finish, forced, game_type, show_pieces, write_move
from flyball.app.games.codec import TURNS, Codec, gather, identical, planes, symmetry, turn
from flyball.app.games.table import Floats, Indices, Seats, Symmetry
from flyball.app.games.tic_tac_toe import CELLS as BOARDS
from flyball.app.games.tic_tac_toe import LINES, has_line

_CELLS = 81
_FORCED = 3 * _CELLS  # first feature of the forced board's one-hot
_HERE = _FORCED + 10
_WON = _HERE + 18
_SIZE = _WON + 18


def ultimate_tic_tac_toe() -> Codec:
    """Encode 9 boards x 9 cells, the forced board and boards won.

    The forced board's cells come before the boards won.

    The cells have planes own, opponent's, empty. The forced board is a one-hot of 10; the tenth is free choice. Its
    cells and the boards won have two planes of nine, own and opponent's. OpenSpiel's tensor lacks these two parts.
    They are added because an action, a number from 0 to 8, means another cell on every forced board.

    As planes, every board is a grid of 3 x 3, in three planes.
    """
    forced = _FORCED + 1 + np.arange(10)  # + 1 skips OpenSpiel's feature for the seat to move
    views = np.stack([np.append(planes(order, np.arange(_CELLS)), forced) for order in ((2, 1, 0), (1, 2, 0))])
    pick = gather(views)

    def encode(raw: Floats, seats: Seats) -> NDArray[np.uint8]:
        base = np.asarray(pick(raw, seats), dtype=np.uint8)
        stones = base[:, : 2 * _CELLS].reshape(-1, 2, 9, 9)
        # The product with the one-hot selects the forced board; free choice selects none, so all cells are 0.
        on_forced_board = np.einsum("kb,kpbc->kpc", base[:, _FORCED : _FORCED + 9], stones)
        won = stones[..., LINES].all(axis=-1).any(axis=-1)
        return np.concatenate([base, on_forced_board.reshape(-1, 18), won.reshape(-1, 18).astype(np.uint8)], axis=1)

    return Codec(_SIZE, encode, identical(2, 9), tuple(map(_ultimate_symmetry, TURNS)), planes=(27, 3, 3))


def _ultimate_symmetry(name: str) -> Symmetry:
    cells = turn(name, 3, 3)
    boards = (cells[:, None] * 9 + cells[None, :]).ravel()
    pair = planes((0, 1), cells)
    forced = np.append(_FORCED + cells, _FORCED + 9)
    observation = [planes((0, 1, 2), boards), forced, _HERE + pair, _WON + pair]
    return symmetry(name, np.concatenate(observation), cells)


_CODEC = ultimate_tic_tac_toe()
_LONGEST = 2 * _CELLS  # moves: a mark in each cell, with at most one choice of a board before it
_FULL = EMPTY + 1  # owner of a board that is full and that nobody won
_ANY = BOARDS  # board to play on while the mover chooses one

_FIELDS = (("cells", np.uint8, (BOARDS, BOARDS)), ("owners", np.uint8, BOARDS), ("board", np.uint8))
_BEGUN = np.zeros((), dtype=game_type(_CODEC, _LONGEST, *_FIELDS))
_BEGUN["open"][:], _BEGUN["board"] = 1, _ANY
_BEGUN["cells"][:] = _BEGUN["owners"][:] = EMPTY


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _act(game, action, limit)
            action = forced(game)


@inlined
def _act(game: np.void, action: int, limit: int) -> None:
    """Choose a board, or mark a cell of the board. The game ends if it is won or full, or at the limit."""
    mover, played, board = int(game["mover"]), write_move(game, action), int(game["board"])
    cells, owners = game["cells"], game["owners"]
    won = over = False
    game["board"] = action
    if board != _ANY:
        cells[board, action] = mover
        if has_line(cells[board], mover):
            owners[board] = mover
        elif _complete(cells[board]):
            owners[board] = _FULL
        won, over = has_line(owners, mover), _complete(owners)
        game["mover"] = 1 - mover
        if not won and not over and owners[action] != EMPTY:
            game["board"] = _ANY
    for cell in range(BOARDS):
        game["open"][cell] = (owners[cell] if game["board"] == _ANY else cells[game["board"], cell]) == EMPTY
    if won:
        finish(game, 1 - 2 * mover)
    elif over or played == limit:
        game["truncated"] = not over
        finish(game, 0)


@inlined
def _complete(cells: NDArray[np.uint8]) -> bool:
    complete = True
    for cell in range(BOARDS):
        complete &= cells[cell] != EMPTY
    return complete


@kernel
def _show(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """See ``board_table.Show``."""
    for k in range(len(slots)):
        game, seat, view = games[slots[k]], seats[k], views[k]
        board = int(game["board"])
        show_pieces(game["cells"], seat, view)
        for choice in range(BOARDS + 1):
            view[_FORCED + choice] = choice == board
        for cell in range(BOARDS):
            mark = EMPTY if board == _ANY else game["cells"][board, cell]
            view[_HERE + cell], view[_HERE + BOARDS + cell] = mark == seat, mark == 1 - seat
            owner = game["owners"][cell]
            view[_WON + cell], view[_WON + BOARDS + cell] = owner == seat, owner == 1 - seat


ULTIMATE_TIC_TAC_TOE = BoardRules("ultimate_tic_tac_toe", 1, _CODEC, _BEGUN, _play, _show)
