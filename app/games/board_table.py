"""Two-player board games by our own compiled rules.

All games of a table are in one array. A game is a record, as small as its rules allow, because a search copies it for
every position. The record keeps the legal actions up to date; observations are written on demand. Kernels read and
write a record's fields by the names in ``game_type``, and take the size of a board from the shapes of these fields, so
that one kernel plays all sizes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import inlined, kernel
from flyball.app.games.codec import Codec
from flyball.app.games.table import FINISHED, Floats, IllegalAction, Indices, Mask, Seats, Table, dense

SEATS = 2
EMPTY = 2
"""Value of an empty cell; other cells hold the seat's number."""
Play = Callable[[NDArray[np.void], Indices, Indices, int], None]
"""Kernel that plays actions [K] in slots [K] of games [N], then forced moves, up to a move limit."""
Show = Callable[[NDArray[np.void], Indices, Seats, NDArray[np.uint8]], None]
"""Kernel that writes observations [K, D] of seats [K] in slots [K] of games [N]."""


@dataclass(frozen=True, slots=True, eq=False)
class BoardRules:
    """Rules of a two-player board game for ``BoardTable``.

    Where the codec gives the seats different action numbers, they take turns; a pass is a move.
    """

    name: str  # OpenSpiel's game string
    version: int  # of the implementation: raised when the same actions could give another game or observation
    codec: Codec  # gives OpenSpiel's table the same observations and actions
    begun: NDArray[np.void]  # the first position, a scalar of the game's ``game_type``
    play: Play  # a kernel, as is ``show``
    show: Show


def game_type(codec: Codec, longest: int, *fields: tuple[Any, ...]) -> np.dtype[np.void]:
    """Return the record type of a game with at most ``longest`` moves: the shared fields, then ``fields``."""
    actions = codec.to_game.shape[1]
    shared = [
        ("open", np.uint8, actions),  # 1 for each legal action; all 0 once the game is over
        ("moves", np.min_scalar_type(actions - 1), longest),  # the first ``played`` are the movers' actions so far
        ("played", np.min_scalar_type(longest)),
        ("mover", np.int8),
        ("returns", np.float32, SEATS),
        ("truncated", np.bool_),
    ]
    return np.dtype([*shared, *fields], align=True)


class BoardTable(Table):
    """N games at once. A game is truncated after ``max_moves`` moves of the players; forced moves count."""

    def __init__(self, rules: BoardRules, slots: int, max_moves: int | None = None) -> None:
        self.spec = rules.codec.spec(f"flyball-{rules.version}:{rules.name}", searchable=True, decisive=True)
        self._rules = rules
        self._games = np.zeros(slots, dtype=rules.begun.dtype)
        self._games["mover"] = FINISHED
        self._seats = np.full(slots, FINISHED, dtype=np.int8)  # the movers; reading them from all records is slow
        # The same memory without fields, because NumPy copies records field by field, which takes ten times as long.
        self._records = self._games.view(f"V{self._games.itemsize}")
        longest = self._games["moves"].shape[1]
        self._limit = min(max_moves or longest, longest)

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``. Seeds are only counted, because no move is random."""
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._games[slots], self._seats[slots] = self._rules.begun, self._rules.begun["mover"]

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return self._seats.copy()

    def observe(self, slots: Indices) -> tuple[NDArray[np.uint8], Mask]:
        """See ``Table.observe``."""
        return self.view(slots, self._seats[slots]), self._games["open"][slots].view(np.bool_)

    def view(self, slots: Indices, seats: Seats) -> NDArray[np.uint8]:
        """See ``Table.view``."""
        views = np.empty((len(slots), self.spec.observation_size), dtype=np.uint8)
        self._rules.show(self._games, dense(slots), np.ascontiguousarray(seats, dtype=np.int8), views)
        return views

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        places, chosen = dense(slots), dense(actions)
        illegal = _first_illegal(self._games, places, chosen)
        if illegal >= 0:
            slot = int(slots[illegal])
            raise IllegalAction(int(actions[illegal]), slot, np.flatnonzero(self._games["open"][slot]).tolist())
        self._rules.play(self._games, places, chosen, self._limit)
        self._seats[slots] = self._games["mover"][slots]

    def copy_from(self, other: Self, sources: Indices, targets: Indices) -> None:
        """See ``Table.copy_from``."""
        self._records[targets], self._seats[targets] = other._records[sources], other._seats[sources]

    def branch(self, sources: Indices, actions: NDArray[np.int32], targets: Indices) -> tuple[Seats, Floats]:
        """See ``Table.branch``."""
        self._records[targets] = self._records[sources]
        self._rules.play(self._games, targets, actions.astype(np.int64), self._limit)
        seats, returns = _outcomes(self._games, targets)
        self._seats[targets] = seats
        return seats, returns

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return np.array(self._games["returns"])

    def truncated(self) -> Mask:
        """See ``Table.truncated``."""
        return np.array(self._games["truncated"])

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``."""
        actions = self._games["moves"][slot, : self._games["played"][slot]]
        moves: list[int] = self._rules.codec.to_game[np.arange(len(actions)) % SEATS, actions].tolist()
        return moves


