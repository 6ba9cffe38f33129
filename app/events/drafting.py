"""Writing events: the first of a story, and those that follow from another."""

from datetime import datetime
from typing import Any

from app.core import derive_id
from app.events.catalogue import ENVELOPES
from app.events.envelope import Cause, Envelope
from app.events.payload import Payload, Scope


def originate(data: Payload, *, event_id: str, time: datetime, subject: str | None = None) -> Envelope[Payload]:
    """Write the first event of a story: it correlates with itself."""
    return _validated(data, event_id=event_id, time=time, subject=subject, correlationid=event_id)


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
    """Return an event caused by another, with an id derived from (by, cause, index).

    Args:
        data: the payload.
        cause: the event that led to it.
        by: the controller or worker that draws the consequence.
        index: which consequence of the same cause this is.
        subject: the configuration, when it isn't the cause's.
        time: when it happened; without one, when its cause was recorded.
        evidence: an earlier event that it follows from, when ``cause`` only set the time, as ticks do.
    """
    origin = evidence or cause
    about_config = data.scope is Scope.CONFIG
    if about_config:
        subject = subject or cause.subject
    # All else is the cause's, which was read: it needs no second look.
    write = _assembled if time is None and (subject is not None) is about_config else _validated
    return write(
        data,
        event_id=derive_id(by, cause.id, index),
        subject=subject,
        time=time or cause.recordedtime,
        correlationid=origin.correlationid,
        causationid=origin.id,
        traceparent=origin.traceparent,
    )


def _assembled(data: Payload, *, event_id: str, **attributes: Any) -> Envelope[Payload]:
    return Envelope(
        specversion="1.0",
        id=event_id,
        type=data.event_type,
        datacontenttype="application/json",
        dataversion=data.dataversion,
        data=data,
        **attributes,
    )


def _validated(data: Payload, *, event_id: str, **attributes: Any) -> Envelope[Payload]:
    model = ENVELOPES[data.event_type]
    return model(id=event_id, type=data.event_type, dataversion=data.dataversion, data=data, **attributes).envelope()
