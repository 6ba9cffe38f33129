"""``flyball journal archive``, ``copy``, ``delete``, ``export`` and ``import``."""

from contextlib import closing
from typing import BinaryIO

import click

from flyball.app.api.runs import RunLocation, open_journal
from flyball.app.api.selection import before_since
from flyball.app.cli.options import run_options
from flyball.app.cli.output import note
from flyball.app.core import FlyballError
from flyball.app.journal.cloudevents import export_lines, import_lines
from flyball.app.journal.copying import copy_journal
from flyball.app.journal.database import StorageInUse
from flyball.app.journal.opening import named_journal
from flyball.daemons.run_folder import prepare
from flyball.daemons.snapshots import take_snapshots
from flyball.daemons.supervisor import end_with_stdin


@click.command()
@click.option("--keep", type=click.IntRange(1), metavar="EVENTS", help="Latest events that stay live.")
@click.option("--before", metavar="WHEN", help="Archive what is older: a position, a while (30d, 12h) or a time.")
@click.option("--supervised", is_flag=True, hidden=True, help="End when stdin does.")
@run_options
def archive(location: RunLocation, *, keep: int | None, before: str | None, supervised: bool) -> None:
    """Archive old records, and take a snapshot of the daemons' state.

    By default the latest deployment.journal.live_events events stay live. During a run the broker archives.
    Every command reads archived events like live ones, as long as the folder archive is there. A start reads only live
    ones. A daemon that has lost its state begins at a snapshot, and so need not fold the whole journal. Of a journal in
    a database all records stay where they are, and only a snapshot is taken.
    """
    if keep and before:
        raise click.UsageError("--keep and --before exclude each other.")
    if supervised:
        end_with_stdin()
    with open_journal(location) as reader:
        live = keep or location.load().deployment.journal.live_events
        until = before_since(reader, before) if before else reader.head - live
    try:
        take_snapshots(location.journal, say=lambda position: note(f"Took a snapshot at position {position}."))
    except FlyballError as error:  # archiving needs no snapshot
        note(f"No snapshot was taken. {error}")
    archived = location.journal.archive(until, lambda first, last: note(f"Archived events {first} to {last}."))
    try:
        with closing(location.journal.writer()) as writer:
            writer.adopt()
            if archived:
                writer.shrink()
    except StorageInUse:
        if archived:
            note("The broker will delete the live copies of these events when it has nothing else to do.")
    if not archived:
        note("There is nothing to archive: all other events stay live (--keep, --before).")


@click.command()
@click.option("--before", metavar="WHEN", required=True, help="A position, a while (90d) or a time (ISO 8601).")
@click.option("--yes", is_flag=True, help="Do not ask.")
@run_options
def delete(location: RunLocation, *, before: str, yes: bool) -> None:
    """Delete archived events for good, in a stopped run.

    In a running one deployment.journal.delete_days does so. Whole segments are deleted, and only those that a snapshot
    covers; of a journal in a database, which has no segments, all but the latest 250,000 events that a snapshot covers.
    After that, nothing shows the deleted events: `replay` can't recompute decisions before the oldest event that is
    kept, `trace` ends there, `status` loses counts if state/board.json is lost. A daemon whose state is lost, and which
    can't read a snapshot because its program has changed, can't be rebuilt. Settings, voided events, models and games'
    rows stay.
    """
    with open_journal(location) as reader:
        upto = before_since(reader, before)
        doomed = reader.deletable(upto)
    if doomed is None:
        note(f"Nothing ends at or before position {upto} that could be deleted.")
        return
    first, last, recorded_us = doomed
    if not yes:
        click.confirm(f"Delete the events {first} to {last} for good?", abort=True, err=True)
    count = 0
    with closing(location.journal.writer()) as writer:
        while gone := writer.forget(recorded_us + 1):
            for span in gone:
                note(f"Deleted the events {span.first} to {span.last}.")
            count += len(gone)
    if not count:
        note("Nothing was deleted: no snapshot covers these events. To take one: flyball journal archive")


@click.command()
@click.argument("file", type=click.File("wb", atomic=True))
@run_options
def export(location: RunLocation, file: BinaryIO) -> None:
    """Write all events into FILE (- for stdout), one CloudEvent a line.

    A line has the event, with its source, position (sequence) and time of recording (recordedtime). Dead letters are
    not exported. `flyball journal import` makes a journal of it again.
    """
    count = 0
    with open_journal(location) as reader:
        for count, line in enumerate(export_lines(reader), 1):  # noqa: B007 - counted
            file.write(line)
    note(f"Exported {count} events.")


@click.command("import")
@click.argument("file", type=click.File("rb"))
@run_options
def import_command(location: RunLocation, file: BinaryIO) -> None:
    """Make a new run folder's journal from FILE (- for stdin).

    All or nothing: a wrong line leaves no journal. Models and games' rows are not in FILE: copy the folder store.
    """
    prepare(location.folder)
    head = import_lines(location.journal, file)
    note(f"Imported {head} events into {location.journal}.")


@click.command("copy")
@click.argument("source")
@click.argument("target")
def copy_command(source: str, target: str) -> None:
    """Copy the journal SOURCE into a new TARGET, for a move into a database or out of it.

    Each is a file, such as RUN/journal.sqlite, or the URL of a PostgreSQL database. Events keep positions and ids,
    archived ones included, and the copy is checked. Stop the run first: what it records afterwards is not in the copy.
    Then set deployment.journal to the target's URL; the daemons go on where they were.
    """
    head = copy_journal(named_journal(source), target_journal := named_journal(target))
    note(f"{target_journal} holds the journal up to position {head}, without damage.")