@kernel
def _first_illegal(games: NDArray[np.void], slots: Indices, actions: Indices) -> int:
    """Return the index of the first illegal action, or -1.

    -1 means that all are legal. ``slots`` and ``actions`` are [K].
    """
    for k in range(len(slots)):
        may = games[slots[k]]["open"]
        if actions[k] < 0 or actions[k] >= len(may) or not may[actions[k]]:
            return k
    return -1


@kernel
def _outcomes(games: NDArray[np.void], slots: Indices) -> tuple[Seats, Floats]:
    """Return the seats to move [K] and the outcomes [K, P]."""
    seats, returns = np.empty(len(slots), dtype=np.int8), np.empty((len(slots), SEATS), dtype=np.float32)
    for k in range(len(slots)):
        game = games[slots[k]]
        seats[k], returns[k] = game["mover"], game["returns"]
    return seats, returns


@inlined
def write_move(game: np.void, action: int) -> int:
    """Record the mover's action; return the number of moves so far."""
    played = int(game["played"]) + 1
    game["moves"][played - 1] = action
    game["played"] = played
    return played


@inlined
def forced(game: np.void) -> int:
    """Return the only legal action, -1 if there are several or none."""
    only = -1
    for action in range(len(game["open"])):
        if game["open"][action]:
            if only >= 0:
                return -1
            only = action
    return only


@kernel
def bit_count(bits: np.uint64) -> int:
    """Return how many bits are set."""
    count = 0
    while bits:
        bits &= bits - np.uint64(1)
        count += 1
    return count


@inlined
def show_pieces(pieces: NDArray[np.uint8], seat: int, view: NDArray[np.uint8]) -> None:
    """Write planes of own, opponent's and empty cells. ``pieces`` [rows, columns] holds the values of the cells."""
    rows, columns = pieces.shape
    cells = rows * columns
    for row in range(rows):
        for column in range(columns):
            piece, cell = pieces[row, column], row * columns + column
            view[cell] = piece == seat
            view[cells + cell] = piece == 1 - seat
            view[2 * cells + cell] = piece == EMPTY


@kernel
def show_boards(games: NDArray[np.void], slots: Indices, seats: Seats, views: NDArray[np.uint8]) -> None:
    """Show games whose observation is their ``pieces`` alone, the same way up for both seats; see ``Show``."""
    for k in range(len(slots)):
        show_pieces(games[slots[k]]["pieces"], seats[k], views[k])


@inlined
def cut_off(game: np.void) -> None:
    """Truncate a game at its move limit."""
    game["truncated"] = True
    finish(game, 0)


@inlined
def finish(game: np.void, lead: int) -> None:
    """End a game; the sign of ``lead`` is the first seat's return."""
    game["returns"][0], game["returns"][1] = np.sign(lead), -np.sign(lead)
    game["mover"] = FINISHED
    game["open"][:] = 0
