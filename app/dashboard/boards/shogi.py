"""Shogi and minishogi on a wooden board. Pieces are pentagons with their characters; the hands are at the sides."""

from flyball.app.dashboard.boards.grids import described
from flyball.app.dashboard.boards.svg import Box, box, disc, drawing, label, polygon, shift, stroke
from flyball.app.games.positions import ShogiPosition
from flyball.app.games.shogi.sfen import letters
from flyball.app.games.shogi.variant import BISHOP, GOLD, KING, KNIGHT, LANCE, PAWN, PROMOTED, ROOK, SILVER

CELL = 56.0
EDGE = 28.0
TRAY = 74.0
"""Width of the tray for a hand."""

PROMOTES = "+"
"""Spot of a move that promotes its piece."""

RANKS = "一二三四五六七八九"
CHARACTERS = {
    PAWN: "歩",
    LANCE: "香",
    KNIGHT: "桂",
    SILVER: "銀",
    GOLD: "金",
    BISHOP: "角",
    ROOK: "飛",
    KING: "玉",
    9: "と",
    10: "杏",
    11: "圭",
    12: "全",
    13: "馬",
    14: "龍",
}
"""One character for each code of ``flyball.app.games.shogi.variant``."""

WHITE_KING = "王"
FIRST_PROMOTED = min(int(code) for code in PROMOTED if code)
SIZES = {PAWN: 0.84, LANCE: 0.88, KNIGHT: 0.9, SILVER: 0.94, GOLD: 0.94, BISHOP: 0.98, ROOK: 0.98, KING: 1.0}
"""Sizes of pieces, as shares of the king's."""


def shogi(position: ShogiPosition) -> str:
    """Draw the board as Black sees it. White's hand is at the left and Black's at the right."""
    side = position.variant.side
    left, height = TRAY + EDGE, side * CELL + 2 * EDGE
    width = side * CELL + 2 * (TRAY + EDGE)
    parts = _board(position)
    places: tuple[list[str], list[str]] = [], []
    for row, codes in enumerate(position.pieces.tolist()):
        for column, code in enumerate(codes):
            if code:
                x, y = left + (column + 0.5) * CELL, EDGE + (row + 0.5) * CELL
                parts.append(_piece(x, y, abs(code), white=code < 0))
                places[code < 0].append(f"{letters(abs(code))} {side - column}{'abcdefghi'[row]}")
    parts += _tray(0, height, position.hands[1], white=True)
    parts += _tray(width - TRAY, height, position.hands[0], white=False)
    for where, hand in zip(places, position.hands, strict=True):
        where += [f"{count} {letters(code)} in hand" for code, count in hand.items()]
    title = {9: "Shogi", 5: "Minishogi"}[side]
    return drawing(width, height, title, described(("Black", "White"), places), *parts)


def spot_box(position: ShogiPosition, seat: int, name: str) -> Box | None:
    """Return left, top, width and height of a square such as ``7g``, or of a seat's pieces in hand such as ``P*``."""
    side = position.variant.side
    if name.endswith("*"):
        return _in_hand(position, seat, name[0])
    if name == PROMOTES:
        return None
    column, row = side - int(name[0]), "abcdefghi".index(name[1])
    return TRAY + EDGE + column * CELL, EDGE + row * CELL, CELL, CELL


def _in_hand(position: ShogiPosition, seat: int, letter: str) -> Box:
    """Return the box of one kind of pieces in a seat's hand."""
    height, width = position.variant.side * CELL + 2 * EDGE, position.variant.side * CELL + 2 * (TRAY + EDGE)
    number = [letters(code) for code in sorted(position.hands[seat])].index(letter)
    at = _from_end(number, height)
    return (4 if seat else width - TRAY + 4), (at if seat else height - at) - CELL / 2, TRAY - 8, CELL


def _from_end(number: int, height: float) -> float:
    """Return how far a kind of pieces lies from its tray's end."""
    return (number + 0.5) * min(CELL * 1.05, (height - 8) / 7) + 6


def _board(position: ShogiPosition) -> list[str]:
    """Return the empty board, with the squares of the last move."""
    side, zone = position.variant.side, position.variant.zone
    board, left = side * CELL, TRAY + EDGE
    parts = [box(TRAY, 0, board + 2 * EDGE, board + 2 * EDGE, "wood", 6)]
    parts += [box(left + column * CELL, EDGE + row * CELL, CELL, CELL, "last-square") for row, column in position.last]
    for at in (k * CELL for k in range(side + 1)):
        parts.append(stroke(left + at, EDGE, left + at, EDGE + board, "line"))
        parts.append(stroke(left, EDGE + at, left + board, EDGE + at, "line"))
    if zone > 1:  # minishogi has no dots
        at_zones = (zone, side - zone)
        parts += [disc(left + column * CELL, EDGE + row * CELL, 3.5, "dot") for row in at_zones for column in at_zones]
    for k in range(side):
        middle = (k + 0.5) * CELL
        parts.append(label(str(side - k), left + middle, EDGE / 2, 14, "label on-wood"))
        parts.append(label(RANKS[k], left + board + EDGE / 2, EDGE + middle, 14, "label on-wood"))
    return parts


def _piece(x: float, y: float, code: int, *, white: bool) -> str:
    promoted = code >= FIRST_PROMOTED
    size = CELL * 0.46 * SIZES[code if not promoted else next(c for c in SIZES if PROMOTED[c] == code)]
    shape = [(0, -1.0), (0.62, -0.72), (0.84, 0.92), (-0.84, 0.92), (-0.62, -0.72)]
    outline = [(across * size, down * size) for across, down in shape]
    character = WHITE_KING if code == KING and white else CHARACTERS[code]
    text = label(character, 0, size * 0.16, size * 1.12, "kanji promoted" if promoted else "kanji")
    return shift(x, y, polygon(outline, "koma"), text, turned=white)


def _tray(x: float, height: float, hand: dict[int, int], *, white: bool) -> list[str]:
    """Return a hand in its tray. Black's pieces begin at the bottom; White's begin at the top and are turned."""
    parts = [box(x + 4, 0, TRAY - 8, height, "tray", 6)]
    for k, (code, count) in enumerate(sorted(hand.items())):
        down = _from_end(k, height)
        at = down if white else height - down
        parts.append(_piece(x + TRAY * (0.5 if count == 1 else 0.38), at, code, white=white))
        if count > 1:
            parts.append(label(str(count), x + TRAY * 0.8, at, 17, "label on-wood"))
    return parts
