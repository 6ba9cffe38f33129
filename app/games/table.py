"""The port of the rules: many games at once, seen by the seats to move."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from app.core import HEURISTIC, RANDOM, FlyballError


class UnknownGame(FlyballError):
    """A game that cannot be loaded or played here."""


class IllegalAction(FlyballError):
    """An action that the rules do not allow."""

    def __init__(self, action: int, slot: int, legal: list[int]) -> None:
        super().__init__(
            f"Action {action} in slot {slot} is not among the legal ones {legal}.",
            hint="Choose only where the mask is true, and only in slots whose seat is to move.",
        )


NORMAL = "normal"
"""The level of built-in players that is also called the heuristic."""

FINISHED = -1
"""Stands in for the seat to move when a game is over or has not begun."""

Floats = NDArray[np.float32]
Observations = NDArray[np.uint8] | Floats
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Seats = NDArray[np.int8]
Heuristic = Callable[[Observations, Mask], Floats]
"""A simple player's log-weights of the actions [K, A], from observations [K, D] and masks [K, A]."""


@dataclass(frozen=True, slots=True, eq=False)
class Symmetry:
    """A relabelling of positions and actions that leaves the game the same."""

    name: str  # for instance ``left_right``
    observation: Indices  # [D] feature i of the image is feature ``observation[i]`` of the original
    action: Indices  # [A] action j of the image is action ``action[j]`` of the original; masks are relabelled alike
    image: Indices  # [A] the inverse: original action a becomes ``image[a]``


@dataclass(frozen=True, slots=True, eq=False)
class TableSpec:
    """Description of a game."""

    players: int
    actions: int  # A, legal or not, as the seat to move numbers them
    observation_size: int  # D
    observation_type: type[np.uint8] | type[np.float32]  # uint8 where every feature is a small count
    rules_version: str  # names the rules and their implementation, for instance ``openspiel-2.0.2:othello``
    symmetries: tuple[Symmetry, ...]  # without the identity
    levels: Mapping[str, Heuristic]  # simple strong players, from the weakest on

    @property
    def bots(self) -> tuple[str, ...]:
        """Names of the built-in players, from the weakest on."""
        return (RANDOM, *self.levels)

    @property
    def heuristic(self) -> Heuristic | None:
        """The heuristic player, where there is one."""
        return self.levels.get(self.bot(HEURISTIC))

    def has_bot(self, name: str) -> bool:
        """Tell whether a built-in player has this name."""
        return self.bot(name) in self.bots

    def bot(self, name: str) -> str:
        """Return a player's name among ``bots``: of several levels, the normal one is the heuristic."""
        return NORMAL if name == HEURISTIC and NORMAL in self.levels else name


class Table(Protocol):
    """N games at once, in slots 0 … N - 1. Every slot is empty until it is reset.

    Chance is played by the table from the slot's seed; so are forced moves, those of a seat with a single legal
    action, which is why a seat is asked only when it has a choice. Nothing here reads a clock or global
    randomness: the same seeds and actions give the same games.
    """

    spec: TableSpec

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """Begin a game in each of ``slots`` from its own seed. Raises ``ValueError`` unless each slot has one."""

    def seats(self) -> Seats:
        """Return the seat to move in every slot [N], ``FINISHED`` where none is."""

    def observe(self, slots: Indices) -> tuple[Observations, Mask]:
        """Return what the seats to move in ``slots`` [K] know [K, D] and may do [K, A], from their own perspective."""

    def view(self, slots: Indices, seats: Seats) -> Observations:
        """Return what any seats know [K, D], to move or not, for instance at the end of a truncated game."""

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """Play ``actions`` [K] of the seats to move in ``slots`` [K], all different, then what chance and force decide.

        Raises ``IllegalAction``; no game has then moved on.
        """

    def earned(self, slots: Indices, seats: Seats) -> Floats:  # noqa: ARG002
        """Return what any seats [K] have earned so far on the way to their outcome [K].

        All 0 where only the end is rewarded, as it is unless a table says otherwise. What is earned between two
        decisions is the reward of the first.
        """
        return np.zeros(len(slots), dtype=np.float32)

    def returns(self) -> Floats:
        """Return the outcomes [N, P] in [-1, 1], summing to 0; all 0 where a game is not over, or was truncated."""

    def truncated(self) -> Mask:
        """Tell which games [N] were cut off at the limit of moves."""

    def history(self, slot: int) -> list[int]:
        """Return all actions of the slot's game so far, chance and force included, as the rules number them."""
