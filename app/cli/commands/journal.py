"""``flyball journal``: the record of everything."""

import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import click

from app.cli.output import note, write_json
from app.cli.place import Place, json_option, placed
from app.cli.selecting import open_journal
from app.journal import DamagedDatabase, OtherFormat, SqliteJournal, rebuild
from app.journal.errors import WAY_OUT


@click.group()
def journal() -> None:
    """Look after the journal."""


@journal.command()
@json_option
@placed
def verify(place: Place, *, as_json: bool) -> None:
    """Check the whole journal and list all damage. Exit code 1 when there is any.

    Checked are the structure of the file, every record and every row beside them, and whether those agree. A broker
    may be running meanwhile.
    """
    count = 0
    for count, problem in enumerate(_problems(place), 1):  # noqa: B007 - counted
        if as_json:
            write_json({"damage": problem})
        else:
            click.echo(problem)
    if count:
        note(f"{count} places are damaged. {WAY_OUT}")
        sys.exit(1)
    note("No damage: everything in it is what was written, and nothing is missing.")


def _problems(place: Place) -> Iterator[str]:
    """Iterate over what is wrong. Where the file can't be read on, the rest stays unknown."""
    try:
        with open_journal(place) as reader:
            for damage in reader.damage():
                yield damage.message
    except DamagedDatabase as error:
        yield error.message


@journal.command()
@placed
def migrate(place: Place) -> None:
    """Bring a journal of an earlier version to the present format. Every start of the run does so too."""
    with closing(SqliteJournal(_existing(place))) as writer:
        note(f"The journal is of the present format; its last event is at position {writer.head}.")


@journal.command("rebuild")
@placed
def rebuild_command(place: Place) -> None:
    """Rebuild a damaged journal whose records are sound.

    The records are copied into a new file, and what is kept beside them is derived from them. The damaged file stays
    beside it. A damaged record can't be rebuilt: restore the journal from a copy.
    """
    rebuilt = rebuild(_existing(place))
    for lost in rebuilt.lost:
        click.echo(f"Lost: {lost}")
    note(f"Rebuilt up to position {rebuilt.head}; the file as it was is kept as {rebuilt.before}.")


def _existing(place: Place) -> Path:
    with suppress(DamagedDatabase, OtherFormat), open_journal(place):
        pass
    return place.folder.journal
