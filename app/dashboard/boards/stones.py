"""Boards of points and of hexagons: Go and Hex."""

from math import sqrt

from flyball.app.dashboard.boards.grids import LETTERS, described, occupied
from flyball.app.dashboard.boards.svg import STONES, Box, box, disc, drawing, label, polygon, polyline, stone, stroke
from flyball.app.games.positions import BoardPosition

POINT = 40.0
"""Distance of two points of a Go board."""

HANDICAP = {19: (3, 9, 15), 13: (3, 6, 9), 9: (2, 4, 6), 7: (3,)}
"""Lines that cross in marked points, by the side of the board."""

COLUMNS = "abcdefghjklmnopqrst"
"""Letters of a Go board, which leave out the i."""


EDGE = POINT * 1.15
"""Distance of a Go board's outer lines from its rim."""

RADIUS, HEX_MARGIN = 26.0, 40.0
"""Of a hexagon, from its middle to a corner; and of the drawing around the hexagons."""


def point_box(row: int, column: int) -> Box:
    """Return left, top, width and height around a point of a Go board."""
    return EDGE + (column - 0.5) * POINT, EDGE + (row - 0.5) * POINT, POINT, POINT


def hexagon_box(row: int, column: int) -> Box:
    """Return left, top, width and height of the part of a hexagon that is between its upper and its lower corners."""
    x, y = _hexagon(row, column)
    return x - RADIUS * sqrt(3) / 2, y - RADIUS * 0.75, RADIUS * sqrt(3), RADIUS * 1.5


def _hexagon(row: float, column: float) -> tuple[float, float]:
    """Return the middle of a hexagon."""
    return HEX_MARGIN + RADIUS * sqrt(3) * (column + row / 2 + 0.5), HEX_MARGIN + RADIUS + RADIUS * 1.5 * row


def go(position: BoardPosition) -> str:
    """Draw stones on a wooden board."""
    side = len(position.cells)
    edge, size = EDGE, (side - 1) * POINT + 2 * EDGE
    at = [edge + k * POINT for k in range(side)]
    parts = [STONES, box(0, 0, size, size, "wood", 6)]
    for k in at:
        parts += [stroke(at[0], k, at[-1], k, "line"), stroke(k, at[0], k, at[-1], "line")]
    marked = HANDICAP.get(side, ())
    parts += [disc(at[row], at[column], POINT * 0.1, "dot") for row in marked for column in marked]
    for k in range(side):
        parts += [
            label(COLUMNS[k], at[k], size - edge * 0.32, POINT * 0.36, "label on-wood"),
            label(str(side - k), edge * 0.3, at[k], POINT * 0.36, "label on-wood"),
        ]
    for seat in (0, 1):
        parts += [stone(at[column], at[row], POINT * 0.47, seat) for row, column in occupied(position, seat)]
    parts += [disc(at[column], at[row], POINT * 0.22, "last-ring") for row, column in position.last[:1]]
    places = [[f"{COLUMNS[column]}{side - row}" for row, column in occupied(position, seat)] for seat in (0, 1)]
    return drawing(size, size, f"Go, {side} by {side}", described(("Black", "White"), places), *parts)


def hex_(position: BoardPosition) -> str:
    """Draw a rhombus of hexagons. Red joins top and bottom, Blue left and right."""
    side, radius, middle = len(position.cells), RADIUS, _hexagon
    across, down, margin = radius * sqrt(3), radius * 1.5, HEX_MARGIN

    def corner(row: float, column: float, k: int) -> tuple[float, float]:
        """Return corner ``k`` of a cell; corners count clockwise from the top."""
        x, y = middle(row, column)
        right, low = ((0, -1), (1, -0.5), (1, 0.5), (0, 1), (-1, 0.5), (-1, -0.5))[k]
        return x + right * across / 2, y + low * radius

    last, cells_in_line = side - 1, range(side)
    width, height = 2 * margin + across * (side + last / 2), 2 * margin + 2 * radius + down * last
    edges = [
        polyline([corner(0, k, c) for k in cells_in_line for c in (5, 0, 1)], "edge-0"),
        polyline([corner(last, k, c) for k in cells_in_line for c in (4, 3, 2)], "edge-0"),
        polyline([corner(k, 0, c) for k in cells_in_line for c in (5, 4)], "edge-1"),
        polyline([corner(k, last, c) for k in cells_in_line for c in (1, 2)], "edge-1"),
    ]
    cells = []
    for row, seats in enumerate(position.cells.tolist()):
        for column, seat in enumerate(seats):
            cells.append(polygon([corner(row, column, k) for k in range(6)], "hexagon"))
            if seat < 2:
                cells.append(disc(*middle(row, column), radius * 0.66, f"hex-{seat}"))
            if (row, column) in position.last[:1]:
                cells.append(disc(*middle(row, column), radius * 0.24, "last-dot"))
    names = [label(LETTERS[k], *middle(-0.95, k + 0.2), 16) for k in cells_in_line]
    names += [label(str(k + 1), *middle(k, -0.9), 16) for k in cells_in_line]
    places = [[f"{LETTERS[column]}{row + 1}" for row, column in occupied(position, seat)] for seat in (0, 1)]
    text = described(("Red, top to bottom", "Blue, left to right"), places)
    return drawing(width, height, f"Hex, {side} by {side}", text, *edges, *cells, *names)
