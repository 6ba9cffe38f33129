"""``flyball journal``: look after the journal and dead letters.

The commands verify, back up, archive, migrate, rebuild and repair the journal.
"""

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path

import click

from flyball.app.api.runs import RunLocation, connected, find_broker, no_run, open_journal
from flyball.app.bus import BROKER_ONLY, JournalPublisher, ZmqBus
from flyball.app.cli.journal_archive import archive, copy_command, delete, export, import_command
from flyball.app.cli.journal_ship import restore, ship
from flyball.app.cli.options import json_option, run_options, timeout_option
from flyball.app.cli.output import echo, note, write_row, write_values
from flyball.app.core import FlyballError, derive_id
from flyball.app.core.sizes import size_text
from flyball.app.events import Envelope, Event, EventVoided, Payload, decode, follow, originate
from flyball.app.events.frames import DeadLetter, Frame
from flyball.app.journal import DamagedDatabase, Journal, OtherFormat, history
from flyball.app.journal.history import recorded_dead_letters, voided_events
from flyball.app.journal.ports import JournalLocation
from flyball.daemons.clock import SystemClock

NOT_RETRIED = BROKER_ONLY | {EventVoided.event_type}
"""Types that nobody may publish by hand; `flyball emit` refuses them too."""


class NothingToVoid(FlyballError, code="unknown"):
    """No daemon failed at this event."""


class UnknownDeadLetter(FlyballError, code="unknown"):
    """There is no dead letter of this number."""


class NotRetriable(FlyballError, code="usage"):
    """The events of a dead letter can't be published again."""


@click.group()
def journal() -> None:
    """Look after the journal."""


for command in (archive, copy_command, delete, export, import_command, ship, restore):
    journal.add_command(command)


@journal.command()
@json_option
@run_options
def verify(location: RunLocation, *, as_json: bool) -> None:
    """Check the whole journal and list all damage.

    The exit code is 1 if there is any. The check covers the structure of the file, every record, every row of the other
    tables, and whether records and rows agree. A broker may be running meanwhile.
    """
    count = 0
    for count, problem in enumerate(_problems(location), 1):  # noqa: B007 - counted
        write_row({"damage": problem}, problem, as_json=as_json)
    if count:
        note(
            f"Damage in {count} {'place' if count == 1 else 'places'}. `flyball journal rebuild` mends what follows "
            "from the records; where those are damaged, restore the journal from a copy."
        )
        sys.exit(1)
    note("No damage found.")


def _problems(location: RunLocation) -> Iterator[str]:
    """Iterate over damage, as far as the file can be read."""
    try:
        with open_journal(location) as reader:
            for damage in reader.damage():
                yield damage.message
    except DamagedDatabase as error:
        yield error.message


@journal.command()
@click.argument("path", metavar="FILE", type=click.Path(path_type=Path))
@run_options
def backup(location: RunLocation, path: Path) -> None:
    """Copy the journal into a new FILE.

    A broker may be running meanwhile. The copy is the journal of one moment, checked as by `flyball journal verify`;
    archived records are copied into the folder archive beside FILE. To restore it, stop the run, move its files
    journal.sqlite* and its folders archive, state and outbox away, copy FILE to journal.sqlite and that archive beside
    it, and start: the daemons rebuild their state. What was recorded after the backup is lost. Models and shards are in
    the folder store. The FILE of a journal in a database goes back into an empty one by `flyball journal copy`.
    """
    if not location.journal.exists():
        raise no_run(location.folder)
    head = location.journal.backup(path)
    note(f"{path} holds the journal up to position {head}, {size_text(path.stat().st_size)}, without damage.")


@journal.command()
@run_options
def migrate(location: RunLocation) -> None:
    """Bring a journal of an earlier version to the current format.

    Every start of the run does so too.
    """
    with closing(_existing(location).writer()) as writer:
        note(f"The journal has the current format; its last event is at position {writer.head}.")


@journal.command("rebuild")
@run_options
def rebuild_command(location: RunLocation) -> None:
    """Rebuild a damaged journal whose records are sound.

    The records are copied into a new file, and the other tables are derived from them. The damaged file is kept
    under another name. A damaged record can't be rebuilt: restore the journal from a copy.
    """
    rebuilt = _existing(location).rebuild()
    for lost in rebuilt.lost:
        echo(f"Lost: {lost}")
    note(f"Rebuilt up to position {rebuilt.head}; the damaged file is kept as {rebuilt.before}.")


