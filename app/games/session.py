"""A game as its seed and its decisions: whoever repeats them is at the same position."""

from dataclasses import dataclass, replace
from typing import Self

import numpy as np

from flyball.app.config import GameConfig
from flyball.app.core import derive_seed
from flyball.app.games.catalogue import open_table
from flyball.app.games.table import FINISHED, IllegalAction, Table

SLOT = np.zeros(1, dtype=np.int64)
"""The only slot of a session's table."""


@dataclass(frozen=True, slots=True)
class Standing:
    """A session's position.

    Attributes:
        seat: to move, or ``FINISHED``.
        legal: actions of the seat to move, in its numbers.
        history: as ``Table.history`` returns it.
        returns: each seat's outcome; all are 0 before the end.
        truncated: whether the game was cut off at the move limit.
    """

    seat: int
    legal: tuple[int, ...]
    history: tuple[int, ...]
    returns: tuple[float, ...]
    truncated: bool


@dataclass(frozen=True, slots=True)
class GameSession:
    """A game between any players.

    Attributes:
        config: the game's configuration.
        seed: of its chance.
        actions: chosen so far, each in the numbers of the seat that chose it. Chance and forced moves are left out.
    """

    config: GameConfig
    seed: int
    actions: tuple[int, ...] = ()

    def table(self) -> Table:
        """Return a new table whose only slot is at the session's position. Raises ``IllegalAction``."""
        table = open_table(self.config, 1)
        table.reset(SLOT, [derive_seed(self.seed, "session")])
        for action in self.actions:
            table.step(SLOT, np.array([action], dtype=np.int32))
        return table

    def standing(self) -> Standing:
        """Return the session's position. Raises ``IllegalAction``."""
        table = self.table()
        seat = int(table.seats()[0])
        legal = () if seat == FINISHED else tuple(np.flatnonzero(table.observe(SLOT)[1][0]).tolist())
        returns = tuple(table.returns()[0].tolist())
        return Standing(seat, legal, tuple(table.history(0)), returns, bool(table.truncated()[0]))

    def after(self, action: int) -> Self:
        """Return the session after one more action. Raises ``IllegalAction``."""
        legal = self.standing().legal
        if action not in legal:
            raise IllegalAction(action, 0, list(legal))
        return replace(self, actions=(*self.actions, action))
