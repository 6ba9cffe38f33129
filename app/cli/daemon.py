"""``flyball daemon``: run one daemon, or list them."""

import sys

import click

from flyball.app.api.runs import RunLocation, find_broker
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import note, write_row
from flyball.app.controllers import Controller
from flyball.app.core import BROKER
from flyball.daemons.open_files import allow_open_files
from flyball.daemons.registry import check_hosted_here, daemons_of, spec_of


@click.group()
def daemon() -> None:
    """Run one daemon, or list them."""


@daemon.command()
@click.argument("name")
@click.option("--supervised", is_flag=True, hidden=True, help="End when stdin does.")
@run_options
def run(location: RunLocation, name: str, *, supervised: bool) -> None:
    """Run the daemon NAME until SIGTERM or Ctrl-C.

    The daemon drains before it exits.
    """
    from flyball.daemons.process import run_daemon
    from flyball.daemons.run_folder import check_present, prepare
    from flyball.daemons.supervisor import end_with_stdin

    if supervised:
        end_with_stdin()
        check_present(location.folder)
    allow_open_files()
    spec, loaded = spec_of(name), location.load()
    check_hosted_here(spec.name, loaded.run)
    if not supervised:
        prepare(location.folder)
    endpoint, listens = find_broker(location.folder, loaded.deployment)
    if spec.name != BROKER and not supervised and not listens:
        # otherwise nobody would notice that the daemon only waits for its broker
        start = location.command("daemon", "run", BROKER)
        note(f"Waiting for a broker at {endpoint}. To start one: {start} (`up` runs it with all other daemons).")
    sys.exit(run_daemon(spec, loaded, location.folder))


@daemon.command(name="list")
@json_option
@run_options
def list_daemons(location: RunLocation, *, as_json: bool) -> None:
    """List daemons in the order of starting, with your own controllers."""
    for name, spec in daemons_of(location.load().run).items():
        own = [kind.origin.where for kind in spec.controllers if issubclass(kind, Controller) and kind.origin]
        row = {"name": name, "purpose": spec.purpose, "capacity": spec.capacity, "own": own}
        purpose = ", and ".join((spec.purpose, *own))
        write_row(row, f"{name:<20} {purpose}", as_json=as_json)
