"""Boards of squares: tic-tac-toe and its ultimate form, connect four, Othello, Breakthrough and Clobber."""

from collections.abc import Sequence

import numpy as np

from flyball.app.dashboard.boards.svg import STONES, Box, box, disc, drawing, label, polygon, shift, stone, stroke, tag
from flyball.app.games.board_table import EMPTY
from flyball.app.games.positions import BoardPosition, NinePosition

CELL = 60.0
EDGE = 30.0
"""Width of a board's edge, where the coordinates are."""

NINE_CELL, NINE_GAP = 34.0, 14.0
"""Side of a cell of ultimate tic-tac-toe, and distance of two boards."""

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def described(sides: Sequence[str], places: Sequence[Sequence[str]]) -> str:
    """Return in words where the pieces of each side are."""
    return " ".join(f"{side}: {', '.join(where) or 'none'}." for side, where in zip(sides, places, strict=True))


def occupied(position: BoardPosition, seat: int) -> list[tuple[int, int]]:
    """Return the rows and columns of a seat's pieces."""
    return [(int(row), int(column)) for row, column in np.argwhere(position.cells == seat)]


def cell_box(row: int, column: int) -> Box:
    """Return left, top, width and height of a cell, on boards with an edge."""
    return EDGE + column * CELL, EDGE + row * CELL, CELL, CELL


def column_box(column: int, rows: int) -> Box:
    """Return left, top, width and height of a column of connect four, with its number."""
    return 10 + column * CELL, 0, CELL, rows * CELL + 20 + EDGE


