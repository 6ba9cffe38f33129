"""``flyball emit``: publish events by hand."""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click
from pydantic import ValidationError

from app.api.runs import Place, check_config, connected, current_model, open_journal
from app.api.selection import Selection
from app.bus import BROKER_ONLY, BrokerUnavailable, Bus
from app.cli.options import complete_types, json_option, placed, timeout_option
from app.cli.output import complain, note, write_json, write_row
from app.core import NAME_LENGTH, EventId, FlyballError, derive_id
from app.events import Envelope, Event, EventVoided, ModelRolledBack, Payload, Scope, originate, resolve
from app.journal import JournalReader, NotAJournal
from daemons.clock import SystemClock, boot_id

SOME = 3
"""Ids named when many events were not acknowledged."""


class BadData(FlyballError):
    """The data does not fit the event type."""


class IdTaken(FlyballError):
    """Another event is recorded under this id."""


class NotAcknowledged(FlyballError):
    """The broker did not confirm in time that it recorded the events."""


@click.command()
@click.argument("type_name", metavar="TYPE", shell_complete=complete_types)
@click.argument("data", default="{}")
@click.option("--config-key", help="The configuration the event is about.")
@click.option("--count", default=1, type=click.IntRange(1), help="How many, each with its own id.")
@click.option("--id", "event_id", help="The event's id. An id that is recorded already is not recorded again.")
@click.option("--dry-run", is_flag=True, help="Validate and print, don't publish.")
@timeout_option
@json_option
@placed
def emit(
    place: Place,
    type_name: str,
    data: str,
    *,
    config_key: str | None,
    count: int,
    event_id: str | None,
    dry_run: bool,
    timeout: float,
    as_json: bool,
) -> None:
    """Publish an event of TYPE (an event name such as EVALUATION_REQUESTED, or a type).

    DATA is its payload as JSON, @FILE to read it from a file, - to read it from stdin. Prints the position and the
    id of each event once it is durable.
    """
    kind = resolve(type_name)
    _check_usage(kind, event_id, count)
    payload = _payload(kind, _text(data))
    _check_scope(place, payload, config_key, event_id)
    boot, now = boot_id(), SystemClock().now()
    ids = [event_id or derive_id("cli", boot, number) for number in range(count)]
    envelopes = [originate(payload, event_id=EventId(one), time=now, subject=config_key) for one in ids]
    if dry_run:
        for envelope in envelopes:
            write_json(envelope.attributes())
        return
    positions = asyncio.run(_publish(place, envelopes, timeout, known=event_id is not None))
    for position, envelope in zip(positions, envelopes, strict=True):
        write_row({"position": position, "id": envelope.id}, f"{position} {envelope.id}", as_json=as_json)


def _check_usage(kind: type[Payload], event_id: str | None, count: int) -> None:
    if event_id is not None and (count > 1 or not event_id):
        raise click.UsageError("--id names one event: write an id, and leave --count out.")
    if event_id is not None and len(event_id) > NAME_LENGTH:
        raise click.UsageError(f"--id has {len(event_id)} characters; an id has at most {NAME_LENGTH}.")
    if kind.event_type in BROKER_ONLY:
        raise click.UsageError(
            f"Only the broker publishes {kind.event_name}. To change a run's settings, change flyball.toml and start "
            "the run again."
        )
    if kind is EventVoided:
        raise click.UsageError(
            "Only an event that a daemon failed at can be voided: flyball journal repair --void N --reason WHY"
        )


async def _publish(
    place: Place, envelopes: list[Envelope[Payload]], deadline_s: float, *, known: bool
) -> tuple[int, ...]:
    """Publish events and return their positions. Raises ``NotAcknowledged``.

    With ``known``, the user chose the first event's id, so it may be recorded already. Raises ``IdTaken`` if the
    recorded event is a different one.
    """
    async with connected(place, deadline_s) as bus:
        try:
            positions = await bus.publish_many(envelopes)
            if known:
                _check_same(envelopes[0], await _recorded_at(bus, positions[0]), positions[0])
        except BrokerUnavailable as error:
            more = f" and {len(envelopes) - SOME} more" if len(envelopes) > SOME else ""
            ids = ", ".join(envelope.id for envelope in envelopes[:SOME])
            raise NotAcknowledged(
                f"The broker at {error.endpoint} did not acknowledge {ids}{more} within {error.seconds:g} s. "
                "It may have been recorded all the same.",
                hint="Publish it again with --id and the same id: then it is recorded once.",
            ) from error
    return positions


async def _recorded_at(bus: Bus, position: int) -> Event[Any] | None:
    """Return the event at a position; ``None`` if it can't be read."""
    async with bus.subscribe(after=position - 1) as subscription:
        async for batch in subscription:
            if batch.position >= position:
                return next((event for event in batch.events if event.sequence == position), None)
    return None


def _check_same(wanted: Envelope[Payload], found: Event[Any] | None, position: int) -> None:
    """Refuse an id under which another event is recorded. Raises ``IdTaken``."""
    if found is None or (found.envelope.data, found.envelope.subject) != (wanted.data, wanted.subject):
        what = f"{found.data.event_name} about {found.subject or 'the system'}" if found else "an unreadable event"
        raise IdTaken(
            f"The id {wanted.id} is taken: {what} with other content is recorded under it at position {position}.",
            hint=f"Choose another id. See: flyball trace {wanted.id}",
        )
    if found.envelope.time != wanted.time:
        note("Already recorded with the same content: nothing new is recorded.")


def _text(data: str) -> str:
    if data == "-":
        return sys.stdin.read()
    if not data.startswith("@"):
        return data
    try:
        return Path(data[1:]).read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise BadData(f"{data[1:]} cannot be read: {error}.", hint="Name a file with JSON in UTF-8.") from error


def _payload(kind: type[Payload], text: str) -> Payload:
    try:
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        found = error.errors(include_url=False)
        what = "; ".join(f"{'.'.join(map(str, one['loc'])) or 'data'}: {one['msg']}" for one in found)
        hint = f"See: flyball events schema {kind.event_name}"
        raise BadData(f"This is no {kind.event_name}: {what}.", hint=hint) from error


def _check_scope(place: Place, payload: Payload, config_key: str | None, event_id: str | None) -> None:
    if payload.scope is Scope.SYSTEM:
        if config_key is not None:
            raise click.UsageError(f"{payload.event_name} is about the whole system: leave --config-key out.")
        return
    if config_key is None:
        raise click.UsageError(f"{payload.event_name} is about one configuration: add --config-key.")
    try:
        with open_journal(place) as reader:
            check_config(reader, config_key)
            if isinstance(payload, ModelRolledBack):
                _check_rollback(place, reader, payload, config_key, event_id)
    except NotAJournal:
        check_config(None, config_key)


def _check_rollback(
    place: Place, reader: JournalReader, wanted: ModelRolledBack, config_key: str, event_id: str | None
) -> None:
    """Refuse a rollback from a model that is not current, because it would undo every promotion since."""
    recorded = Selection(frozenset({ModelRolledBack}), config_key).read(reader, on_dead=complain)
    if event_id is not None and any(event.id == event_id for event in recorded):
        return  # already recorded: publishing it again changes nothing
    current = current_model(place, reader, config_key, note)
    if wanted.from_model != current:
        raise BadData(
            f"from_model is {wanted.from_model}, but the current model of {config_key} is {current or 'none yet'}.",
            hint="Was it published before? To roll back the current model, name it as from_model.",
        )
