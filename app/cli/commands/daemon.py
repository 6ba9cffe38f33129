"""``flyball daemon``: run one daemon, or list them."""

import sys

import click

from app.cli.output import write_json
from app.cli.place import Place, json_option, placed


@click.group()
def daemon() -> None:
    """Run one daemon, or list them."""


@daemon.command()
@click.argument("name")
@click.option("--supervised", is_flag=True, hidden=True, help="End when stdin does.")
@placed
def run(place: Place, name: str, *, supervised: bool) -> None:
    """Run the daemon NAME until SIGTERM or Ctrl-C; it drains before it leaves."""
    from app.runtime.daemon import run_daemon
    from app.runtime.supervisor import end_with_stdin

    if supervised:
        end_with_stdin()
    sys.exit(run_daemon(name, place.load(), place.folder))


@daemon.command(name="list")
@json_option
def list_daemons(*, as_json: bool) -> None:
    """List all daemons, in the order of starting."""
    from app.runtime.registry import DAEMONS, start_order

    for name in start_order():
        spec = DAEMONS[name]
        if as_json:
            write_json({"name": name, "purpose": spec.purpose, "capacity": spec.capacity})
        else:
            click.echo(f"{name:<20} {spec.purpose}")
