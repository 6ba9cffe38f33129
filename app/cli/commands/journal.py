"""``flyball journal``: the record of everything."""

import asyncio
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path

import click

from app.cli.bus import connected
from app.cli.output import note, tell, write_json
from app.cli.place import Place, json_option, placed
from app.cli.selecting import open_journal
from app.core import FlyballError, derive_id
from app.events import Envelope, Event, EventVoided, Payload, decode, follow, originate
from app.events.frames import DeadLetter
from app.journal import DamagedDatabase, OtherFormat, SqliteJournal, history, rebuild
from app.runtime.clock import SystemClock
from app.runtime.past import letters_about_events, voided_events


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
        note(
            f"Damage in {count} {'place' if count == 1 else 'places'}. `flyball journal rebuild` mends what follows "
            "from the records; where those are damaged, restore the journal from a copy."
        )
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


@journal.command()
@click.option("--void", "position", type=click.IntRange(1), help="Leave the event at this position out from now on.")
@click.option("--reason", help="Why; needed with --void.")
@click.option("--timeout", default=10.0, show_default=True, type=click.FloatRange(0, min_open=True), help="Seconds.")
@json_option
@placed
def repair(place: Place, *, position: int | None, reason: str | None, timeout: float, as_json: bool) -> None:
    """List the events that a daemon could not read or fold; leave one out of every fold with --void.

    Such an event was left out by the reducer that failed; the others may have folded it. Voiding it is recorded as
    EVENT_VOIDED. Every daemon then folds the journal again without the event; what was decided before stays as it is.
    """
    if (position is None) != (not reason):
        raise click.UsageError("--void and --reason go together: which event, and why it is left out.")
    with open_journal(place) as reader:
        letters, voided = letters_about_events(reader), voided_events(reader)
        if position is None:
            _list_letters(letters, voided, as_json=as_json)
            return
        about = [letter for letter in letters if letter.position == position]
        if not about:
            hint = "List those that can be voided: flyball journal repair"
            raise NothingToVoid(f"No daemon failed to read or fold the event at position {position}.", hint=hint)
        if position in voided:
            note(f"The event at position {position} was voided before, at position {voided[position].sequence}.")
            return
        event = next(history(reader, after=position - 1, on_dead=lambda _: None), None)
    envelope = _void(position, str(reason), event if event and event.sequence == position else None)
    recorded = asyncio.run(_publish(place, envelope, timeout))
    tell({"position": recorded, "id": envelope.id}, as_json=as_json)


def _list_letters(letters: Sequence[DeadLetter], voided: Mapping[int, Event[EventVoided]], *, as_json: bool) -> None:
    for letter in letters:
        void = voided.get(letter.position)
        row = {
            "position": letter.position,
            "event": _name(letter),
            "by": letter.reporter,
            "error": " ".join(letter.error.split()),
            "voided": void and void.data.reason,
        }
        if as_json:
            write_json(row)
        else:
            state = f"voided: {row['voided']}" if void else "open"
            click.echo(f"{row['position']:>9}  {row['event']}  by {row['by']}  {state}\n{'':>11}{row['error']}")
    still = {letter.position for letter in letters} - voided.keys()
    if still:
        note(f"{len(still)} events are left out where they failed. To leave one out everywhere: --void N --reason WHY")
    else:
        note("No event waits for a repair.")


def _name(letter: DeadLetter) -> str:
    """Return what a dead letter holds: the event's name and its configuration, as far as it can be read."""
    try:
        envelope = decode(letter.body)
    except FlyballError:
        return "unreadable"
    return f"{envelope.data.seed_name} {envelope.subject or ''}".rstrip()


def _void(position: int, reason: str, event: Event[Payload] | None) -> Envelope[Payload]:
    """Write that an event is voided, caused by the event if it can be read. Done twice, it is recorded once."""
    data, now = EventVoided(position=position, reason=reason), SystemClock().now()
    if event is None:
        return originate(data, event_id=derive_id("void", position), time=now)
    return follow(data, event.cause, by="void", time=now)


async def _publish(place: Place, envelope: Envelope[Payload], deadline_s: float) -> int:
    async with connected(place, place.load(), deadline_s) as bus:
        return await bus.publish(envelope)
