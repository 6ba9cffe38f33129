"""Whole CloudEvents read back: what ``Event.to_cloudevent`` and other CloudEvents programs write.

Source: CloudEvents 1.0.2, JSON event format: an attribute that is null is an attribute that is unset.
"""

from collections.abc import Mapping
from datetime import timedelta
from typing import Annotated, Any

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, ValidationError
from pydantic_core import from_json, to_json

from app.events.codec import MalformedEvent, decode, malformed
from app.events.envelope import EPOCH, Envelope, Event
from app.events.payload import Payload

MAX_SEQUENCE = 2**63 - 1


class _Stamps(BaseModel):
    model_config = ConfigDict(frozen=True)

    source: Annotated[str, Field(min_length=1)]
    sequence: Annotated[int, Field(ge=1, le=MAX_SEQUENCE)]
    recordedtime: AwareDatetime


def from_cloudevent(body: bytes | Mapping[str, Any]) -> Event[Payload]:
    """Read a recorded event: the inverse of ``Event.to_cloudevent``.

    Args:
        body: the event in CloudEvents' structured JSON form, as bytes or parsed.

    Raises:
        MalformedEvent: no event of ours, or one that no broker has recorded; the hint names the field.
        NoUpcast: the payload's version is newer than this program, or can't be lifted.
    """
    attributes = _attributes(body)
    envelope = _envelope(attributes)
    try:
        stamps = _Stamps.model_validate(attributes)
    except ValidationError as error:
        raise malformed(error) from error
    recorded_us = (stamps.recordedtime - EPOCH) // timedelta(microseconds=1)
    return Event(envelope, sequence=stamps.sequence, recorded_us=recorded_us, source=stamps.source)


def envelope_of(body: bytes | Mapping[str, Any]) -> Envelope[Payload]:
    """Read an event to publish it. Stamps it may bear are left out: the broker sets its own.

    Raises:
        MalformedEvent: no event of ours; the hint names the field.
        NoUpcast: the payload's version is newer than this program, or can't be lifted.
    """
    return _envelope(_attributes(body))


def _attributes(body: bytes | Mapping[str, Any]) -> Mapping[str, Any]:
    try:
        parsed = from_json(body) if isinstance(body, bytes) else body
    except ValueError as error:
        raise MalformedEvent(f"Malformed event: no JSON: {error}.", hint="Look at the whole of it.") from error
    if not isinstance(parsed, Mapping):
        raise MalformedEvent("Malformed event: it is no JSON object.", hint="Look at the whole of it.")
    return {name: value for name, value in parsed.items() if value is not None}


def _envelope(attributes: Mapping[str, Any]) -> Envelope[Payload]:
    try:
        body = to_json({name: value for name, value in attributes.items() if name not in _Stamps.model_fields})
    except ValueError as error:
        raise MalformedEvent(f"Malformed event: {error}.", hint="Pass what JSON can say.") from error
    return decode(body)
