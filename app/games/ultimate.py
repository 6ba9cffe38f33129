"""Ultimate tic-tac-toe from the mover's perspective.

Besides the 9 boards the mover sees what decides its choice: the cells of the board it must play in, in a place of
their own, and which boards are won. Without these an action, a number from 0 to 8, means another cell every move.
"""

import numpy as np
from numpy.typing import NDArray

from app.games.boards import SQUARE, planes, turn
from app.games.codec import Codec, gather, identical, symmetry
from app.games.table import Symmetry

_CELLS = 81
_FORCED = 3 * _CELLS  # where the one-hot of the forced board begins
_HERE = _FORCED + 10
_WON = _HERE + 18
_SIZE = _WON + 18
_LINES = np.array([(0, 1, 2), (3, 4, 5), (6, 7, 8), (0, 3, 6), (1, 4, 7), (2, 5, 8), (0, 4, 8), (2, 4, 6)])


def ultimate_tic_tac_toe() -> Codec:
    """Planes me, other, empty of 9 boards x 9 cells, the forced board, its cells, the boards won.

    The forced board is one of ten, the tenth being free choice, which shows no cells. The last two are pairs of
    nine, mine and the other's.
    """
    forced = _FORCED + 1 + np.arange(10)  # the game writes the seat to move in between
    views = np.stack([np.append(planes(order, np.arange(_CELLS)), forced) for order in ((2, 1, 0), (1, 2, 0))])
    pick = gather(views)

    def encode(raw: NDArray[np.float32], seats: NDArray[np.int8]) -> NDArray[np.uint8]:
        base = np.asarray(pick(raw, seats), dtype=np.uint8)
        stones = base[:, : 2 * _CELLS].reshape(-1, 2, 9, 9)
        # The product with the one-hot is the forced board; free choice is in no board.
        here = np.einsum("kb,kpbc->kpc", base[:, _FORCED : _FORCED + 9], stones)
        won = stones[..., _LINES].all(axis=-1).any(axis=-1)
        return np.concatenate([base, here.reshape(-1, 18), won.reshape(-1, 18).astype(np.uint8)], axis=1)

    return Codec(_SIZE, encode, identical(2, 9), tuple(map(_symmetry, SQUARE)))


def _symmetry(name: str) -> Symmetry:
    cells = turn(name, 3, 3)
    boards = (cells[:, None] * 9 + cells[None, :]).ravel()
    pair = planes((0, 1), cells)
    forced = np.append(_FORCED + cells, _FORCED + 9)
    observation = [planes((0, 1, 2), boards), forced, _HERE + pair, _WON + pair]
    return symmetry(name, np.concatenate(observation), cells)
