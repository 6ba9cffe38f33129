"""Bytes read as envelopes.

msgspec reads the envelope and says of which type the payload is, whose own validator reads that: less than half the
time that pydantic takes for the whole. What does not fit is read once more as a whole, by the models that the JSON
Schemas are made from: they say what is wrong, and have the last word.
"""

from collections.abc import Callable
from functools import reduce
from operator import or_
from typing import Annotated, Any, NamedTuple, cast

from msgspec import Raw, Struct
from msgspec.json import Decoder
from msgspec.structs import force_setattr
from pydantic import Field, TypeAdapter, ValidationError
from pydantic_core import from_json, to_json

from app.core import FlyballError
from app.events.catalogue import BY_TYPE, CATALOGUE, ENVELOPES, UnknownEventType, resolve
from app.events.envelope import EPOCH, LATEST, Envelope, EnvelopeModel
from app.events.payload import Payload, Scope
from app.events.upcasts import lift


class MalformedEvent(FlyballError):
    """These bytes are no event of ours. ``hint`` says which field is wrong."""


_reader: TypeAdapter[EnvelopeModel[Payload]] = TypeAdapter(
    Annotated[reduce(or_, ENVELOPES.values()), Field(discriminator="type")]  # type: ignore[arg-type]
)


class _Named(Struct):
    """Id of an event; other fields are skipped."""

    id: str


class _Kind(NamedTuple):
    """Cached tools to read events of one type."""

    dataversion: int
    about_config: bool
    validate: Callable[..., Payload]


_KINDS = {
    payload.event_type: _Kind(
        payload.dataversion,
        payload.scope is Scope.CONFIG,
        payload.__pydantic_validator__.validate_json,
    )
    for payload in CATALOGUE
}
_open = Decoder(Envelope[Raw]).decode  # type: ignore[type-var]
_name = Decoder(_Named).decode


def id_in(body: bytes) -> str | None:
    """Return the id of an event, without reading the rest; ``None`` if malformed."""
    try:
        return _name(body).id
    except ValueError:
        return None


def decode(body: bytes) -> Envelope[Payload]:
    """Read an envelope, lifting an older version of its payload to the present one.

    Raises:
        MalformedEvent: not JSON, no known type, or fields that don't fit; the hint names them.
        NoUpcast: the payload's version is newer than this program, or can't be lifted.
    """
    try:
        return _decode_fast(body)
    except (ValueError, KeyError, RecursionError):
        return _decode_slowly(body)


def _decode_fast(body: bytes) -> Envelope[Payload]:
    """Read an envelope of the present version in which nothing is wrong.

    Raises:
        ValueError: it is something else, or not JSON.
        KeyError: there is no such event type.
        RecursionError: it is nested too deeply.
    """
    envelope = _open(body)
    dataversion, about_config, validate = _KINDS[envelope.type]
    if (
        envelope.dataversion != dataversion
        or (envelope.subject is None) is about_config
        or not EPOCH <= envelope.time < LATEST
    ):
        raise ValueError(envelope.type)
    force_setattr(envelope, "data", validate(bytes(envelope.data), strict=True))  # nobody has seen it yet
    return cast("Envelope[Payload]", envelope)


def _decode_slowly(body: bytes) -> Envelope[Payload]:
    try:
        return _read_whole(body)
    except ValidationError as error:
        return _decode_lifted(body, error)


def _read_whole(body: bytes) -> Envelope[Payload]:
    model: EnvelopeModel[Payload] = _reader.validator.validate_json(body, strict=True)
    return model.envelope()


def _decode_lifted(body: bytes, error: ValidationError) -> Envelope[Payload]:
    try:
        raw: dict[str, Any] = from_json(body)
        payload, version, data = BY_TYPE[raw["type"]], raw["dataversion"], raw["data"]
    except (ValueError, KeyError, TypeError) as broken:
        raise malformed(error) from broken
    if type(version) is not int or version == payload.dataversion or not isinstance(data, dict):
        raise malformed(error) from error
    lifted = _lift(payload, data, version)
    try:
        body = to_json(raw | {"data": lifted, "dataversion": payload.dataversion})
        return _read_whole(body)
    except ValidationError as unfit:
        raise malformed(unfit) from unfit


def _lift(payload: type[Payload], data: dict[str, Any], version: int) -> dict[str, Any]:
    try:
        return lift(payload.event_type, data, version, payload.dataversion)
    except (LookupError, TypeError, ValueError, AttributeError) as unfit:  # what upcasts meet in unfit data
        message = f"Malformed event: {payload.event_name} of version {version} could not be lifted: {unfit!r}."
        raise MalformedEvent(message, hint="Look at data.") from unfit


def malformed(error: ValidationError) -> MalformedEvent:
    """Say in one line what a validation found."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "union_tag_invalid":
        return _unknown_type(first["ctx"]["tag"])
    if first["type"] == "union_tag_not_found":
        return MalformedEvent("Malformed event: it has no type.", hint="Set type; list them with: flyball events list")
    where = ".".join(str(part) for part in first["loc"] if part not in BY_TYPE) or "the event"
    return MalformedEvent(f"Malformed event: {first['msg']}.", hint=f"Look at {where}.")


def _unknown_type(name: str) -> MalformedEvent:
    try:
        hint = f"Its type is {resolve(name).event_type!r} in full."
    except UnknownEventType as unknown:
        hint = unknown.hint
    return MalformedEvent(f"Malformed event: there is no event type {name!r}.", hint=hint)
