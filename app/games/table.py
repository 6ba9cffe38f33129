"""The interface of game rules, for many games at once. Games are seen by the seats to move."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import HEURISTIC, RANDOM, FlyballError, NetworkShape


class UnknownGame(FlyballError, code="usage"):
    """A game that cannot be loaded or played here."""


class IllegalAction(FlyballError):
    """An action that the rules do not allow."""

    def __init__(self, action: int, slot: int, legal: list[int]) -> None:
        super().__init__(
            f"Action {action} in slot {slot} is not among the legal ones {legal}.",
            hint="Choose only where the mask is true, and only in slots whose seat is to move.",
        )


NORMAL = "normal"
"""Level of built-in players that ``HEURISTIC`` names if there are several."""

TOLERANCE = 1e-5
"""Largest difference between equal outcomes, which are float32 in [-1, 1]."""

FINISHED = -1
"""Seat to move when a game is over or has not begun."""

Floats = NDArray[np.float32]
Observations = NDArray[np.uint8] | Floats
Indices = NDArray[np.int64]
Mask = NDArray[np.bool_]
Seats = NDArray[np.int8]
Heuristic = Callable[[Observations, Mask], Floats]
"""A player, as a function from observations [K, D] and masks [K, A] to action log-weights [K, A]."""


def dense(numbers: NDArray[np.integer]) -> Indices:
    """Return contiguous int64, for which the kernels of tables are compiled."""
    return np.ascontiguousarray(numbers, dtype=np.int64)


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
    actions: int  # A, legal or not, in the numbers of the seat to move
    observation_size: int  # D
    observation_type: type[np.uint8] | type[np.float32]  # uint8 where every feature is a small count
    rules_version: str  # names the rules and their implementation, for instance ``openspiel-2.0.2:othello``
    symmetries: tuple[Symmetry, ...]  # without the identity
    levels: Mapping[str, Heuristic]  # heuristic players, weakest first
    planes: tuple[int, int, int] | None = None  # (C, H, W): the first C x H x W features; any others are scalars
    scale: float | tuple[float, ...] = 1.0  # divisor of the features inside the network, or one a feature [D]
    decisive: bool = False  # each finished game is drawn, or has one winner with outcome 1 and equal losers
    searchable: bool = False  # no chance, nothing hidden, and tables can ``copy_from``: moves can be found by search
    action_planes: int = 0  # P, the kinds of actions of a cell; 0: the actions do not belong to cells
    action_places: Indices | None = None  # [A] where each action lies in H x W x P; any place if it is never legal
    encoding: str = ""  # names the observations if a game has several; models of another encoding do not fit
    outcome_scale: float = 1.0  # the game's own units, such as chips or points, in an outcome of 1
    lowest_outcome: float = -1.0  # bounds of a seat's outcome, as ``Table.returns`` has it: within [-1, 1]
    highest_outcome: float = 1.0
    dealt: bool = False  # cards, dice or hidden moves make games differ: evaluations have no random openings by default

    @property
    def shape(self) -> NetworkShape:
        """The game's shape, as a network sees it."""
        sizes = self.observation_size, self.actions, self.planes, self.scale
        return NetworkShape(*sizes, self.action_planes, self.action_places, self.encoding)

    @property
    def bots(self) -> tuple[str, ...]:
        """Names of the built-in players, weakest first."""
        return (RANDOM, *self.levels)

    @property
    def heuristic(self) -> Heuristic | None:
        """The heuristic player, None if the game has none."""
        return self.levels.get(self.bot(HEURISTIC))

    def bot(self, name: str) -> str:
        """Return a player's name as in ``bots``. ``HEURISTIC`` becomes ``NORMAL`` if the game has that level."""
        return NORMAL if name == HEURISTIC and NORMAL in self.levels else name


class Table(Protocol):
    """N games at once, in slots 0 … N - 1.

    Every slot is empty until it is reset.

    The table itself plays chance, from the slot's seed, and forced moves, where a seat has a single legal action. So a
    seat to move always has a choice. Tables read no clock and no global randomness: the same seeds and actions give
    the same games.
    """

    spec: TableSpec

    def reset(self, slots: Indices, seeds: Sequence[int]) -> None:
        """Begin a game in each of ``slots`` from its own seed. Raises ``ValueError`` for too many or few seeds."""

    def seats(self) -> Seats:
        """Return the seat to move in every slot [N], or ``FINISHED``."""

    def observe(self, slots: Indices) -> tuple[Observations, Mask]:
        """Return observations [K, D] and legal masks [K, A] of the seats to move in ``slots`` [K]."""

    def view(self, slots: Indices, seats: Seats) -> Observations:
        """Return observations [K, D] of any seats [K], to move or not, also after the end of a truncated game."""

    def step(self, slots: Indices, actions: NDArray[np.int32]) -> None:
        """Play ``actions`` [K] in distinct ``slots`` [K], then chance and forced moves. Raises ``IllegalAction``."""

    def copy_from(self, other: Self, sources: Indices, targets: Indices) -> None:  # noqa: ARG002
        """Copy the games in slots ``sources`` [K] into ``targets`` [K].

        ``other`` is a table of the same game, perhaps this one. Targets are distinct and not among the
        sources. Only searchable games can be copied.
        """
        raise UnknownGame(
            f"Games of {self.spec.rules_version} cannot be copied.", hint="Its spec must not say that it is searchable."
        )

    def branch(self, sources: Indices, actions: NDArray[np.int32], targets: Indices) -> tuple[Seats, Floats]:
        """Play legal ``actions`` [K] in copies of games.

        The effect is that of ``copy_from`` with this table, then ``step``. Return the seats to move in the copies [K],
        and the outcomes of those that are over [K, P].
        """
        self.copy_from(self, sources, targets)
        self.step(targets, actions)
        seats = self.seats()[targets]
        if (seats == FINISHED).any():
            return seats, self.returns()[targets]
        return seats, np.zeros((len(targets), self.spec.players), dtype=np.float32)

    def earned(self, slots: Indices, seats: Seats) -> Floats:  # noqa: ARG002
        """Return the rewards [K] of any seats [K] so far.

        By default only a game's end is rewarded, so all are 0. The reward of a decision is the difference to the seat's
        next decision.
        """
        return np.zeros(len(slots), dtype=np.float32)

    def returns(self) -> Floats:
        """Return outcomes [N, P] in [-1, 1], summing to 0.

        All are 0 for unfinished and truncated games. Times ``spec.outcome_scale``, they are in the game's own units.
        """

    def truncated(self) -> Mask:
        """Return which games [N] were cut off at the move limit."""

    def history(self, slot: int) -> list[int]:
        """Return a game's actions in the rules' numbers. Chance and forced moves are included."""
