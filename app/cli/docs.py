"""``flyball docs``: the documentation in the browser."""

from contextlib import suppress

import click

from flyball.app.cli.output import note
from flyball.app.config.dashboard import DashboardSettings
from flyball.app.dashboard.access import listen, url_of


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="0: any free one.")
def docs(port: int) -> None:
    """Show the documentation in the browser of this machine. Ctrl-C stops it.

    It needs no run. The dashboard has the same pages under Docs.
    """
    from flyball.app.dashboard.documentation import serve  # Starlette takes long to import

    with listen(DashboardSettings(port=port)) as server, suppress(KeyboardInterrupt):
        note(f"Documentation at {url_of(server)}docs")
        serve(server)
