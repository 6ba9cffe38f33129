"""Tic-tac-toe: its codec and our own rules."""

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.board_table import EMPTY, BoardRules, finish, forced, game_type, show_boards, write_move
from flyball.app.games.codec import TURNS, Codec, gather, identical, planes, square_symmetries
from flyball.app.games.table import Indices

SIDE = 3
CELLS = SIDE * SIDE
LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])


def tic_tac_toe() -> Codec:
    """Encode planes of own, opponent's and empty cells; actions are 9 cells."""
    views = np.stack([planes((2, 1, 0), np.arange(CELLS)), planes((1, 2, 0), np.arange(CELLS))])
    symmetries = square_symmetries(TURNS, SIDE, 3)
    return Codec(3 * CELLS, gather(views), identical(2, CELLS), symmetries, planes=(3, SIDE, SIDE))


_CODEC = tic_tac_toe()
_BEGUN = np.zeros((), dtype=game_type(_CODEC, CELLS, ("pieces", np.uint8, (SIDE, SIDE))))
_BEGUN["open"][:], _BEGUN["pieces"][:] = 1, EMPTY


@kernel
def _play(games: NDArray[np.void], slots: Indices, actions: Indices, limit: int) -> None:
    """See ``board_table.Play``."""
    for k in range(len(slots)):
        game, action = games[slots[k]], int(actions[k])
        while action >= 0:
            _mark(game, action, limit)
            action = forced(game)


@inlined
def _mark(game: np.void, action: int, limit: int) -> None:
    """Mark a cell for the mover. The game ends if it is won or full, or at the limit."""
    mover, played, cells = int(game["mover"]), write_move(game, action), game["pieces"].ravel()
    cells[action], game["open"][action] = mover, 0
    game["mover"] = 1 - mover
    if has_line(cells, mover):
        finish(game, 1 - 2 * mover)
    elif played == limit:
        game["truncated"] = played < CELLS
        finish(game, 0)


@inlined
def has_line(cells: NDArray[np.uint8], seat: int) -> bool:
    """Return whether a seat holds a line among nine cells."""
    complete = False
    for k in range(len(LINES)):
        complete |= cells[LINES[k, 0]] == cells[LINES[k, 1]] == cells[LINES[k, 2]] == seat
    return complete


TIC_TAC_TOE = BoardRules("tic_tac_toe", version=1, codec=_CODEC, begun=_BEGUN, play=_play, show=show_boards)
