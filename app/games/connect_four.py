"""Connect four by our own rules behind the ``Table`` port: compiled, all games in one array.

Every seat's observation is kept as it changes, so that to observe is to copy rows. Four in a row are found in sets of
cells, integers with a bit for each; a bit that is never set lies between the rows, so no line runs round the edge.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import inlined, kernel
from app.games import boards
from app.games.errors import IllegalAction
from app.games.table import FINISHED, Indices, TableSpec

VERSION = 1
"""Of this implementation: raised whenever the same actions could lead to another game or another observation."""

SEATS, ROWS, COLUMNS = 2, 6, 7
CELLS = ROWS * COLUMNS
_CODEC = boards.connect_four(ROWS, COLUMNS)
_THEIRS, _EMPTY = CELLS, 2 * CELLS  # where the planes after the first, mine, begin; cells from the lowest row up
_ROW = COLUMNS + 1  # bits

_GAME = np.dtype(
    [
        ("views", np.uint8, (SEATS, 3 * CELLS)),
        ("stones", np.int64, SEATS),  # as sets of cells
        ("heights", np.uint8, COLUMNS),
        ("open", np.uint8, COLUMNS),  # columns that may be chosen; none unless the game goes on
        ("moves", np.uint8, CELLS),
        ("played", np.uint8),
        ("mover", np.int8),
        ("returns", np.float32, SEATS),
        ("truncated", np.bool_),
    ],
    align=True,
)
_BEGUN = np.zeros((), dtype=_GAME)
_BEGUN["views"][:, _EMPTY:] = _BEGUN["open"][:] = 1


class ConnectFourTable:
    """N games of connect four at once, on the usual board; see ``Table``.

    Args:
        slots: N.
        max_moves: moves of the players, forced ones included, after which a game is truncated.
    """

    def __init__(self, slots: int, max_moves: int | None = None) -> None:
        self._limit = max_moves or CELLS
        self._games = np.zeros(slots, dtype=_GAME)
        self._games["mover"] = FINISHED

    @property
    def spec(self) -> TableSpec:
        """See ``Table.spec``."""
        return TableSpec(
            players=SEATS,
            actions=COLUMNS,
            observation_size=_CODEC.size,
            observation_type=_CODEC.kind,
            rules_version=f"flyball-{VERSION}:connect_four",
            symmetries=_CODEC.symmetries,
            heuristic=_CODEC.heuristic,
        )

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``; there is no chance."""
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._games[slots] = _BEGUN

    def seats(self) -> NDArray[np.int8]:
        """See ``Table.seats``."""
        return np.array(self._games["mover"])

    def observe(self, slots: Indices) -> tuple[NDArray[np.uint8], NDArray[np.bool_]]:
        """See ``Table.observe``."""
        return self.view(slots, self._games["mover"][slots]), self._games["open"][slots].view(np.bool_)

    def view(self, slots: Indices, seats: NDArray[np.int8]) -> NDArray[np.uint8]:
        """See ``Table.view``."""
        return np.asarray(self._games["views"][slots, seats])

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        columns = np.ascontiguousarray(actions, dtype=np.int64)
        illegal = _play(self._games, np.ascontiguousarray(slots, dtype=np.int64), columns, self._limit)
        if illegal >= 0:
            slot = int(slots[illegal])
            raise IllegalAction(int(actions[illegal]), slot, np.flatnonzero(self._games["open"][slot]).tolist())

    def earned(self, slots: Indices, seats: NDArray[np.int8]) -> NDArray[np.float32]:  # noqa: ARG002
        """See ``Table.earned``; only the end is rewarded."""
        return np.zeros(len(slots), dtype=np.float32)

    def returns(self) -> NDArray[np.float32]:
        """See ``Table.returns``."""
        return np.array(self._games["returns"])

    def truncated(self) -> NDArray[np.bool_]:
        """See ``Table.truncated``."""
        return np.array(self._games["truncated"])

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``; the columns that were chosen."""
        game = self._games[slot]
        moves: list[int] = game["moves"][: game["played"]].tolist()
        return moves


@kernel
def _play(games: NDArray[np.void], slots: Indices, columns: Indices, limit: int) -> int:
    """Play ``columns`` [K] in ``slots`` [K], and what is then forced; or only return which is the first illegal one.

    Return -1 where all are legal.
    """
    for k in range(len(slots)):
        if columns[k] < 0 or columns[k] >= COLUMNS or not games[slots[k]]["open"][columns[k]]:
            return k
    for k in range(len(slots)):
        game, column = games[slots[k]], int(columns[k])
        while column >= 0:
            _drop(game, column, limit)
            column = _forced(game)
    return -1


@inlined
def _drop(game: np.void, column: int, limit: int) -> None:
    """Let a stone of the seat to move fall into an open column, and end the game if it is over or at the limit."""
    mover, row, played = int(game["mover"]), int(game["heights"][column]), int(game["played"]) + 1
    other, cell = 1 - mover, row * COLUMNS + column
    game["views"][mover, cell] = game["views"][other, _THEIRS + cell] = 1
    game["views"][mover, _EMPTY + cell] = game["views"][other, _EMPTY + cell] = 0
    game["heights"][column] = row + 1
    game["open"][column] = row + 1 < ROWS
    game["moves"][played - 1] = column
    game["played"] = played
    game["stones"][mover] |= 1 << row * _ROW + column
    game["mover"] = other
    won = has_four(game["stones"][mover])
    if won:
        game["returns"][mover], game["returns"][other] = 1, -1
    if won or played == min(limit, CELLS):
        game["truncated"] = not won and played < CELLS
        game["mover"] = FINISHED
        game["open"][:] = 0


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
