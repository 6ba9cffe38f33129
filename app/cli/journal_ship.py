"""``flyball journal ship`` and ``restore``."""

import signal
import sys
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import click

from flyball.app.api.runs import RunLocation, open_journal
from flyball.app.cli.options import run_options
from flyball.app.cli.output import echo, note
from flyball.app.config.loading import Loaded
from flyball.app.core import BadUsage
from flyball.app.events.envelope import EPOCH
from flyball.app.journal.restoring import Restored
from flyball.app.journal.restoring import restore as restore_journal
from flyball.app.status.summary import show_time
from flyball.app.store.named import open_objects
from flyball.app.store.objects import PAUSES
from flyball.app.telemetry import configure
from flyball.daemons.run_folder import prepare
from flyball.daemons.shipping import SHIPPER, Stop, ship_always, ship_once, shipper_of
from flyball.daemons.supervisor import when_stdin_closes


@click.command()
@click.option("--supervised", is_flag=True, hidden=True, help="Go on until stdin closes.")
@run_options
def ship(location: RunLocation, *, supervised: bool) -> None:
    """Copy what was recorded since the last shipment to deployment.journal.ship.

    During a run the broker has this done every deployment.journal.ship_seconds. The command is for a stopped run, or
    one that was not shipped before.
    """
    loaded = location.load()
    if supervised:
        _ship_always(location, loaded)
        return
    with open_journal(location) as reader, shipper_of(location.folder, loaded) as shipper:
        if error := ship_once(shipper, location.folder, str(loaded.ship)):
            raise error
        note(f"The journal is shipped up to position {shipper.shipped.position} of {reader.head}, to {loaded.ship}.")
    if shipper.problem:
        note(f"WARNING: {shipper.problem}")
        sys.exit(1)


def _ship_always(location: RunLocation, loaded: Loaded) -> None:
    stop = Stop()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    when_stdin_closes(stop.set)
    deployment = loaded.deployment
    with closing(configure(SHIPPER, deployment.node, location.folder.log(SHIPPER), deployment.log_level, echo=False)):
        ship_always(location.folder, loaded, stop)


@click.command()
@click.argument("source", metavar="FROM")
@click.option("--shipped-run", metavar="NAME", help="Name of the run, if several were shipped there.")
@run_options
def restore(location: RunLocation, source: str, *, shipped_run: str | None) -> None:
    """Make a new run folder's journal of what was shipped to FROM, a folder or URL.

    Everything is verified. What is damaged is listed, the exit code is then 1, and the journal goes up to where it is
    sound; a segment of the archive that is lost is left out. flyball.toml and the store are not there: put them back
    first. Then start the run: the daemons rebuild their state.
    """
    journal = location.folder.journal
    if location.load().deployment.journal.url is not None:
        raise BadUsage(
            "A restored journal is a file, and deployment.journal.url is set.",
            hint="Restore into a folder without it, then: flyball journal copy FILE URL",
        )
    if not journal.exists():
        prepare(location.folder)
    restored = restore_journal(journal, open_objects(source, "FROM", PAUSES), shipped_run, say=note)
    _describe(restored, journal)
    for problem in restored.problems:
        echo(f"Damaged or missing: {problem}")
    if restored.problems:
        sys.exit(1)


def _describe(restored: Restored, journal: Path) -> None:
    recorded, shipped = (_time(us) for us in (restored.recorded_us, restored.shipped_us))
    note(f"Restored {journal}: run {restored.run}, up to position {restored.head}, recorded at {recorded}.")
    if restored.deleted:
        note(f"The events up to {restored.deleted} had been deleted for good.")
    interval = restored.interval_ms / 1000
    if restored.shipped_us:
        note(
            f"The last shipment was at {shipped}. What was recorded after it is lost: if shipping kept up, the events "
            f"of the last {interval:g} s before the disk died, and of the time of one upload."
        )


def _time(microseconds: int) -> str:
    return show_time(EPOCH + timedelta(microseconds=microseconds), "milliseconds")
