"""Observations of a seat, and the numbers of its actions.

The planes of an observation, each of side x side squares:

1. a plane for each kind of own pieces (P, L, N, S, G, B, R, K), then for each promoted kind (P, L, N, S, B, R);
2. the same for the opponent's pieces;
3. own pieces in hand, a constant plane for each kind, as a share of the set (of the 18 pawns in Shogi, for instance);
4. the same for the opponent's hand;
5. a constant plane for the seat, 1 for Black;
6. a constant plane for the number of moves so far, as a share of the move limit;
7. with ``repetition_planes``, four planes of which one is 1: the position's first, second, third or fourth occurrence;
   then a plane for check;
8. in Shogi an empty plane or two, so that there are 46 planes, or 50 with ``repetition_planes``.

A 1 is written as ``UNIT``, which is divisible by the size of each set, and by which a network divides. So hands are
exact, and the number of moves is rounded down to a 252nd of the limit.
"""

from dataclasses import dataclass, field
from functools import cache

import numpy as np
from numpy.typing import NDArray

from flyball.app.core.kernels import kernel
from flyball.app.games.shogi.rules import OCCURRENCES, Position
from flyball.app.games.shogi.variant import CODES, KINDS, KING, KNIGHT, PROMOTED, RAYS, SHOGI, Variant
from flyball.app.games.table import Indices, Seats

UNIT = 252

LAYOUT = np.dtype(
    [
        ("planes", np.int64),
        ("own", np.int64, CODES),  # plane of each own piece
        ("theirs", np.int64),  # from the plane of an own piece to that of the opponent's
        ("hands", np.int64),  # the first plane of the own hand
        ("worth", np.int64, KINDS),  # of a piece in hand, by code - 1
        ("seat", np.int64),
        ("repetition", np.int64),  # the first of these planes; 0: none
        ("limit", np.int64),  # most moves of a game
    ],
    align=True,
)


