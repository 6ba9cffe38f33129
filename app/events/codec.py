"""Bytes decoded as envelopes, and old versions of payloads lifted to the current one.

msgspec decodes the envelope, then the validator of the payload's type decodes ``data``; this takes less than half of
pydantic's time for the whole. Whatever fails is decoded again by the models that the JSON Schemas are made from, which
lift old versions and explain errors.
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


class MalformedEvent(FlyballError):
    """Bytes that are not one of our events; ``hint`` names the wrong field."""


_reader: TypeAdapter[EnvelopeModel[Payload]] = TypeAdapter(
    Annotated[reduce(or_, ENVELOPES.values()), Field(discriminator="type")]  # type: ignore[arg-type]
)


class _Identified(Struct):
    """Decodes the id of an event and skips the other fields."""

    id: str


class _Kind(NamedTuple):
    """Cached properties of an event type."""

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
_identify = Decoder(_Identified).decode


def id_in(body: bytes) -> str | None:
    """Return the id of an event, without reading the rest; ``None`` if malformed."""
    try:
        return _identify(body).id
    except ValueError:
        return None


def decode(body: bytes) -> Envelope[Payload]:
    """Decode an envelope, lifting an older version of its payload to the current one.

    Raises:
        MalformedEvent: not JSON, an unknown type, or wrong fields; the hint names them.
        NoUpcast: the payload's version is newer than this program, or can't be lifted.
    """
    try:
        return _decode_fast(body)
    except (ValueError, KeyError, RecursionError):
        return _decode_slowly(body)


def _decode_fast(body: bytes) -> Envelope[Payload]:
    """Decode a valid envelope of the current version.

    Raises:
        ValueError: it is something else, or not JSON.
        KeyError: unknown event type.
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
    force_setattr(envelope, "data", validate(bytes(envelope.data), strict=True))  # frozen, but not shared yet
    return cast("Envelope[Payload]", envelope)


def _decode_slowly(body: bytes) -> Envelope[Payload]:
    """Decode any envelope; of an old version, lift the payload first. See ``decode``."""
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
        raise _malformed(error) from broken
    if type(version) is not int or version == payload.dataversion or not isinstance(data, dict):
        raise _malformed(error) from error
    try:
        lifted = lift(payload.event_type, data, version, payload.dataversion)
    except (LookupError, TypeError, ValueError, AttributeError) as unfit:  # what upcasts raise on wrong data
        message = f"Malformed event: {payload.event_name} of version {version} could not be lifted: {unfit!r}."
        raise MalformedEvent(message, hint="Look at data.") from unfit
    try:
        return _read_whole(to_json(raw | {"data": lifted, "dataversion": payload.dataversion}))
    except ValidationError as unfit:
        raise _malformed(unfit) from unfit


def _malformed(error: ValidationError) -> MalformedEvent:
    """Return the error for what a validation found first."""
    first = error.errors(include_url=False, include_input=False)[0]
    if first["type"] == "union_tag_invalid":
        name = first["ctx"]["tag"]
        try:
            hint = f"Its type is {resolve(name).event_type!r} in full."
        except UnknownEventType as unknown:
            hint = unknown.hint
        return MalformedEvent(f"Malformed event: there is no event type {name!r}.", hint=hint)
    if first["type"] == "union_tag_not_found":
        return MalformedEvent("Malformed event: it has no type.", hint="Set type; list them with: flyball events list")
    where = ".".join(str(part) for part in first["loc"] if part not in BY_TYPE) or "the event"
    return MalformedEvent(f"Malformed event: {first['msg']}.", hint=f"Look at {where}.")


Upcast = Callable[[dict[str, Any]], dict[str, Any]]
UPCASTS: dict[tuple[str, int], Upcast] = {}
"""(event type, version n) → the function from ``data`` of version n to that of version n + 1.

Register one with ``@upcast`` when a payload's schema changes and its ``version`` is raised: what the journal holds is
never rewritten.
"""


class NoUpcast(FlyballError):
    """An event whose version can't be lifted to the current one."""


def upcast(event_type: str, version: int) -> Callable[[Upcast], Upcast]:
    """Register the decorated function as the upcast from ``version`` to ``version + 1``."""

    def register(function: Upcast) -> Upcast:
        UPCASTS[event_type, version] = function
        return function

    return register


def lift(event_type: str, data: dict[str, Any], version: int, target: int) -> dict[str, Any]:
    """Lift ``data`` step by step from ``version`` to ``target``.

    Raises:
        NoUpcast: the event is newer than this program, or a step is missing.
    """
    if version > target:
        raise NoUpcast(
            f"{event_type} is of version {version}, this Flyball knows {target}.",
            hint="Upgrade Flyball on this node.",
        )
    for step in range(version, target):
        if (event_type, step) not in UPCASTS:
            raise NoUpcast(f"No upcast leads {event_type} from version {step} to {step + 1}.", hint="Add one.")
        data = UPCASTS[event_type, step](data)
    return data


@upcast("flyball.training.loss_anomaly_detected", 1)
def _alone(data: dict[str, Any]) -> dict[str, Any]:
    """Count an anomaly as a single one: no decision depended on the count."""
    return {**data, "consecutive": 1}


@upcast("flyball.league.matches_requested", 1)
def _among_members(data: dict[str, Any]) -> dict[str, Any]:
    """Set the purpose to tournament, the only one in version 1."""
    return {**data, "purpose": "tournament"}


@upcast("flyball.evaluation.completed", 1)
@upcast("flyball.evaluation.failed", 1)
@upcast("flyball.training.failed", 1)
def _same(data: dict[str, Any]) -> dict[str, Any]:
    """Change nothing: a field only admits more values."""
    return data


@upcast("flyball.daemon.heartbeat", 1)
def _of_no_request(data: dict[str, Any]) -> dict[str, Any]:
    """Add an empty list of requests: heartbeats of version 1 renewed all leases."""
    return {**data, "requests": ()}


@upcast("flyball.selfplay.requested", 1)
def _no_probe(data: dict[str, Any]) -> dict[str, Any]:
    """Mark a request as no probe: version 1 had no quarantine."""
    return {**data, "probe": False}


@upcast("flyball.selfplay.completed", 1)
def _worker_of_its_shard(data: dict[str, Any]) -> dict[str, Any]:
    """Move the worker into the shard."""
    kept = {name: value for name, value in data.items() if name != "worker"}
    return {**kept, "probe": False, "shard": {**data["shard"], "worker": data["worker"] or None}}


@upcast("flyball.quality.score_updated", 1)
def _unnamed_shard(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the worker unknown."""
    return {**data, "shard": {**data["shard"], "worker": None}}


@upcast("flyball.training.requested", 1)
def _unnamed_shards(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the workers unknown."""
    return {**data, "shards": [{**shard, "worker": None} for shard in data["shards"]]}


@upcast("flyball.quality.parity_checked", 1)
@upcast("flyball.quality.degraded", 1)
def _unnamed_worker(data: dict[str, Any]) -> dict[str, Any]:
    """Leave the worker unknown."""
    return {**data, "worker": None}
