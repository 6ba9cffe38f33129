"""SVG as text: elements, and a document with a description in words.

Colours are classes of ``boards.css``, so that the page's theme decides about them.
"""

from html import escape

Number = int | float

Box = tuple[float, float, float, float]
"""Left, top, width and height in a drawing."""


def tag(name: str, *children: str, **attributes: Number | str) -> str:
    """Return an element. Underscores in the names of attributes stand for hyphens; a trailing one is dropped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{_number(value) if isinstance(value, float) else escape(str(value))}"'
        for key, value in attributes.items()
    )
    return f"<{name}{written}>{''.join(children)}</{name}>" if children else f"<{name}{written}/>"


def words(text: str) -> str:
    """Return text as the content of an element."""
    return escape(text)


def label(text: str, x: float, y: float, size: float, class_: str = "label") -> str:
    """Return text whose middle is at a point."""
    return tag(
        "text", words(text), x=x, y=y, font_size=size, class_=class_, text_anchor="middle", dominant_baseline="central"
    )


def disc(x: float, y: float, radius: float, class_: str) -> str:
    """Return a circle."""
    return tag("circle", cx=x, cy=y, r=radius, class_=class_)


def box(x: float, y: float, width: float, height: float, class_: str, radius: float = 0) -> str:  # noqa: PLR0917
    """Return a rectangle, perhaps with round corners."""
    return tag("rect", x=x, y=y, width=width, height=height, rx=radius, class_=class_)


def stroke(x: float, y: float, to_x: float, to_y: float, class_: str) -> str:
    """Return a line."""
    return tag("line", x1=x, y1=y, x2=to_x, y2=to_y, class_=class_)


def polygon(points: list[tuple[float, float]], class_: str) -> str:
    """Return a closed shape."""
    return tag("polygon", points=_listed(points), class_=class_)


def polyline(points: list[tuple[float, float]], class_: str) -> str:
    """Return a line through points."""
    return tag("polyline", points=_listed(points), class_=class_)


def shift(x: float, y: float, *children: str, turned: bool = False) -> str:
    """Return elements moved to a point. If ``turned``, they are turned by 180 degrees around it."""
    move = f"translate({_number(x)} {_number(y)})" + " rotate(180)" * turned
    return tag("g", *children, transform=move)


def drawing(width: float, height: float, title: str, description: str, *children: str) -> str:
    """Return a document. Screen readers read its title, then its description."""
    return tag(
        "svg",
        tag("title", words(title), id="board-title"),
        tag("desc", words(description), id="board-text"),
        *children,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {_number(width)} {_number(height)}",
        class_="board",
        role="img",
        aria_labelledby="board-title",
        aria_describedby="board-text",
    )


def _listed(points: list[tuple[float, float]]) -> str:
    return " ".join(f"{_number(x)},{_number(y)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.2f}".rstrip("0").rstrip(".")


STONES = tag(
    "defs",
    *(
        tag(
            "radialGradient",
            tag("stop", offset="0", class_=f"{name}-light"),
            tag("stop", offset="1", class_=f"{name}-dark"),
            id=f"{name}-stone",
            cx="0.35",
            cy="0.3",
            r="0.8",
        )
        for name in ("black", "white")
    ),
)
"""Shading of black and white stones. A document with stones has to contain it."""


def stone(x: float, y: float, radius: float, seat: int) -> str:
    """Return a stone: black for the first seat, white for the second."""
    name = ("black", "white")[seat]
    return disc(x + radius * 0.06, y + radius * 0.1, radius, "shadow") + tag(
        "circle", cx=x, cy=y, r=radius, fill=f"url(#{name}-stone)", class_=f"{name}-rim"
    )
