"""Publishing events by hand: permitted types, fitting data, acknowledgement."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

from pydantic import ValidationError

from flyball.app.api.runs import RunLocation, Say, check_config, complaint, current_model, open_journal
from flyball.app.api.selection import Selection
from flyball.app.bus import BROKER_ONLY, BrokerUnavailable, Bus
from flyball.app.core import HASH_DIGITS, NAME_LENGTH, BadUsage, FlyballError, ModelHash
from flyball.app.events import (
    Envelope,
    Event,
    EventVoided,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    RollbackRequested,
    Scope,
    TrainingCompleted,
)
from flyball.app.journal import JournalReader, NotAJournal

_BEGINNING = re.compile(f"[0-9a-f]{{{HASH_DIGITS},63}}")
"""The beginning of a model's hash."""

SOME = 3
"""Ids named when many events were not acknowledged."""


class BadData(FlyballError, code="usage"):
    """The data does not fit the event type."""


class IdTaken(FlyballError):
    """Another event is recorded under this id."""


class NotAcknowledged(FlyballError, code="unavailable"):
    """The broker did not confirm in time that it recorded the events."""


def payload_of(kind: type[Payload], data: str | Mapping[str, Any]) -> Payload:
    """Return a payload of JSON, or of values by field. Raises ``BadData``."""
    hint = f"See: flyball events schema {kind.event_name}"
    try:
        text = data if isinstance(data, str) else json.dumps(data)
        return kind.model_validate_json(text, strict=True)
    except ValidationError as error:
        errors = error.errors(include_url=False)
        what = "; ".join(f"{'.'.join(map(str, item['loc'])) or 'data'}: {item['msg']}" for item in errors)
        raise BadData(f"The data does not fit {kind.event_name}: {what}.", hint=hint) from error
    except TypeError as error:  # values that JSON does not know
        raise BadData(f"The data does not fit {kind.event_name}: {error}.", hint=hint) from error


def with_whole_hashes(location: RunLocation, kind: type[Payload], data: str, say: Say) -> str:
    """Return JSON data in which models' hashes are whole that were written as displays show them, by their beginnings.

    Raises ``BadData`` for the beginning of no known model's hash, or of several. ``payload_of`` refuses other mistakes.
    """
    fields = [name for name, field in kind.model_fields.items() if _is_model(field.annotation)]
    try:
        values = json.loads(data)
        given = {name: str(values[name]) for name in fields if name in values}
    except (ValueError, TypeError):  # no JSON, or no object
        return data
    beginnings = {name: text for name, text in given.items() if _BEGINNING.fullmatch(text)}
    if not beginnings:
        return data
    with suppress(NotAJournal), open_journal(location) as reader:
        made = Selection(frozenset({TrainingCompleted, ModelPromoted}), None).read(reader, on_dead=complaint(say))
        models = {event.data.model for event in made}
        for name, beginning in beginnings.items():
            matches = sorted(model for model in models if model.startswith(beginning))
            if not matches:
                raise BadData(f"No known model's hash begins with {beginning}.", hint="See: flyball state")
            if len(matches) > 1:
                raise BadData(f"{len(matches)} models' hashes begin with {beginning}.", hint="Write more of the hash.")
            values[name] = matches[0]
    return json.dumps(values)


def _is_model(annotation: Any) -> bool:
    """Return whether a field is a model's hash."""
    return ModelHash in (annotation, *get_args(annotation))


def check_id(event_id: str | None) -> None:
    """Refuse an id that no event can have. Raises ``BadUsage``."""
    if event_id is not None and not 0 < len(event_id) <= NAME_LENGTH:
        raise BadUsage(f"The id has {len(event_id)} characters; an id has 1 to {NAME_LENGTH}.")


def check_publishable(kind: type[Payload]) -> None:
    """Refuse an event type that only others may publish. Raises ``BadUsage``."""
    if kind.event_type in BROKER_ONLY:
        raise BadUsage(
            f"Only the broker publishes {kind.event_name}. To change a run's settings, change flyball.toml and start "
            "the run again."
        )
    if kind is EventVoided:
        raise BadUsage(
            "Only an event that a daemon failed at can be voided: flyball journal repair --void N --reason WHY"
        )