def nine_box(board: int, cell: int | None = None) -> Box:
    """Return left, top, width and height of a board of ultimate tic-tac-toe, or of one of its cells."""
    side = 3 * NINE_CELL
    x, y = (NINE_GAP + number * (side + NINE_GAP) for number in (board % 3, board // 3))
    if cell is None:
        return x, y, side, side
    return x + cell % 3 * NINE_CELL, y + cell // 3 * NINE_CELL, NINE_CELL, NINE_CELL


def tic_tac_toe(position: BoardPosition) -> str:
    """Draw noughts and crosses."""
    size = 3 * CELL + 2 * EDGE
    lines = [
        stroke(*ends, "grid thick")
        for k in (1, 2)
        for at in [EDGE + k * CELL]
        for ends in ((at, EDGE, at, size - EDGE), (EDGE, at, size - EDGE, at))
    ]
    marks = [
        shift(*_middle(row, column), _mark(seat, CELL * 0.3, last=(row, column) in position.last[:1]))
        for seat in (0, 1)
        for row, column in occupied(position, seat)
    ]
    places = [[f"row {row + 1} column {column + 1}" for row, column in occupied(position, seat)] for seat in (0, 1)]
    return drawing(size, size, "Tic-tac-toe", described(("X", "O"), places), *lines, *marks)


def _mark(seat: int, reach: float, *, last: bool = False, class_: str = "") -> str:
    """Return a cross or a nought around the origin. The mark of the last move has a bright background."""
    ground = box(-reach * 1.45, -reach * 1.45, reach * 2.9, reach * 2.9, "last-square", reach * 0.3) if last else ""
    if seat:
        return ground + disc(0, 0, reach, f"nought {class_}".rstrip())
    cross = f"cross {class_}".rstrip()
    return ground + stroke(-reach, -reach, reach, reach, cross) + stroke(-reach, reach, reach, -reach, cross)


def ultimate_tic_tac_toe(position: NinePosition) -> str:
    """Draw nine boards. Boards that are won show a large mark, and the board to play on is bright."""
    cell, gap = NINE_CELL, NINE_GAP
    side = 3 * cell
    size = 3 * side + 4 * gap
    parts = []
    for board, (cells, owner) in enumerate(zip(position.cells.tolist(), position.owners, strict=True)):
        x, y, _, _ = nine_box(board)
        forced = " forced" if board == position.board else ""
        inside = [box(-gap / 3, -gap / 3, side + 2 * gap / 3, side + 2 * gap / 3, f"small-board{forced}", 6)]
        for k in (1, 2):
            inside += [stroke(k * cell, 4, k * cell, side - 4, "grid"), stroke(4, k * cell, side - 4, k * cell, "grid")]
        for number, seat in enumerate(cells):
            if seat != EMPTY:
                middle = (number % 3 + 0.5) * cell, (number // 3 + 0.5) * cell
                faded = "thin faded" if owner != EMPTY else "thin"
                last = (board, number) in position.last[:1]
                inside.append(shift(*middle, _mark(seat, cell * 0.28, last=last, class_=faded)))
        if owner != EMPTY:
            inside.append(shift(side / 2, side / 2, _mark(owner, side * 0.38, class_="large")))
        parts.append(shift(x, y, *inside))
    places = [
        [
            f"board {b + 1} cell {c + 1}"
            for b, cells in enumerate(position.cells.tolist())
            for c, s in enumerate(cells)
            if s == seat
        ]
        for seat in (0, 1)
    ]
    where = "any board" if position.board is None else f"board {position.board + 1}"
    won = " ".join(f"{'XO'[owner]} has won board {b + 1}." for b, owner in enumerate(position.owners) if owner != EMPTY)
    text = f"{described(('X', 'O'), places)} {won} To play on {where}."
    return drawing(size, size, "Ultimate tic-tac-toe", text, *parts)


def connect_four(position: BoardPosition) -> str:
    """Draw discs in an upright frame, with column numbers above."""
    rows, columns = position.cells.shape
    width, height, radius = columns * CELL + 20, rows * CELL + 20 + EDGE, CELL * 0.4
    parts = [box(0, EDGE, width, height - EDGE, "frame", 14)]
    parts += [label(str(k + 1), 10 + (k + 0.5) * CELL, EDGE / 2, 18) for k in range(columns)]
    for row, seats in enumerate(position.cells.tolist()):
        for column, seat in enumerate(seats):
            x, y = 10 + (column + 0.5) * CELL, EDGE + 10 + (row + 0.5) * CELL
            parts.append(disc(x, y, radius, "hole"))
            if seat != EMPTY:
                parts += [disc(x, y, radius, f"token-{seat}"), disc(x, y, radius * 0.68, f"token-{seat} inner")]
            if (row, column) in position.last[:1]:
                parts.append(disc(x, y, radius * 0.28, "last-dot"))
    places = [[f"column {c + 1} row {rows - r}" for r, c in occupied(position, seat)] for seat in (0, 1)]
    return drawing(width, height, "Connect four", described(("Yellow", "Red"), places), *parts)


def othello(position: BoardPosition) -> str:
    """Draw black and white discs on green felt."""
    rows, columns = position.cells.shape
    parts = [STONES, *_edge(rows, columns), box(EDGE, EDGE, columns * CELL, rows * CELL, "felt")]
    right, low = EDGE + columns * CELL, EDGE + rows * CELL
    parts += [stroke(EDGE, EDGE + k * CELL, right, EDGE + k * CELL, "felt-line") for k in range(rows + 1)]
    parts += [stroke(EDGE + k * CELL, EDGE, EDGE + k * CELL, low, "felt-line") for k in range(columns + 1)]
    for row in (2, rows - 2):
        parts += [disc(EDGE + column * CELL, EDGE + row * CELL, 4, "felt-dot") for column in (2, columns - 2)]
    for seat in (0, 1):
        parts += [stone(*_middle(row, column), CELL * 0.41, seat) for row, column in occupied(position, seat)]
    parts += [disc(*_middle(row, column), 6, "last-dot") for row, column in position.last[:1]]
    parts += _coordinates(rows, columns, from_top=True)
    text = described(("Black", "White"), _squares(position, from_top=True))
    return drawing(columns * CELL + 2 * EDGE, rows * CELL + 2 * EDGE, "Othello", text, *parts)


def breakthrough(position: BoardPosition) -> str:
    """Draw pawns on a chequered board; Black, at the top, moves first."""
    parts = _chequered(position)
    for seat, name in enumerate(("black", "white")):
        parts += [shift(*_middle(row, column), _pawn(f"pawn-{name}")) for row, column in occupied(position, seat)]
    return _on_squares(position, "Breakthrough", parts)


def clobber(position: BoardPosition) -> str:
    """Draw discs on a chequered board."""
    parts = [STONES, *_chequered(position)]
    for seat in (0, 1):
        parts += [stone(*_middle(row, column), CELL * 0.38, 1 - seat) for row, column in occupied(position, seat)]
    return _on_squares(position, "Clobber", parts, ("White", "Black"))


def _pawn(class_: str) -> str:
    """Return a pawn around the origin."""
    body = [(-9.0, 4.0), (9.0, 4.0), (14.0, 20.0), (-14.0, 20.0)]
    return tag(
        "g",
        polygon(body, class_),
        box(-17, 18, 34, 6, class_, 2),
        box(-11, 0, 22, 5, class_, 2),
        disc(0, -9, 10, class_),
    )


def _on_squares(
    position: BoardPosition, title: str, parts: list[str], sides: tuple[str, str] = ("Black", "White")
) -> str:
    rows, columns = position.cells.shape
    text = described(sides, _squares(position, from_top=False))
    coordinates = _coordinates(rows, columns, from_top=False)
    return drawing(columns * CELL + 2 * EDGE, rows * CELL + 2 * EDGE, title, text, *parts, *coordinates)


def _chequered(position: BoardPosition) -> list[str]:
    rows, columns = position.cells.shape
    parts = _edge(rows, columns)
    for row in range(rows):
        for column in range(columns):
            shade = "last-square" if (row, column) in position.last else ("light", "dark")[(rows - row + column) % 2]
            parts.append(box(EDGE + column * CELL, EDGE + row * CELL, CELL, CELL, f"square {shade}"))
    return parts


def _edge(rows: int, columns: int) -> list[str]:
    return [box(0, 0, columns * CELL + 2 * EDGE, rows * CELL + 2 * EDGE, "wood-dark", 8)]


def _middle(row: int, column: int) -> tuple[float, float]:
    return EDGE + (column + 0.5) * CELL, EDGE + (row + 0.5) * CELL


def _squares(position: BoardPosition, *, from_top: bool) -> list[list[str]]:
    rows = len(position.cells)
    return [
        [f"{LETTERS[column]}{row + 1 if from_top else rows - row}" for row, column in occupied(position, seat)]
        for seat in (0, 1)
    ]


def _coordinates(rows: int, columns: int, *, from_top: bool) -> list[str]:
    """Return letters below the board and numbers at its left."""
    below = EDGE + rows * CELL + EDGE / 2
    return [
        *(label(LETTERS[k], EDGE + (k + 0.5) * CELL, below, 16, "label on-wood") for k in range(columns)),
        *(
            label(str(k + 1 if from_top else rows - k), EDGE / 2, EDGE + (k + 0.5) * CELL, 16, "label on-wood")
            for k in range(rows)
        ),
    ]
