"""The option of commands that draw a figure."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from app.telemetry import FIGURE_FORMATS


class FigurePath(click.Path):
    """The file of a figure: one that can't be written is refused before there is anything to draw."""

    def __init__(self) -> None:
        super().__init__(dir_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path. Raises ``click.BadParameter``."""
        if Path(value).suffix not in FIGURE_FORMATS:
            self.fail(f"{value}: end it with {', '.join(FIGURE_FORMATS[:-1])} or {FIGURE_FORMATS[-1]}.", param, ctx)
        if not Path(value).parent.is_dir():
            self.fail(f"{value} cannot be written: there is no folder {Path(value).parent}.", param, ctx)
        return super().convert(value, param, ctx)


def figure_option(what: str) -> Callable[[Any], Any]:
    """Return the option ``--plot``, which hands the path over as ``figure``."""
    return click.option("--plot", "figure", type=FigurePath(), help=f"{what}: {', '.join(FIGURE_FORMATS)}.")
