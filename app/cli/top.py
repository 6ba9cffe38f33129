"""``flyball top``: a run at a terminal."""

import sys
from importlib.util import find_spec

import click

from flyball.app.api.runs import RunLocation, open_run
from flyball.app.cli.options import run_options
from flyball.app.core import FlyballError


class NoTextual(FlyballError, code="usage"):
    """The package textual is not installed."""


class NoTerminal(FlyballError, code="usage"):
    """Standard input or output is not a terminal."""


@click.command()
@run_options
def top(location: RunLocation) -> None:
    """Watch a run at a terminal.

    The tabs show an overview, one configuration, events and logs; the last line shows the keys. The command needs the
    run's journal, so it runs on the head. It changes nothing.
    """
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise NoTerminal("flyball top needs a terminal.", hint="For a file or a pipe: flyball status, flyball tail -f")
    if find_spec("textual") is None:
        raise NoTextual("flyball top needs the package textual.", hint="pip install 'flyball[top]'")
    with open_run(location):  # refuses a folder without a run
        pass
    from flyball.app.cli.top_screen import Top  # imported late, because Textual is an extra

    Top(location).run()