@dataclass(frozen=True, slots=True, eq=False)
class Layout:
    """The planes of a variant's observations; ``tables`` is the scalar for kernels."""

    variant: Variant
    repetition_planes: bool
    limit: int  # most moves of a game
    planes: int = field(init=False)
    tables: np.void = field(init=False)

    def __post_init__(self) -> None:
        """Number the planes."""
        variant, tables = self.variant, np.zeros((), dtype=LAYOUT)
        plain = [*variant.codes, KING]
        own = [*plain, *(int(PROMOTED[code]) for code in plain if PROMOTED[code])]
        tables["own"][own], tables["theirs"] = np.arange(len(own)), len(own)
        tables["hands"] = 2 * len(own)
        tables["worth"][[code - 1 for code in variant.codes]] = [UNIT // variant.counts[c] for c in variant.codes]
        tables["seat"] = 2 * len(own) + 2 * len(variant.codes)
        planes = int(tables["seat"]) + 2
        if self.repetition_planes:
            tables["repetition"] = planes
            planes += OCCURRENCES + 1
        if variant is SHOGI:
            planes += 1 if self.repetition_planes else 2
        tables["planes"], tables["limit"] = planes, self.limit
        object.__setattr__(self, "planes", planes)
        object.__setattr__(self, "tables", tables[()])


@kernel
def see(  # noqa: C901 - plane after plane
    tables: np.void, layout: np.void, games: NDArray[np.void], slots: Indices, seats: Seats
) -> NDArray[np.uint8]:
    """Return the observations [K, D] of ``seats`` [K] in ``slots`` [K]."""
    cells, kinds, seat_plane = tables["cells"], tables["kinds"], layout["seat"]
    out = np.zeros((len(slots), layout["planes"], cells), dtype=np.uint8)
    for k in range(len(slots)):
        game, planes = games[slots[k]], out[k]
        waiting = game["seat"] != seats[k]
        for cell in range(cells):
            piece = game["board"][cell]
            if piece:
                square = cells - 1 - cell if waiting else cell
                own = (piece > 0) != waiting
                planes[layout["own"][abs(piece)] + (0 if own else layout["theirs"]), square] = UNIT
        for owner in range(2):
            for kind in range(kinds):
                code = tables["codes"][kind]
                count = game["hands"][owner ^ waiting, code - 1]
                if count:
                    planes[layout["hands"] + owner * kinds + kind] = count * layout["worth"][code - 1]
        if seats[k] == 0:
            planes[seat_plane] = UNIT
        planes[seat_plane + 1] = game["played"] * UNIT // layout["limit"]
        if layout["repetition"]:
            planes[layout["repetition"] + min(game["occurrences"], OCCURRENCES) - 1] = UNIT
            if game["checked"] and not waiting:
                planes[layout["repetition"] + OCCURRENCES] = UNIT
    return out.reshape(len(slots), layout["planes"] * cells)


@kernel
def recall(tables: np.void, layout: np.void, obs: NDArray[np.uint8], game: Position) -> None:
    """Rebuild in ``game`` the position that a seat to move sees. Only board, hands and seat are written."""
    cells, kinds = tables["cells"], tables["kinds"]
    board, hands = game["board"], game["hands"]
    board[:cells] = 0
    hands[:] = 0
    for code in range(1, CODES):
        plane = layout["own"][code]
        if not plane and code > 1:
            continue  # the variant has no such piece
        for cell in range(cells):
            if obs[plane * cells + cell]:
                board[cell] = code
            elif obs[(plane + layout["theirs"]) * cells + cell]:
                board[cell] = -code
    for owner in range(2):
        for kind in range(kinds):
            code = tables["codes"][kind]
            hands[owner, code - 1] = obs[(layout["hands"] + owner * kinds + kind) * cells] // layout["worth"][code - 1]
    game["seat"] = 0 if obs[layout["seat"] * cells] else 1


@dataclass(frozen=True, slots=True, eq=False)
class Numbering:
    """Numbers of actions, as a relabelling of those of ``Variant``."""

    actions: int
    number: Indices  # the number of each of the variant's actions, -1: no piece moves so
    action: Indices  # the inverse; -1: beyond the edge


def plain_numbers(variant: Variant) -> Numbering:
    """Return the variant's own numbers. Moves come first, by from square, to square and promotion, then drops."""
    same = np.arange(variant.actions)
    return Numbering(variant.actions, same, same)


@cache
def direction_numbers(variant: Variant) -> Numbering:
    """Return numbers of a square and a way to move.

    There are 81 x 139 in Shogi (Silver et al. 2017). The ways are eight directions by distance and the knight's two
    jumps, the same with promotion, and drops of each kind. The square is where a piece comes from, or where it is
    dropped.
    """
    side, cells, kinds = variant.side, variant.side * variant.side, len(variant.codes)
    reach, jumps = side - 1, 2 * (KNIGHT in variant.counts)
    plain = RAYS * reach + jumps
    ways = 2 * plain + kinds
    number = np.full(variant.actions, -1, dtype=np.int64)
    step, drops = variant.tables["step"], int(variant.tables["drops"])
    for cell in range(cells):
        for direction in range(RAYS + jumps):
            square, way = int(step[cell, direction]), direction * reach if direction < RAYS else plain - jumps
            way += 0 if direction < RAYS else direction - RAYS
            while square >= 0:
                action = (cell * (cells - 1) + square - (square > cell)) * 2
                number[action], number[action + 1] = cell * ways + way, cell * ways + plain + way
                square, way = int(step[square, direction]) if direction < RAYS else -1, way + 1
        number[drops + cell * kinds : drops + (cell + 1) * kinds] = cell * ways + 2 * plain + np.arange(kinds)
    inverse = np.full(cells * ways, -1, dtype=np.int64)
    inverse[number[number >= 0]] = np.flatnonzero(number >= 0)
    return Numbering(cells * ways, number, inverse)


@cache
def arrival_indices(variant: Variant) -> tuple[int, Indices]:
    """Return the number W of ways to move, and for each of the variant's actions the index square * W + way.

    The ways are those of ``direction_numbers``. The square is where a piece arrives, because there a network sees what
    is taken and who could take back. The index of an action that no piece can make has no meaning.
    """
    directions, cells, kinds = direction_numbers(variant), variant.cells, len(variant.codes)
    ways, drops = directions.actions // cells, int(variant.tables["drops"])
    cell, rest = np.divmod(np.arange(drops), 2 * (cells - 1))
    square = rest // 2
    arrivals = np.concatenate((square + (square >= cell), np.arange(cells * kinds) // kinds))
    return ways, arrivals * ways + directions.number % ways
