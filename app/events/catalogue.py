"""Catalogue of event types, and constructors of their envelopes: ``originate`` and ``follow``."""

import re
from datetime import datetime
from difflib import get_close_matches
from fnmatch import fnmatchcase
from functools import cache
from inspect import isclass
from typing import Any, Literal, cast

from pydantic import create_model

from flyball.app.core import FlyballError, derive_id
from flyball.app.events import decisions, facts, requests
from flyball.app.events.envelope import Cause, Envelope, EnvelopeModel
from flyball.app.events.payload import TYPE_PREFIX, Payload, Scope

_MAGIC = re.compile(r"[*?\[]")


class UnknownEventType(FlyballError, code="unknown"):
    """No event type has this name."""


_defined = (member for module in (facts, requests, decisions) for member in vars(module).values() if isclass(member))
CATALOGUE: tuple[type[Payload], ...] = tuple(
    sorted(
        (member for member in _defined if issubclass(member, Payload) and "event_type" in vars(member)),
        key=lambda payload: payload.event_type,
    )
)
"""All payload classes, sorted by type."""

BY_TYPE: dict[str, type[Payload]] = {payload.event_type: payload for payload in CATALOGUE}
BY_NAME: dict[str, type[Payload]] = {payload.event_name: payload for payload in CATALOGUE}


@cache
def envelope_model(payload: type[Payload]) -> type[EnvelopeModel[Any]]:
    """Return the envelope's model for an event type. The JSON Schemas are made from these models."""
    fields: dict[str, Any] = {
        "type": (Literal[payload.event_type], ...),
        "dataversion": (Literal[payload.dataversion], ...),
        "data": (payload, ...),
    }
    model = create_model(f"{payload.__name__}Envelope", __base__=EnvelopeModel[payload], **fields)  # type: ignore[valid-type]
    return cast("type[EnvelopeModel[Any]]", model)


def resolve(name: str) -> type[Payload]:
    """Return a payload class by event name or by type, without ``flyball.`` if liked. Raises ``UnknownEventType``."""
    payload = BY_TYPE.get(name) or BY_TYPE.get(TYPE_PREFIX + name) or BY_NAME.get(name.upper())
    if payload is None:
        near = get_close_matches(name, BY_TYPE, n=1) if "." in name else get_close_matches(name.upper(), BY_NAME, n=1)
        hint = f"Did you mean {near[0]}?" if near else "List them with: flyball events list"
        raise UnknownEventType(f"There is no event type {name!r}.", hint=hint)
    return payload


def matching(pattern: str) -> list[type[Payload]]:
    """Return payload classes whose event name or type matches a glob pattern. Raises ``UnknownEventType`` for none."""
    if not _MAGIC.search(pattern):
        return [resolve(pattern)]
    name, kind = pattern.upper(), pattern.lower()
    kinds = (kind, TYPE_PREFIX + kind)
    payloads = [
        p for p in CATALOGUE if fnmatchcase(p.event_name, name) or any(fnmatchcase(p.event_type, k) for k in kinds)
    ]
    return payloads or [resolve(pattern)]


def originate(
    data: Payload, *, event_id: str, time: datetime, subject: str | None = None, traceparent: str | None = None
) -> Envelope[Payload]:
    """Return the first event of a causal chain.

    The event's correlation id is its own id. ``traceparent`` is the trace of the program that asked for the event, if
    there is one.
    """
    return _build_validated(
        data, event_id=event_id, time=time, subject=subject, correlationid=event_id, traceparent=traceparent
    )


def follow(
    data: Payload,
    cause: Cause,
    *,
    by: str,
    index: int = 0,
    subject: str | None = None,
    time: datetime | None = None,
    evidence: Cause | None = None,
) -> Envelope[Payload]:
    """Return an event that another event causes.

    The id is derived from ``by``, the cause's id and ``index``.

    Args:
        data: the payload.
        cause: the event that led to it.
        by: the controller or worker that emits it.
        index: number of the event among those that ``by`` emits for this cause.
        subject: the configuration; None: the cause's.
        time: when it happened; None: when its cause was recorded.
        evidence: the earlier event that it follows from, if ``cause`` only set the time, as a tick does.
    """
    origin = evidence or cause
    about_config = data.scope is Scope.CONFIG
    if about_config:
        subject = subject or cause.subject
    # Attributes taken from the cause need no validation: the cause was validated when it was read.
    write = _assemble if time is None and (subject is not None) is about_config else _build_validated
    return write(
        data,
        event_id=derive_id(by, cause.id, index),
        subject=subject,
        time=time or cause.recordedtime,
        correlationid=origin.correlationid,
        causationid=origin.id,
        traceparent=origin.traceparent,
    )


def _assemble(data: Payload, *, event_id: str, **attributes: Any) -> Envelope[Payload]:
    return Envelope(
        specversion="1.0",
        id=event_id,
        type=data.event_type,
        datacontenttype="application/json",
        dataversion=data.dataversion,
        data=data,
        **attributes,
    )


def _build_validated(data: Payload, *, event_id: str, **attributes: Any) -> Envelope[Payload]:
    model = envelope_model(type(data))
    return model(id=event_id, type=data.event_type, dataversion=data.dataversion, data=data, **attributes).envelope()
