"""Writing to stdout and stderr."""

import json
import os
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stdout
from typing import TYPE_CHECKING, Any

import click
from rich.console import Console, RenderableType
from rich.table import Table
from rich.text import Text

from flyball.app.api.commands import completed, flyball
from flyball.app.api.runs import complaint
from flyball.app.cli.streams import shows_all, tolerate_closed_output
from flyball.app.config import RunSettings
from flyball.app.events import Event, Kind
from flyball.app.events.frames import DeadLetter
from flyball.app.status.summary import UNKNOWN, event_text, show_clock, show_time

if TYPE_CHECKING:  # the simulation is costly to import, and most commands do not need it
    from flyball.app.simulation import Interval

PLAIN_WIDTH = 1000
"""Width in columns without a terminal, so that nothing is cut off."""

NARROW = 120
"""Width in columns of a terminal below which events and fields show no date."""


def stdout_console() -> Console:
    """Return a console on stdout. It is in colour on terminals, and plain and wide elsewhere."""
    stream = sys.stdout
    width = None if stream.isatty() else PLAIN_WIDTH
    return Console(file=stream, width=width, highlight=False, no_color=bool(os.environ.get("NO_COLOR")))


def show(*renderables: RenderableType) -> None:
    """Write renderables to stdout, without trailing blanks."""
    console = stdout_console()
    with console.capture() as capture:
        for renderable in renderables:
            console.print(renderable, crop=False, overflow="ellipsis")
    for line in capture.get().splitlines():
        echo(line.rstrip())


def echo(text: str = "", *, nl: bool = True) -> None:
    """Write a text to stdout.

    It is lost once nobody reads stdout. The command goes on, because its work and its exit code do not depend on a
    reader.
    """
    with tolerate_closed_output():
        click.echo(text, nl=nl)


def json_text(value: Any) -> str:
    """Return a value as one line of JSON. Characters that stdout's encoding may lack are escaped."""
    return json.dumps(value, ensure_ascii=not shows_all(sys.stdout), allow_nan=False)


def write_json(value: Any) -> None:
    """Write a value to stdout as one line of JSON."""
    echo(json_text(value))


def write_row(values: Mapping[str, Any], text: str, *, as_json: bool) -> None:
    """Write one result of several to stdout, as JSON or as text."""
    if as_json:
        write_json(values)
    else:
        echo(text)


def write_values(values: Mapping[str, Any], *, as_json: bool) -> None:
    """Write named values to stdout, as lines or a JSON object."""
    if as_json:
        write_json(values)
        return
    width = max(map(len, values))
    for name, value in values.items():
        echo(f"{name:<{width}} {value}")


def show_table(
    columns: Sequence[str],
    rows: Iterable[Sequence[RenderableType]],
    *,
    left: Collection[str],
    title: str | None = None,
    uncut: Collection[str] = (),
) -> None:
    """Write a table to stdout. Columns that are not in ``left`` are right-justified.

    On a narrow terminal those in ``uncut`` are cut last.
    """
    table = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for name in columns:
        table.add_column(name, justify="left" if name in left else "right", no_wrap=name in uncut)
    for row in rows:
        table.add_row(*row)
    show(table)


def hanging(first: Text, text: Text) -> Table:
    """Return a text with a hanging indent after ``first``."""
    grid = Table.grid(padding=(0, 1))
    grid.add_column(no_wrap=True, min_width=first.cell_len)
    grid.add_column()
    grid.add_row(first, text)
    return grid


def interval_text(interval: "Interval | None", form: str) -> str:
    """Return a mean with its interval as text."""
    if interval is None:
        return UNKNOWN
    reach = "" if interval.lower is None else f" [{interval.lower:{form}}, {interval.upper:{form}}]"
    return f"{interval.mean:{form}}{reach}"


@contextmanager
def data_only_on_stdout() -> Iterator[None]:
    """Redirect the block's stdout to stderr, for Python code and native libraries."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


def with_options(text: str) -> str:
    """Return a text whose commands are about this command's run; unchanged outside a command."""
    context = click.get_current_context(silent=True)
    if context is None:
        return text
    chosen = context.find_root().obj
    return completed(text, flyball(chosen["run_dir"], chosen["config_file"]))


def note(text: str) -> None:
    """Write a line to stderr; see ``with_options``."""
    click.echo(with_options(text), err=True)


def complain(dead: DeadLetter) -> None:
    """Warn on stderr that an event can't be read."""
    complaint(note)(dead)


def write_event(event: Event[Any], *, as_json: bool, settings: RunSettings | None = None) -> None:
    """Write an event to stdout, as text or as a CloudEvent. ``settings`` name user-defined controllers.

    On a terminal an event takes one line, which is cut; a decision as many as it needs. Raises ``OSError`` once nobody
    reads stdout, because that ends a command that shows a stream of events.
    """
    head = f"{event.sequence:>8}  {show_time(event.recordedtime, 'milliseconds')}  "
    if as_json:
        click.echo(json_text(event.to_cloudevent()))
    elif not sys.stdout.isatty():
        click.echo(head + event_text(event, settings).plain)
    else:
        console = stdout_console()
        if console.width < NARROW:
            head = f"{event.sequence:>8}  {show_clock(event.recordedtime)}  "
        width = console.width - len(head)
        if event.data.kind is Kind.DECISION:
            lines = event_text(event, settings).wrap(console, width)
            console.print(head, Text(f"\n{' ' * len(head)}").join(lines), sep="", no_wrap=True)
        else:
            text = event_text(event, settings, width)
            console.print(head, text, sep="", no_wrap=True, overflow="ellipsis")