def _existing(location: RunLocation) -> JournalLocation:
    """Return where the run's journal is, even if damaged or old. Raises ``NotAJournal``."""
    with suppress(DamagedDatabase, OtherFormat), open_journal(location):
        pass
    return location.journal


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
@run_options
def repair(location: RunLocation, *, position: int | None, reason: str | None, timeout: float, as_json: bool) -> None:
    """List the events that a daemon failed at, or void one.

    A daemon fails at an event that it cannot read or fold; --void voids one. The reducer that failed has skipped the
    event; other reducers may have folded it. Voiding is recorded as EVENT_VOIDED. Every daemon then folds the journal
    again without the event; earlier decisions stay as they are.
    """
    if (position is None) != (not reason):
        raise click.UsageError("--void and --reason go together: give the event's position, and why it is voided.")
    with open_journal(location) as reader:
        failed, voided = recorded_dead_letters(reader), voided_events(reader)
        if position is None:
            _list_failed_events(failed, voided, as_json=as_json)
            return
        if not any(dead.position == position for dead in failed):
            hint = "List those that can be voided: flyball journal repair"
            raise NothingToVoid(f"No daemon failed to read or fold the event at position {position}.", hint=hint)
        if position in voided:
            note(f"The event at position {position} was voided before, by the event at {voided[position].sequence}.")
            return
        event = next(history(reader, after=position - 1, on_dead=lambda _: None), None)
    envelope = _void(position, str(reason), event if event and event.sequence == position else None)

    async def publish() -> int:
        async with connected(location, timeout) as bus:
            return await bus.publish(envelope)

    recorded = asyncio.run(publish())
    write_values({"position": recorded, "id": envelope.id}, as_json=as_json)


def _list_failed_events(
    failed: Sequence[DeadLetter], voided: Mapping[int, Event[EventVoided]], *, as_json: bool
) -> None:
    for dead in failed:
        void = voided.get(dead.position)
        row = {
            "position": dead.position,
            "event": ", ".join(_event_names(dead)) or "unreadable",
            "by": dead.reporter,
            "error": " ".join(dead.error.split()),
            "voided": void and void.data.reason,
        }
        state = f"voided: {row['voided']}" if void else "open"
        text = f"{row['position']:>9}  {row['event']}  by {row['by']}  {state}\n{'':>11}{row['error']}"
        write_row(row, text, as_json=as_json)
    still = {dead.position for dead in failed} - voided.keys()
    if still:
        note(f"{len(still)} failed events. To void one: flyball journal repair --void POSITION --reason WHY")
    else:
        note("No failed events.")


def _event_names(dead: DeadLetter) -> list[str]:
    """Return the names and configurations of a dead letter's events. Empty if the events are unreadable."""
    try:
        return [f"{envelope.data.event_name} {envelope.subject or ''}".rstrip() for envelope in _events(dead)]
    except FlyballError:
        return []


def _events(dead: DeadLetter) -> list[Envelope[Payload]]:
    """Read the events of a dead letter.

    The body is a whole frame if the broker refused it, otherwise one event.

    Raises:
        DamagedFrame: the frame was damaged on its way to the broker.
        MalformedEvent, NoUpcast: an event can't be read.
    """
    bodies = [dead.body] if dead.position else Frame.parse(dead.body).bodies()
    return [decode(body) for body in bodies]


def _void(position: int, reason: str, event: Event[Payload] | None) -> Envelope[Payload]:
    """Return the EVENT_VOIDED for an event. A repetition has the same id, so that it records nothing new."""
    data, now = EventVoided(position=position, reason=reason), SystemClock().now()
    if event is None:
        return originate(data, event_id=derive_id("void", position), time=now)
    return follow(data, event.cause, by="void", time=now)


@journal.group("dead-letters")
def dead_letters() -> None:
    """List, retry or discard dead letters.

    Dead letters are events that were refused, or that a daemon could not read or fold. Commands take the numbers that
    `list` shows. They work on a run whether or not it is running.
    """


@dead_letters.command("list")
@json_option
@run_options
def list_dead_letters(location: RunLocation, *, as_json: bool) -> None:
    """List all dead letters, oldest first.

    A line has the number, the events and their sender; then, for refused events, which are not recorded, "refused by"
    the broker, and for recorded ones their position and the daemon that failed. The next line has the error. After a
    removal, a number may be given again: list them before the next command.
    """
    with open_journal(location) as reader:
        letters = reader.dead_letters()
    for dead in letters:
        names, error = _event_names(dead), " ".join(dead.error.split())
        where = f"at position {dead.position}, failed in" if dead.position else "refused by"
        text = f"{dead.number:>7}  {_counts_text(names)} from {dead.producer}, {where} {dead.reporter}\n{'':>9}{error}"
        row = {"number": dead.number, "position": dead.position or None, "events": names}
        write_row(row | {"producer": dead.producer, "by": dead.reporter, "error": error}, text, as_json=as_json)
    refused = sum(not dead.position for dead in letters)
    note(f"{len(letters)} dead letters: {refused} of refused events, {len(letters) - refused} of recorded ones.")


def _counts_text(names: Sequence[str]) -> str:
    counts = Counter(names).items()
    return ", ".join(f"{count} {name}" if count > 1 else name for name, count in counts) or "unreadable"


numbers_argument = click.argument("numbers", metavar="NUMBER...", nargs=-1, required=True, type=click.IntRange(1))


