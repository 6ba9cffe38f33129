"""``flyball journal``: verify, migrate, rebuild and repair the journal."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import click

from app.cli.options import Place, connected, json_option, placed, timeout_option
from app.cli.output import note, write_row, write_values
from app.cli.selection import open_journal
from app.core import FlyballError, derive_id
from app.events import Envelope, Event, EventVoided, Payload, decode, follow, originate
from app.events.frames import DeadLetter
from app.journal import DamagedDatabase, OtherFormat, SqliteJournal, history, rebuild
from app.journal.history import recorded_dead_letters, voided_events
from daemons.clock import SystemClock


class NothingToVoid(FlyballError):
    """No daemon failed at this event."""


@click.group()
def journal() -> None:
    """Look after the journal."""


@journal.command()
@json_option
@placed
def verify(place: Place, *, as_json: bool) -> None:
    """Check the whole journal and list all damage. Exit code 1 when there is any.

    The check covers the structure of the file, every record, every row of the other tables, and whether records and
    rows agree. A broker may be running meanwhile.
    """
    count = 0
    for count, problem in enumerate(_problems(place), 1):  # noqa: B007 - counted
        write_row({"damage": problem}, problem, as_json=as_json)
    if count:
        note(
            f"Damage in {count} {'place' if count == 1 else 'places'}. `flyball journal rebuild` mends what follows "
            "from the records; where those are damaged, restore the journal from a copy."
        )
        sys.exit(1)
    note("No damage found.")


def _problems(place: Place) -> Iterator[str]:
    """Iterate over damage, as far as the file can be read."""
    try:
        with open_journal(place) as reader:
            for damage in reader.damage():
                yield damage.message
    except DamagedDatabase as error:
        yield error.message


@journal.command()
@placed
def migrate(place: Place) -> None:
    """Bring a journal of an earlier version to the current format. Every start of the run does so too."""
    with closing(SqliteJournal(_existing(place))) as writer:
        note(f"The journal has the current format; its last event is at position {writer.head}.")


@journal.command("rebuild")
@placed
def rebuild_command(place: Place) -> None:
    """Rebuild a damaged journal whose records are sound.

    The records are copied into a new file, and the other tables are derived from them. The damaged file is kept
    under another name. A damaged record can't be rebuilt: restore the journal from a copy.
    """
    rebuilt = rebuild(_existing(place))
    for lost in rebuilt.lost:
        click.echo(f"Lost: {lost}")
    note(f"Rebuilt up to position {rebuilt.head}; the damaged file is kept as {rebuilt.before}.")


def _existing(place: Place) -> Path:
    """Return the path of the run's journal, damaged or old as it may be. Raises ``NotAJournal``."""
    with suppress(DamagedDatabase, OtherFormat), open_journal(place):
        pass
    return place.folder.journal


@journal.command()
@click.option(
    "--void",
    "position",
    type=click.IntRange(1),
    help="Void the event at this position: every daemon skips it from then on.",
)
@click.option("--reason", help="Why the event is voided; required with --void.")
@timeout_option
@json_option
@placed
def repair(place: Place, *, position: int | None, reason: str | None, timeout: float, as_json: bool) -> None:
    """List the events that a daemon could not read or fold; void one with --void.

    The reducer that failed has skipped the event; other reducers may have folded it. Voiding is recorded as
    EVENT_VOIDED. Every daemon then folds the journal again without the event; earlier decisions stay as they are.
    """
    if (position is None) != (not reason):
        raise click.UsageError("--void and --reason go together: give the event's position, and why it is voided.")
    with open_journal(place) as reader:
        dead, voided = recorded_dead_letters(reader), voided_events(reader)
        if position is None:
            _list_dead_letters(dead, voided, as_json=as_json)
            return
        if position not in {letter.position for letter in dead}:
            hint = "List those that can be voided: flyball journal repair"
            raise NothingToVoid(f"No daemon failed to read or fold the event at position {position}.", hint=hint)
        if position in voided:
            note(f"The event at position {position} was voided before, by the event at {voided[position].sequence}.")
            return
        event = next(history(reader, after=position - 1, on_dead=lambda _: None), None)
    envelope = _void(position, str(reason), event if event and event.sequence == position else None)

    async def publish() -> int:
        async with connected(place, timeout) as bus:
            return await bus.publish(envelope)

    recorded = asyncio.run(publish())
    write_values({"position": recorded, "id": envelope.id}, as_json=as_json)


def _list_dead_letters(dead: Sequence[DeadLetter], voided: Mapping[int, Event[EventVoided]], *, as_json: bool) -> None:
    for letter in dead:
        void = voided.get(letter.position)
        row = {
            "position": letter.position,
            "event": _event_name(letter),
            "by": letter.reporter,
            "error": " ".join(letter.error.split()),
            "voided": void and void.data.reason,
        }
        state = f"voided: {row['voided']}" if void else "open"
        text = f"{row['position']:>9}  {row['event']}  by {row['by']}  {state}\n{'':>11}{row['error']}"
        write_row(row, text, as_json=as_json)
    still = {letter.position for letter in dead} - voided.keys()
    if still:
        note(f"{len(still)} failed events. To void one: flyball journal repair --void POSITION --reason WHY")
    else:
        note("No failed events.")


def _event_name(letter: DeadLetter) -> str:
    """Return the name and configuration of a dead letter's event, if readable."""
    try:
        envelope = decode(letter.body)
    except FlyballError:
        return "unreadable"
    return f"{envelope.data.event_name} {envelope.subject or ''}".rstrip()


def _void(position: int, reason: str, event: Event[Payload] | None) -> Envelope[Payload]:
    """Return the EVENT_VOIDED for an event; its id makes a repetition harmless."""
    data, now = EventVoided(position=position, reason=reason), SystemClock().now()
    if event is None:
        return originate(data, event_id=derive_id("void", position), time=now)
    return follow(data, event.cause, by="void", time=now)
