"""A game as ratings see it: who sat where, and what each seat got."""

from collections.abc import Sequence
from typing import NamedTuple, Self

from app.core import FlyballError


class UnequalSeats(FlyballError):
    """A game has not as many outcomes as seats, or fewer than two."""


class PlayedGame(NamedTuple):
    """One finished game. Seats are mapped to agents before anything is rated: powers and colours have no rating.

    Attributes:
        agents: who sat in each seat; one agent may have several, as in cluster sampling.
        returns: what each seat got; more is better, and equal is a tie.
    """

    agents: tuple[str, ...]
    returns: tuple[float, ...]

    @classmethod
    def of(cls, agents: Sequence[str], returns: Sequence[float]) -> Self:
        """Build a game. Raises ``UnequalSeats``."""
        if not 2 <= len(agents) == len(returns):
            raise UnequalSeats(
                f"A game of {len(agents)} agents has {len(returns)} outcomes.",
                hint="Name the agent of every seat, at least two, and give the outcome of each in the same order.",
            )
        return cls(tuple(agents), tuple(map(float, returns)))

    @classmethod
    def duel(cls, first: str, second: str, score: float) -> Self:
        """Build a game of two: ``score`` of the first is 1 won, 1/2 drawn, 0 lost."""
        return cls((first, second), (score, 1 - score))
