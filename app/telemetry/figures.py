"""Figures as files: drawn with matplotlib, which is optional; the same data gives the same SVG."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from app.core import FlyballError

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class NoPlots(FlyballError):
    """matplotlib is not there."""


@contextmanager
def drawn(path: Path, inches: tuple[float, float]) -> Iterator["Figure"]:
    """Yield a figure to draw on, and write it into a file; the suffix says how (.svg, .png, .pdf).

    Raises ``NoPlots``, or ``FlyballError`` when the file cannot be written.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise NoPlots("Figures need matplotlib.", hint="Install it with: pip install 'flyball[plots]'") from error
    with rc_context({"svg.hashsalt": "flyball", "svg.fonttype": "none"}):
        figure = Figure(figsize=inches, layout="constrained")
        FigureCanvasAgg(figure)
        yield figure
        try:
            figure.savefig(path, metadata={"Date": None} if path.suffix == ".svg" else None)
        except (OSError, ValueError) as error:
            raise FlyballError(f"{path} cannot be drawn: {error}.", hint="End it with .svg or .png.") from error
