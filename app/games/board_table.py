"""Board games for two by our own rules: compiled, all games of a table in one array.

Every seat's observation and what may be chosen are kept in the game as they change, so that to observe is to copy rows.
The kernels of a game's rules are handed its fields as ``game_type`` names them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from app.core.kernels import inlined, kernel
from app.games.codec import Codec
from app.games.table import FINISHED, Floats, IllegalAction, Indices, Mask, Seats, Table

SEATS = 2
Play = Callable[[NDArray[np.void], Indices, Indices, int], None]
"""Plays legal actions [K] in slots [K] of the games [N], and what is then forced; the number is the limit of moves."""


@dataclass(frozen=True, slots=True, eq=False)
class BoardRules:
    """Rules of a board game for two, as a ``BoardTable`` plays them."""

    name: str  # OpenSpiel's; it is the usual game, without options
    version: int  # of the implementation: raised whenever the same actions could lead to another game or observation
    codec: Codec  # by which OpenSpiel's table shows the same
    begun: NDArray[np.void]  # the first position, [] of the game's ``game_type``
    play: Play  # a kernel


def game_type(codec: Codec, longest: int, *fields: tuple[Any, ...]) -> np.dtype[np.void]:
    """Return the type of a game of at most ``longest`` moves, with further ``fields`` of its rules."""
    shared = [
        ("views", np.uint8, (SEATS, codec.size)),
        ("open", np.uint8, codec.to_game.shape[1]),  # actions that may be chosen, none unless the game goes on
        ("moves", np.uint8, longest),  # the first ``played`` are the actions so far
        ("played", np.uint8),
        ("mover", np.int8),
        ("returns", np.float32, SEATS),
        ("truncated", np.bool_),
    ]
    return np.dtype([*shared, *fields], align=True)


class BoardTable(Table):
    """N games at once, truncated after ``max_moves`` of the players, forced ones included."""

    def __init__(self, rules: BoardRules, slots: int, max_moves: int | None = None) -> None:
        self.spec = rules.codec.spec(f"flyball-{rules.version}:{rules.name}")
        self._rules = rules
        self._games = np.zeros(slots, dtype=rules.begun.dtype)
        self._games["mover"] = FINISHED
        longest = self._games["moves"].shape[1]
        self._limit = min(max_moves or longest, longest)

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """See ``Table.reset``; there is no chance."""
        if len(seeds) != len(slots):
            raise ValueError(f"{len(slots)} slots cannot begin from {len(seeds)} seeds")
        self._games[slots] = self._rules.begun

    def seats(self) -> Seats:
        """See ``Table.seats``."""
        return np.array(self._games["mover"])

    def observe(self, slots: Indices) -> tuple[NDArray[np.uint8], Mask]:
        """See ``Table.observe``."""
        return self.view(slots, self._games["mover"][slots]), self._games["open"][slots].view(np.bool_)

    def view(self, slots: Indices, seats: Seats) -> NDArray[np.uint8]:
        """See ``Table.view``."""
        return np.asarray(self._games["views"][slots, seats])

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """See ``Table.step``."""
        places, chosen = np.ascontiguousarray(slots, dtype=np.int64), np.ascontiguousarray(actions, dtype=np.int64)
        illegal = _first_illegal(self._games, places, chosen)
        if illegal >= 0:
            slot = int(slots[illegal])
            raise IllegalAction(int(actions[illegal]), slot, np.flatnonzero(self._games["open"][slot]).tolist())
        self._rules.play(self._games, places, chosen, self._limit)

    def returns(self) -> Floats:
        """See ``Table.returns``."""
        return np.array(self._games["returns"])

    def truncated(self) -> Mask:
        """See ``Table.truncated``."""
        return np.array(self._games["truncated"])

    def history(self, slot: int) -> list[int]:
        """See ``Table.history``."""
        game = self._games[slot]
        moves: list[int] = game["moves"][: game["played"]].tolist()
        return moves


@kernel
def _first_illegal(games: NDArray[np.void], slots: Indices, actions: Indices) -> int:
    """Return the index of the first illegal one of ``actions`` [K], -1 where all are legal."""
    for k in range(len(slots)):
        may = games[slots[k]]["open"]
        if actions[k] < 0 or actions[k] >= len(may) or not may[actions[k]]:
            return k
    return -1


@inlined
def write_move(game: np.void, action: int) -> int:
    """Write down what the seat to move plays; return the number of moves so far."""
    played = int(game["played"]) + 1
    game["moves"][played - 1] = action
    game["played"] = played
    return played


@inlined
def finish(game: np.void, lead: int) -> None:
    """End a game that the first seat wins, draws or loses: its ``lead`` is positive, 0 or negative."""
    game["returns"][0], game["returns"][1] = np.sign(lead), -np.sign(lead)
    game["mover"] = FINISHED
    game["open"][:] = 0
