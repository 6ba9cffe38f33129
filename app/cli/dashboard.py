"""``flyball dashboard``: a run in the browser."""

import os
import socket
from contextlib import suppress
from pathlib import Path

import click

from flyball.app.api.run_reader import distinct_names
from flyball.app.api.runs import RunLocation, locate_run, open_journal
from flyball.app.cli.options import FOLDER, run_options
from flyball.app.cli.output import note
from flyball.app.config.loading import Loaded
from flyball.app.dashboard.access import Access, listen, url_of
from flyball.app.telemetry import configure
from flyball.daemons.rights import client_keys
from flyball.daemons.run_folder import check_present
from flyball.daemons.supervisor import end_with_stdin


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), help="Instead of deployment.dashboard.port; 0: any free one.")
@click.option("--compare", "other", type=FOLDER, help="Folder of another run, which the report compares this one with.")
@click.option("--wait", is_flag=True, help="Wait for a run instead of refusing a folder without one, as services do.")
@click.option("--fd", type=click.IntRange(0), hidden=True, help="A listening socket that `flyball up` opened.")
@click.option("--supervised", is_flag=True, hidden=True, help="End when stdin closes.")
@run_options
def dashboard(
    location: RunLocation, *, port: int | None, other: Path | None, wait: bool, fd: int | None, supervised: bool
) -> None:
    """Show a run in the browser.

    The pages show configurations, events, leagues, curves and logs. `flyball up` starts the dashboard already. It reads
    the files of the run's head; the run need not be running. Actions need a token: see deployment.dashboard.token.
    Ctrl-C stops the dashboard.
    """
    from flyball.app.dashboard.server import serve  # Starlette takes long to import

    if supervised:
        end_with_stdin()
        check_present(location.folder)
    loaded = _load(location, port)
    settings = loaded.deployment.dashboard
    access = Access.of(settings, loaded.folder)
    client_keys(loaded)  # refuses an unusable key now, because otherwise the pages would never change
    if not (wait or supervised):
        with open_journal(location):  # refuses a folder without a run
            pass
    compared = None if other is None else _other_run(location, other)
    server = listen(settings) if fd is None else socket.socket(fileno=fd)
    note(f"Dashboard at {url_of(server)}" + ("" if access.token else " (read-only)"))
    log, level = location.folder.log("dashboard"), loaded.deployment.log_level
    # Without a log, because otherwise a user who may only read the run would have no dashboard.
    if echo := not os.access(log.parent if log.parent.is_dir() else location.folder.path, os.W_OK):
        log = Path(os.devnull)
    with configure("dashboard", loaded.deployment.node, log, level, echo=echo), server, suppress(KeyboardInterrupt):
        serve(location, access, server, compared)


def _other_run(location: RunLocation, folder: Path) -> RunLocation:
    other = locate_run(folder)
    with open_journal(other):  # refuses a folder without a run
        distinct_names(location, other)  # refuses this run's own folder
    return other


def _load(location: RunLocation, port: int | None) -> Loaded:
    return location.load({} if port is None else {"deployment": {"dashboard": {"port": port}}})
