"""Figures as files, drawn with matplotlib (optional). The same data gives the same file."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from flyball.app.core import FlyballError, writing

if TYPE_CHECKING:
    from matplotlib.figure import Figure


FIGURE_FORMATS = (".svg", ".png", ".pdf")
"""File suffixes of figures."""

_WITHOUT_TIME = {".svg": {"Date": None}, ".pdf": {"CreationDate": None}}


class NoPlots(FlyballError):
    """matplotlib is not installed."""


@contextmanager
def drawn(path: Path, inches: tuple[float, float]) -> Iterator["Figure"]:
    """Yield a figure of ``inches``, then write it into a file.

    The file's suffix, one of ``FIGURE_FORMATS``, gives the format. Raises ``NoPlots``, or ``UnusableFile`` when the
    file cannot be written.
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
        with writing(path):
            figure.savefig(path, metadata=_WITHOUT_TIME.get(path.suffix))
