"""Codecs of game tensors and actions to the mover's perspective."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import HEURISTIC
from flyball.app.games.table import Floats, Heuristic, Indices, Observations, Seats, Symmetry, TableSpec

Encode = Callable[[Floats, Seats], Observations]


@dataclass(frozen=True, slots=True, eq=False)
class Codec:
    """A game's encoding from the observing seat's perspective. Every seat sees the game facing the same way."""

    size: int  # features of an observation, D
    encode: Encode  # the game's tensors [N, R] and the observing seats [N] to observations [N, D]
    to_game: Indices  # [P, A] the game's number for each action of each seat
    symmetries: tuple[Symmetry, ...] = ()  # relabellings in the mover's perspective, without the identity
    kind: type[np.uint8] | type[np.float32] = np.uint8  # what ``encode`` returns
    # the divisor of the game's returns (see ``Rules.outcome``); None: derived from the range of its utility
    scale: float | None = None
    uniform_chance: bool = False  # chance outcomes are equally likely, so no probabilities are listed
    heuristic: Heuristic | None = None  # the heuristic player, in the same perspective
    planes: tuple[int, int, int] | None = None  # see ``TableSpec.planes``
    from_game: Indices = field(init=False)  # [P, the game's actions] inverse of ``to_game``; -1: not the seat's

    def __post_init__(self) -> None:
        """Invert ``to_game``."""
        inverse = np.full((len(self.to_game), int(self.to_game.max()) + 1), -1, dtype=np.int64)
        np.put_along_axis(inverse, self.to_game, np.arange(self.to_game.shape[1])[None, :], axis=1)
        object.__setattr__(self, "from_game", inverse)

    def spec(
        self,
        rules_version: str,
        encoding: str = "",
        *,
        searchable: bool,
        decisive: bool,
        outcomes: tuple[float, ...] = (1.0, -1.0, 1.0),
    ) -> TableSpec:
        """Return the game's description; ``outcomes`` are the scale, the lowest and the highest (see ``TableSpec``)."""
        scale, lowest, highest = outcomes
        players, actions = self.to_game.shape
        levels = {} if self.heuristic is None else {HEURISTIC: self.heuristic}
        return TableSpec(
            players,
            actions,
            self.size,
            self.kind,
            rules_version,
            self.symmetries,
            levels,
            self.planes,
            decisive=decisive,
            searchable=searchable,
            encoding=encoding,
            outcome_scale=scale,
            lowest_outcome=lowest,
            highest_outcome=highest,
            dealt=not searchable,
        )


def identical(players: int, actions: int) -> Indices:
    """Return a ``to_game`` [P, A] that keeps the game's own numbers."""
    return np.tile(np.arange(actions), (players, 1))


def gather(views: Indices) -> Encode:
    """Return an encoder that picks the features of the game's tensor that ``views`` [P, D] has for each seat."""
    if (views == views[0]).all():
        return lambda raw, _seats: raw[:, views[0]].astype(np.uint8)

    def encode(raw: Floats, seats: Seats) -> NDArray[np.uint8]:
        small = raw.astype(np.uint8)
        out = np.empty((len(raw), views.shape[1]), dtype=np.uint8)
        for seat in np.unique(seats).tolist():  # all rows of a seat at once: three times as fast as row by row
            rows = np.flatnonzero(seats == seat)
            out[rows] = small[rows].take(views[seat], axis=1)
        return out

    return encode


def planes(order: Sequence[int], cells: Indices) -> Indices:
    """Return the feature indices of planes in ``order``. Each plane has its cells in the order ``cells``."""
    return (np.asarray(order, dtype=np.int64)[:, None] * len(cells) + cells[None, :]).ravel()


TURNS: dict[str, Callable[[Indices], Indices]] = {
    "left_right": lambda grid: grid[:, ::-1],
    "up_down": lambda grid: grid[::-1, :],
    "half_turn": lambda grid: grid[::-1, ::-1],
    "transpose": lambda grid: grid.T,
    "anti_transpose": lambda grid: grid[::-1, ::-1].T,
    "quarter_turn": np.rot90,
    "three_quarter_turn": lambda grid: np.rot90(grid, 3),
}
"""Symmetries of a square, as operations on a grid of cell numbers. The identity is left out."""


def turn(name: str, rows: int, columns: int) -> Indices:
    """Return the original cell of each cell of a turned grid. The result is [rows x columns]."""
    return np.ascontiguousarray(TURNS[name](np.arange(rows * columns).reshape(rows, columns))).ravel()


def symmetry(name: str, observation: Indices, action: Indices) -> Symmetry:
    """Build a symmetry from the source indices of its features and actions."""
    return Symmetry(name, observation, np.ascontiguousarray(action), np.argsort(action))


def square_symmetries(names: Iterable[str], side: int, count: int, *, passing: bool = False) -> tuple[Symmetry, ...]:
    """Build symmetries of ``count`` square planes. Actions are cells, then a pass if ``passing``."""

    def build(name: str) -> Symmetry:
        cells = turn(name, side, side)
        return symmetry(name, planes(range(count), cells), np.append(cells, side * side) if passing else cells)

    return tuple(map(build, names))