@dead_letters.command()
@numbers_argument
@timeout_option
@json_option
@run_options
def retry(location: RunLocation, *, numbers: tuple[int, ...], timeout: float, as_json: bool) -> None:
    """Publish refused events again, then remove their dead letters.

    The events keep their ids: an event that was recorded since under its id is not recorded again. Nothing is published
    unless all of these dead letters can be retried. Events that are recorded are refused here, because they would count
    twice: see `flyball journal repair`. If the run is not running, the events are recorded at once, and read at its
    next start.
    """
    chosen, head = _select(location, numbers)
    retried = [(dead, _retriable(dead)) for dead in chosen]

    published = list[tuple[int, int, str]]()

    async def publish() -> None:
        async with _writer(location, timeout) as writer:
            for dead, envelopes in retried:
                positions = await writer.publish_many(envelopes)
                await writer.discard_dead_letter(dead.number)
                for position, envelope in zip(positions, envelopes, strict=True):
                    published.append((dead.number, position, envelope.id))

    asyncio.run(publish())
    for number, position, event_id in published:  # last, because a closed pipe ends the command
        write_row({"number": number, "position": position, "id": event_id}, f"{position} {event_id}", as_json=as_json)
        if position <= head:
            note(f"{event_id} was recorded before: nothing new is recorded.")


@dead_letters.command()
@numbers_argument
@timeout_option
@json_option
@run_options
def discard(location: RunLocation, *, numbers: tuple[int, ...], timeout: float, as_json: bool) -> None:
    """Remove dead letters for good.

    `status` then no longer warns of an event that a daemon failed at, and the event can't be voided any more unless
    a daemon fails at it again.
    """
    chosen, _ = _select(location, numbers)

    async def remove() -> None:
        async with _writer(location, timeout) as writer:
            for dead in chosen:
                await writer.discard_dead_letter(dead.number)

    asyncio.run(remove())
    for dead in chosen:
        text = f"Discarded {dead.number}: {_counts_text(_event_names(dead))} from {dead.producer}"
        write_row({"discarded": dead.number}, text, as_json=as_json)


def _select(location: RunLocation, numbers: Sequence[int]) -> tuple[list[DeadLetter], int]:
    """Return the dead letters of these numbers, and the journal's end. Raises ``UnknownDeadLetter``."""
    with open_journal(location) as reader:
        letters, head = {dead.number: dead for dead in reader.dead_letters()}, reader.head
    if unknown := [number for number in numbers if number not in letters]:
        raise UnknownDeadLetter(
            f"There is no dead letter {', '.join(map(str, unknown))}.",
            hint="To see the numbers: flyball journal dead-letters list",
        )
    return [letters[number] for number in dict.fromkeys(numbers)], head


def _retriable(dead: DeadLetter) -> list[Envelope[Payload]]:
    """Return the events that a retry publishes. Raises ``NotRetriable``."""
    if dead.position:
        raise NotRetriable(
            f"The event of dead letter {dead.number} is recorded, at position {dead.position}: published again, it "
            "would count twice.",
            hint=f"To have every daemon skip it: flyball journal repair --void {dead.position} --reason WHY. To have "
            f"it happen again after that: flyball replay --from {dead.position} --to {dead.position}",
        )
    hint = f"Its sender may publish it again. To remove it: flyball journal dead-letters discard {dead.number}"
    try:
        envelopes = _events(dead)
    except FlyballError as error:
        raise NotRetriable(f"Dead letter {dead.number} can't be read: {error.message}", hint=hint) from error
    if reserved := sorted({envelope.data.event_name for envelope in envelopes if envelope.type in NOT_RETRIED}):
        what = f"Dead letter {dead.number} holds {', '.join(reserved)}, which is not published by hand."
        raise NotRetriable(what, hint=hint)
    return envelopes


class _StoppedRun:
    """Writes the journal directly when the run is not running. It takes the place of a ``ZmqBus``."""

    def __init__(self, journal: Journal, producer: str) -> None:
        self._journal, self._producer = journal, producer
        self._publisher = JournalPublisher(journal, SystemClock())

    async def publish_many(self, envelopes: Sequence[Envelope[Payload]]) -> tuple[int, ...]:
        return self._publisher.publish(envelopes, self._producer)

    async def discard_dead_letter(self, number: int) -> None:
        self._journal.remove_dead_letter(number)


@asynccontextmanager
async def _writer(location: RunLocation, deadline_s: float) -> AsyncIterator[ZmqBus | _StoppedRun]:
    """Connect to the run's broker; without one, open the journal for writing.

    Raises:
        StorageInUse: the broker is just starting, or another command writes the journal.
    """
    deployment = location.load().deployment
    if find_broker(location.folder, deployment).listens:
        async with connected(location, deadline_s) as bus:
            yield bus
    else:
        with closing(location.journal.writer()) as journal:
            yield _StoppedRun(journal, f"cli@{deployment.node}")