def check_scope(
    location: RunLocation, payload: Payload, config_key: str | None, event_id: str | None, say: Say
) -> None:
    """Refuse an event about the wrong subject. Raises ``BadUsage``, ``UnknownConfig`` or ``BadData``."""
    if payload.scope is Scope.SYSTEM:
        if config_key is not None:
            raise BadUsage(f"{payload.event_name} is about the whole system: leave its config key out.")
        return
    if config_key is None:
        raise BadUsage(f"{payload.event_name} is about one configuration: name its config key.")
    try:
        with open_journal(location) as reader:
            check_config(reader, config_key)
            if isinstance(payload, ModelRolledBack | RollbackRequested):
                _check_rollback(location, reader, payload, config_key, event_id, say=say)
    except NotAJournal:
        check_config(None, config_key)


def _check_rollback(
    location: RunLocation,
    reader: JournalReader,
    payload: ModelRolledBack | RollbackRequested,
    config_key: str,
    event_id: str | None,
    *,
    say: Say,
) -> None:
    """Refuse a rollback from a model that is not current: it would undo later promotions, or be ignored."""
    recorded = Selection(frozenset({type(payload)}), config_key).read(reader, on_dead=complaint(say))
    if event_id is not None and any(event.id == event_id for event in recorded):
        return  # already recorded: publishing it again changes nothing
    field = "from_model" if isinstance(payload, ModelRolledBack) else "model"
    model, current = getattr(payload, field), current_model(location, reader, config_key, say)
    is_early = current is None and isinstance(payload, RollbackRequested)
    if model != current and not is_early:
        raise BadData(
            f"{field} is {model}, but the current model of {config_key} is {current or 'none yet'}.",
            hint=f"Was it published before? To roll back the current model, name it as {field}.",
        )


async def publish_on(bus: Bus, envelopes: Sequence[Envelope[Payload]], say: Say, *, own_id: bool) -> tuple[int, ...]:
    """Publish events and return their positions. Raises ``NotAcknowledged``.

    With ``own_id``, the user chose the first event's id, so it may be recorded already. Raises ``IdTaken`` if the
    recorded event is a different one.
    """
    try:
        positions = await bus.publish_many(envelopes)
        if own_id:
            _check_same(envelopes[0], await _recorded_at(bus, positions[0]), positions[0], say)
    except BrokerUnavailable as error:
        more = f" and {len(envelopes) - SOME} more" if len(envelopes) > SOME else ""
        ids = ", ".join(envelope.id for envelope in envelopes[:SOME])
        raise NotAcknowledged(
            f"The broker at {error.endpoint} did not acknowledge {ids}{more} within {error.seconds:g} s. "
            "It may have been recorded all the same.",
            hint="Publish it again under the same id: then it is recorded once.",
        ) from error
    return positions


async def _recorded_at(bus: Bus, position: int) -> Event[Any] | None:
    """Return the event at a position; ``None`` if it can't be read."""
    async with bus.subscribe(after=position - 1) as subscription:
        async for batch in subscription:
            if batch.position >= position:
                return next((event for event in batch.events if event.sequence == position), None)
    return None


def _check_same(envelope: Envelope[Payload], event: Event[Any] | None, position: int, say: Say) -> None:
    """Refuse an id under which another event is recorded. Raises ``IdTaken``."""
    if event is None or (event.envelope.data, event.envelope.subject) != (envelope.data, envelope.subject):
        what = f"{event.data.event_name} about {event.subject or 'the system'}" if event else "an unreadable event"
        raise IdTaken(
            f"The id {envelope.id} is taken: {what} with other content is recorded under it at position {position}.",
            hint=f"Choose another id. See: flyball trace {envelope.id}",
        )
    if event.envelope.time != envelope.time:
        say("Already recorded with the same content: nothing new is recorded.")
