"""Positions of games without a drawing of their own, as text."""

from flyball.app.dashboard.boards.svg import box, drawing, tag, words

ADVANCE = 9.7
"""Width of a character of size 16 in a monospaced font."""
LINE = 21.0
MARGIN = 20.0
NO_BREAK = "\N{NO-BREAK SPACE}"
"""SVG keeps all of these, but merges ordinary spaces."""
NARROWEST = 40
"""Characters in the shortest line for which there is room."""


def printed(text: str) -> str:
    """Return the lines of a text as a drawing."""
    lines = text.rstrip("\n").split("\n")
    width = max(NARROWEST, *map(len, lines)) * ADVANCE + 2 * MARGIN
    height = len(lines) * LINE + 2 * MARGIN
    shown = [
        tag(
            "text",
            words(line.replace(" ", NO_BREAK)),
            x=MARGIN,
            y=MARGIN + (k + 0.75) * LINE,
            font_size=16,
            textLength=len(line) * ADVANCE,
            class_="printed",
        )
        for k, line in enumerate(lines)
        if line.strip()
    ]
    return drawing(width, height, "Position", text, box(0, 0, width, height, "paper", 8), *shown)
