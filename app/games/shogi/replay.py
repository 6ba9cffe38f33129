"""One game of Shogi or minishogi, move by move."""

import numpy as np
from numpy.typing import NDArray

from flyball.app.games.shogi.rules import WORKSPACE, Position, new_lists, play, update_game
from flyball.app.games.shogi.sfen import parse_sfen, write_move
from flyball.app.games.shogi.variant import Variant
from flyball.app.games.table import FINISHED, IllegalAction

LONGEST = 4096
"""Largest move limit of any game."""


class Replay:
    """One game of at most ``limit`` moves.

    Unlike a table, it does not play forced moves by itself.

    Actions have the variant's numbers, as the seat to move counts. ``sfen`` is the first position, by default the
    usual one. ``lists`` are those of the rules' kernels. Raises ``BadNotation``.
    """

    def __init__(self, variant: Variant, sfen: str = "", limit: int = LONGEST) -> None:
        self.variant, self.lists = variant, new_lists(1, limit)
        self.position: Position = parse_sfen(sfen or variant.sfen, variant)
        self._work = np.zeros(1, dtype=WORKSPACE)[0]
        update_game(variant.tables, self.position, self.lists, 0, self._work)

    @property
    def seat(self) -> int:
        """The seat to move, or next to move in a finished game."""
        return int(self.position["seat"])

    @property
    def over(self) -> bool:
        """True once the game is over."""
        return bool(self.position["over"])

    @property
    def winner(self) -> int:
        """The seat that has won, or ``FINISHED``."""
        return int(self.position["winner"])

    @property
    def returns(self) -> list[float]:
        """The outcome of each seat."""
        return [0.0, 0.0] if self.winner == FINISHED else [1.0 if seat == self.winner else -1.0 for seat in range(2)]

    @property
    def legal(self) -> NDArray[np.int64]:
        """The legal actions, ascending; none in a finished game."""
        return self.lists.legal[0, : self.position["legal"]].astype(np.int64)

    @property
    def history(self) -> list[int]:
        """The actions so far."""
        played: list[int] = self.lists.moves[0, : self.position["played"]].tolist()
        return played

    @property
    def moves(self) -> dict[str, int]:
        """The legal actions by their moves in USI."""
        return {write_move(action, self.seat, self.variant): action for action in self.legal.tolist()}

    def play(self, action: int) -> None:
        """Play an action. Raises ``IllegalAction``."""
        if action not in self.legal:
            raise IllegalAction(action, 0, self.legal.tolist())
        play(self.variant.tables, self.position, self.lists, 0, action)
        update_game(self.variant.tables, self.position, self.lists, 0, self._work)
