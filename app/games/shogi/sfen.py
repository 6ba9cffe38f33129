"""SFEN and USI: positions and moves as text.

Source: the Universal Shogi Interface (http://shogidokoro.starfree.jp/usi.html). Minishogi is written alike, with files
1 to 5 and ranks a to e.
"""

import re
from collections import Counter
from collections.abc import Iterator

import numpy as np

from flyball.app.core import FlyballError
from flyball.app.games.shogi.rules import POSITION, Position, attacked, find_king
from flyball.app.games.shogi.variant import BASE, CODES, KING, KNIGHT, LANCE, LETTERS, PAWN, Variant

SEATS = "bw"


class BadNotation(FlyballError):
    """A text that is no position, move or game."""


def letters(code: int) -> str:
    """Return the letters of a piece, for instance ``+P``."""
    base = int(BASE[code])
    return LETTERS[code] if base == code else "+" + LETTERS[base]


_CODE_OF = {letters(code): code for code in range(1, CODES)}


def parse_sfen(text: str, variant: Variant) -> Position:
    """Return the position of an SFEN, as the first of a game.

    Each seat must have one king, and the seat that is not to move must not be in check. No piece may stand where it
    could never move, and no file may have two unpromoted pawns of one seat. Raises ``BadNotation`` otherwise.
    """
    fields = text.split()
    if len(fields) not in (3, 4) or fields[1] not in ("b", "w"):
        raise _bad(text, "it does not have squares, then b or w, then hands, then a number", variant)
    if len(fields) == 4 and not re.fullmatch(r"[1-9][0-9]{0,8}", fields[3]):
        raise _bad(text, f"{fields[3]!r} is no number of a move", variant)
    board, seat = _board(text, fields[0], variant), SEATS.index(fields[1])
    hands = np.zeros((2, CODES), dtype=np.int64)
    for count, letter in _in_hands(text, fields[2], variant):
        owner, code = int(letter.islower()), LETTERS.index(letter.upper())
        if hands[owner, code]:
            raise _bad(text, f"a hand has {letter!r} twice", variant)
        hands[owner, code] = count
    _check(text, variant, board, hands)
    if seat:
        board, hands = -board[::-1], hands[::-1]
    game: Position = np.zeros(1, dtype=POSITION)[0]
    game["board"][: variant.cells], game["seat"] = board, seat
    game["hands"] = hands[:, 1:KING]
    turned = np.ascontiguousarray(-board[::-1]).astype(np.int8)
    if attacked(variant.tables, turned, find_king(variant.tables, turned)):
        raise _bad(text, "the seat to move could capture the king", variant)
    return game


def _board(text: str, squares: str, variant: Variant) -> np.ndarray:
    """Return the codes of the squares, as Black sees them."""
    board: list[int] = []
    rows = squares.split("/")
    for row in rows:
        before = len(board)
        for part in re.findall(r"\d+|\+?.", row):
            piece = _CODE_OF.get(part.upper(), 0)
            if part.isdecimal() and part != "0" and len(part) == 1:
                board += [0] * int(part)
            elif piece and BASE[piece] in variant.counts:
                board.append(-piece if part[-1].islower() else piece)
            else:
                raise _bad(text, f"{part!r} is no piece and no number of empty squares", variant)
        if len(board) - before != variant.side:
            raise _bad(text, f"the row {row!r} has {len(board) - before} squares, not {variant.side}", variant)
    if len(rows) != variant.side:
        raise _bad(text, f"it has {len(rows)} rows, not {variant.side}", variant)
    return np.array(board, dtype=np.int64)


def _in_hands(text: str, hands: str, variant: Variant) -> Iterator[tuple[int, str]]:
    if hands == "-":
        return
    end = 0
    for part in re.finditer(r"([1-9][0-9]?)?([A-Za-z])", hands):
        if part.start() != end or LETTERS.find(part[2].upper()) not in variant.codes:
            break
        yield int(part[1] or 1), part[2]
        end = part.end()
    if end != len(hands):
        raise _bad(text, f"the hands are unreadable from {hands[end:]!r}", variant)


