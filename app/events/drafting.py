"""Writing events: the first of a story, and those that follow from another."""

from datetime import datetime
from typing import Any

from app.core import derive_id
from app.events.catalogue import ENVELOPES
from app.events.envelope import Cause, Envelope
from app.events.payload import Payload, Scope


def originate(data: Payload, *, event_id: str, time: datetime, subject: str | None = None) -> Envelope[Payload]:
    """Write the first event of a story: it correlates with itself."""
    return _envelope(
        data, id=event_id, time=time, subject=subject, correlationid=event_id, causationid=None, traceparent=None
    )


def follow(
    data: Payload,
    cause: Cause,
    *,
    by: str,
    index: int = 0,
    subject: str | None = None,
    time: datetime | None = None,
) -> Envelope[Payload]:
    """Write an event caused by another. Its id follows from (who, cause, index): done twice, it is one event.

    Args:
        data: the payload.
        cause: the event that led to it.
        by: the controller or worker that draws the consequence.
        index: which consequence of the same cause this is.
        subject: the configuration, when it isn't the cause's.
        time: when it happened; without one, when its cause was recorded.
    """
    if data.scope is Scope.CONFIG:
        subject = subject or cause.subject
    return _envelope(
        data,
        id=derive_id(by, cause.id, index),
        time=time or cause.recordedtime,
        subject=subject,
        correlationid=cause.correlationid,
        causationid=cause.id,
        traceparent=cause.traceparent,
    )


def _envelope(data: Payload, **attributes: Any) -> Envelope[Payload]:
    envelope = ENVELOPES[data.event_type]
    return envelope(type=data.event_type, dataversion=data.dataversion, data=data, **attributes)
