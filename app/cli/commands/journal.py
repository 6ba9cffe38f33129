"""``flyball journal``: the record of everything."""

import sys
from collections.abc import Iterator

import click

from app.cli.output import note, write_json
from app.cli.place import Place, json_option, placed
from app.cli.selecting import open_journal
from app.core import FlyballError
from app.journal import SqliteJournalReader


@click.group()
def journal() -> None:
    """Look after the journal."""


@journal.command()
@json_option
@placed
def verify(place: Place, *, as_json: bool) -> None:
    """Read every record and list all damage: wrong checksums, and gaps. Exit code 1 when there is any.

    A broker may be running meanwhile.
    """
    count = 0
    with open_journal(place) as reader:
        for count, problem in enumerate(_problems(reader), 1):  # noqa: B007 - counted
            if as_json:
                write_json({"damage": problem})
            else:
                click.echo(problem)
    if count:
        note(f"{count} places are damaged. Restore the journal from a copy.")
        sys.exit(1)
    note("No damage: every record is what was written, and none is missing.")


def _problems(reader: SqliteJournalReader) -> Iterator[str]:
    """Iterate over what is wrong. Where not even the database can be read, the rest stays unknown."""
    try:
        for damage in reader.damage():
            yield damage.message
    except FlyballError as error:
        yield error.message