def _check(text: str, variant: Variant, board: np.ndarray, hands: np.ndarray) -> None:
    """Check everything about the pieces that the rules' kernels rely on."""
    for seat, name in enumerate(("Black", "White")):
        own = -board[::-1] if seat else board
        if (own == KING).sum() != 1:
            raise _bad(text, f"{name} has {(own == KING).sum()} kings, not 1", variant)
        for code, rows in ((PAWN, 1), (LANCE, 1), (KNIGHT, 2)):
            if (own[: rows * variant.side] == code).any():
                raise _bad(text, f"{name} has a piece {LETTERS[code]} that could never move", variant)
        if ((own == PAWN).reshape(variant.side, variant.side).sum(axis=0) > 1).any():
            raise _bad(text, f"{name} has two pawns in a file", variant)
    used = Counter(BASE[np.abs(board)].tolist())
    for code, most in variant.counts.items():
        if (count := used[code] + int(hands[:, code].sum())) > most:
            raise _bad(text, f"there are {count} pieces {LETTERS[code]}, not at most {most}", variant)


def _bad(text: str, why: str, variant: Variant) -> BadNotation:
    return BadNotation(f"{text!r} is no position of {variant.name}: {why}.", hint=f"The first one is {variant.sfen!r}.")


def write_sfen(position: Position, variant: Variant, number: int = 1) -> str:
    """Return the SFEN of a position; ``number`` is its next move's."""
    board, hands, seat = position["board"][: variant.cells], position["hands"], int(position["seat"])
    if seat:
        board, hands = -board[::-1], hands[::-1]
    rows = []
    for row in board.reshape(variant.side, variant.side).tolist():
        pieces = (letters(abs(code)).lower() if code < 0 else letters(code) if code else " " for code in row)
        rows.append(re.sub(" +", lambda empty: str(len(empty[0])), "".join(pieces)))
    pieces_in_hand = ""
    for owner in range(2):
        for code in reversed(variant.codes):
            count, letter = int(hands[owner][code - 1]), LETTERS[code]
            if count:
                pieces_in_hand += f"{count if count > 1 else ''}{letter.lower() if owner else letter}"
    return f"{'/'.join(rows)} {SEATS[seat]} {pieces_in_hand or '-'} {number}"


def square_name(cell: int, seat: int, variant: Variant) -> str:
    """Return the name of a square, for instance ``7g``. ``seat`` sees the square as ``cell``."""
    row, column = divmod(variant.cells - 1 - cell if seat else cell, variant.side)
    return f"{variant.side - column}{'abcdefghi'[row]}"


def _square(name: str, seat: int, variant: Variant) -> int:
    cell = "abcdefghi".index(name[1]) * variant.side + variant.side - int(name[0])
    return variant.cells - 1 - cell if seat else cell


def write_move(action: int, seat: int, variant: Variant) -> str:
    """Return the USI text of a seat's action. Examples are ``7g7f``, ``2d2c+`` and ``P*5e``."""
    cell, to_cell, promotes, code = variant.parts(action)
    to = square_name(to_cell, seat, variant)
    return f"{LETTERS[code]}*{to}" if code else square_name(cell, seat, variant) + to + "+" * promotes


def parse_move(text: str, seat: int, variant: Variant) -> int:
    """Return the action of a seat's move in USI, legal or not. Raises ``BadNotation``."""
    last = "abcdefghi"[variant.side - 1]
    square = f"[1-{variant.side}][a-{last}]"
    kinds = "".join(LETTERS[code] for code in variant.codes)
    if match := re.fullmatch(rf"([{kinds}])\*({square})", text):
        return variant.drop(LETTERS.index(match[1]), _square(match[2], seat, variant))
    match = re.fullmatch(rf"({square})({square})(\+?)", text)
    if not match or match[1] == match[2]:
        raise BadNotation(f"{text!r} is no move of {variant.name}.", hint="Write for instance 7g7f, 2d2c+ or P*5e.")
    return variant.move(*(_square(name, seat, variant) for name in match.groups()[:2]), promotes=bool(match[3]))
