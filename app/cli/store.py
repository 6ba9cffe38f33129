"""``flyball store``: verify blobs, and delete unneeded ones."""

import sys
from datetime import timedelta

import click

from flyball.app.api.runs import RunLocation, open_run
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import note, write_row
from flyball.app.core.sizes import size_text
from flyball.app.replay.reachability import keys_named_since, named_blobs, oldest, unreachable
from flyball.app.replay.replaying import all_settings
from flyball.app.status.summary import UNKNOWN, show_time
from flyball.app.store import DamagedBlob, MissingBlob, StoredBlob, open_store
from flyball.daemons.clock import SystemClock
from flyball.daemons.registry import daemons_of
from flyball.daemons.supervisor import end_with_stdin

GIB = 1 << 30


@click.group()
def store() -> None:
    """Look after the store of models and shards.

    The store is a folder in the run, or what deployment.store names.
    """


@store.command()
@json_option
@run_options
def verify(location: RunLocation, *, as_json: bool) -> None:
    """Read every blob, and list the damaged ones.

    The exit code is 1 if there are any. The loop may be running.
    """
    blobs, count, damaged = open_store(location.store, cached=False), 0, 0
    for key in blobs.keys():  # noqa: SIM118 - a store is no mapping
        try:
            blobs.get(key)
        except MissingBlob:  # deleted meanwhile
            continue
        except DamagedBlob as error:
            damaged += 1
            write_row({"key": key, "damage": error.message}, error.message, as_json=as_json)
        count += 1
    note(f"{count} blobs, {damaged} of them damaged.")
    if damaged:
        sys.exit(1)


@store.command()
@click.option("--yes", is_flag=True, help="Delete them; otherwise they are only listed.")
@click.option("--grace-hours", default=24.0, type=click.FloatRange(1), help="Younger blobs are kept.")
@click.option(
    "--to-gib", type=click.FloatRange(0, min_open=True), help="Only until the store takes so many GiB, oldest first."
)
@click.option("--supervised", is_flag=True, hidden=True, help="End when stdin does.")
@json_option
@run_options
def gc(
    location: RunLocation, *, yes: bool, grace_hours: float, to_gib: float | None, supervised: bool, as_json: bool
) -> None:
    """List or delete the blobs that the run does not need.

    The loop may be running. Blobs named by the state that follows from the journal are needed: models of the lineage,
    the league and pending requests, shards that wait or are learned from again. So are a needed model's optimiser
    state, blobs named by events of the last hours, and young blobs, because their events may still come. A store that
    several runs share has to have a prefix for each: blobs of another run are not needed by this one.
    """
    if supervised:
        end_with_stdin()
    blobs, since = open_store(location.store, cached=False), SystemClock().now() - timedelta(hours=grace_hours)
    taken = sum(blob.size_bytes for blob in blobs.entries()) if to_gib else 0
    if to_gib and taken <= to_gib * GIB:
        note(f"Nothing to delete: the store takes {taken / GIB:.2f} GiB.")
        return
    with open_run(location) as reader:
        named = named_blobs(reader, daemons_of(*all_settings(reader)), since)
        spare = unreachable(blobs, named, since)
        if to_gib:
            spare = oldest(spare, taken - to_gib * GIB)
        if yes:
            named_since = keys_named_since(reader, named.position)
            spare = tuple(blob for blob in spare if blob.key not in named_since)
    for blob in spare:
        if yes:
            blobs.delete(blob.key)
        modified = UNKNOWN if blob.modified is None else show_time(blob.modified)
        text = f"{size_text(blob.size_bytes):>7}  {modified:<20}  {blob.key}"
        write_row(_values(blob), text, as_json=as_json)
    size = size_text(sum(blob.size_bytes for blob in spare))
    summary = f"{len(spare)} blobs that nothing needs, {size}"
    note(f"Deleted {summary}." if yes else f"{summary}." + (" To delete them: flyball store gc --yes" if spare else ""))


def _values(blob: StoredBlob) -> dict[str, str | int | None]:
    modified = blob.modified.isoformat() if blob.modified else None
    return {"key": blob.key, "bytes": blob.size_bytes, "modified": modified}
