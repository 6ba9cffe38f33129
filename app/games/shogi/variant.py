"""Shogi on 9 x 9 squares and minishogi on 5 x 5.

Kernels read these games as tables.

Everything is seen by the seat to move, which plays up the board: squares are numbered row by row from the corner at
its far left. So Black, who moves first, sees rank a as row 0 and file 9 (or 5) as column 0, and White sees the board
turned by 180 degrees. Own pieces are positive codes, the opponent's negative ones, and 0 is an empty square.
"""

from dataclasses import dataclass, field

import numpy as np

PAWN, LANCE, KNIGHT, SILVER, GOLD, BISHOP, ROOK, KING = range(1, 9)
PROMOTED = np.array([0, 9, 10, 11, 12, 0, 13, 14, 0, 0, 0, 0, 0, 0, 0], dtype=np.int8)
"""Code of a piece when it promotes; 0: it does not."""
BASE = np.array([0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4, 6, 7], dtype=np.int8)
"""Code of a piece without its promotion, as in a hand."""
CODES = len(BASE)
LETTERS = " PLNSGBRK"

KINDS = 7
"""Most kinds of pieces in a hand; kind ``code - 1``."""
MOST_CELLS = 81
MOST_IN_HAND = 18
MOST_LEGAL = 600
"""Upper bound of the legal moves of a position; 593 are possible. Positions have the pieces of one set."""

_KNIGHT_JUMPS = ((-2, -1), (-2, 1))
_DIRECTIONS = ((-1, 0), (-1, 1), (0, 1), (1, 1), (1, 0), (1, -1), (0, -1), (-1, -1), *_KNIGHT_JUMPS)
"""Rows and columns of a step in each direction, clockwise from straight on; the knight's jumps come last."""
DIRECTIONS = len(_DIRECTIONS)
RAYS = 8
"""Number of directions in which pieces slide; direction d turned by 180 degrees is d + 4, modulo 8."""
HALF_TURN = 4

_FORWARD, _STRAIGHT, _DIAGONAL = 0b1, 0b01010101, 0b10101010
_GOLD = _STRAIGHT | 0b10000010
STEPS = np.array(
    [
        *(0, _FORWARD, 0, 0b11 << RAYS, _DIAGONAL | _FORWARD, _GOLD, 0, 0, _STRAIGHT | _DIAGONAL),
        *(_GOLD, _GOLD, _GOLD, _GOLD, _STRAIGHT, _DIAGONAL),
    ],
    dtype=np.int64,
)
"""Sets of bits: directions in which a piece steps or jumps once."""
SLIDES = np.array([0, 0, _FORWARD, 0, 0, 0, _DIAGONAL, _STRAIGHT, 0, 0, 0, 0, 0, _DIAGONAL, _STRAIGHT], dtype=np.int64)
"""Sets of bits: directions in which a piece slides over empty squares."""

TABLES = np.dtype(
    [
        ("side", np.int64),
        ("cells", np.int64),
        ("zone", np.int64),  # rows in which pieces promote
        ("kinds", np.int64),  # number of kinds in a hand
        ("codes", np.int8, KINDS),  # the code of each of these
        ("step", np.int8, (MOST_CELLS, DIRECTIONS)),  # the square one step away; -1: beyond the edge
        ("drops", np.int64),  # the first action that is a drop
        ("points", np.int64, 2),  # that each seat needs to declare a win; 0: nobody may
        ("pieces", np.int64),  # pieces that have to be in the camp for it, apart from the king
    ],
    align=True,
)


@dataclass(frozen=True, slots=True, eq=False)
class Variant:
    """A game of the family.

    Attributes:
        tables: the scalar of type ``TABLES`` for kernels.
        actions: moves from square to other square, plain or promoting, then drops of each kind on each square.
    """

    name: str
    side: int  # squares in a row
    zone: int  # rows in which pieces promote; the opponent's camp
    sfen: str  # the first position
    counts: dict[int, int]  # pieces of each kind in the set, by code
    declaration: tuple[int, int] | None = None  # points with which Black or White may declare a win
    tables: np.void = field(init=False)
    actions: int = field(init=False)

    def __post_init__(self) -> None:
        """Fill the tables."""
        side, cells, codes = self.side, self.cells, self.codes
        tables = np.zeros((), dtype=TABLES)
        tables["side"], tables["cells"], tables["zone"] = side, cells, self.zone
        tables["kinds"], tables["codes"][: len(codes)] = len(codes), codes
        rows, columns = np.divmod(np.arange(cells), side)
        for direction, (down, right) in enumerate(_DIRECTIONS):
            row, column = rows + down, columns + right
            inside = (row >= 0) & (row < side) & (column >= 0) & (column < side)
            tables["step"][:cells, direction] = np.where(inside, row * side + column, -1)
        tables["drops"] = cells * (cells - 1) * 2
        tables["points"], tables["pieces"] = self.declaration or (0, 0), 10
        object.__setattr__(self, "tables", tables[()])
        object.__setattr__(self, "actions", int(tables["drops"]) + cells * len(codes))

    @property
    def cells(self) -> int:
        """Squares of the board."""
        return self.side * self.side

    @property
    def codes(self) -> list[int]:
        """Codes of the pieces in a hand, in the order of drops."""
        return [code for code in self.counts if code != KING]

    def move(self, cell: int, to: int, *, promotes: bool) -> int:
        """Return the action of a move from one square to another."""
        return (cell * (self.cells - 1) + to - (to > cell)) * 2 + promotes

    def drop(self, code: int, to: int) -> int:
        """Return the action of a drop."""
        return int(self.tables["drops"]) + to * len(self.codes) + self.codes.index(code)

    def parts(self, action: int) -> tuple[int, int, bool, int]:
        """Return an action's origin (-1: a drop) and target, whether it promotes, and the dropped piece (0: none)."""
        if action >= (drops := int(self.tables["drops"])):
            to, kind = divmod(action - drops, len(self.codes))
            return -1, to, False, self.codes[kind]
        cell, rest = divmod(action, 2 * (self.cells - 1))
        to = rest // 2
        return cell, to + (to >= cell), bool(rest % 2), 0


SHOGI = Variant(
    name="shogi",
    side=9,
    zone=3,
    sfen="lnsgkgsnl/1r5b1/ppppppppp/9/9/9/PPPPPPPPP/1B5R1/LNSGKGSNL b - 1",
    counts={PAWN: 18, LANCE: 4, KNIGHT: 4, SILVER: 4, GOLD: 4, BISHOP: 2, ROOK: 2, KING: 2},
    declaration=(28, 27),
)
MINISHOGI = Variant(
    name="minishogi",
    side=5,
    zone=1,
    sfen="rbsgk/4p/5/P4/KGSBR b - 1",
    counts={PAWN: 2, SILVER: 2, GOLD: 2, BISHOP: 2, ROOK: 2, KING: 2},
)
VARIANTS = {variant.name: variant for variant in (SHOGI, MINISHOGI)}
