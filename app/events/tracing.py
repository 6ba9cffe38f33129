"""Trace context of events, after W3C Trace Context (ADR-036).

Nothing is added to an event. Its trace id is its correlation id, and its span id is the beginning of its own id, so
``flyball trace`` finds the event of either. Whoever publishes an event because of a trace of another program gives
that trace's ``traceparent``. It is recorded, and the events that follow keep it, because CloudEvents' attribute names
where a trace begins. Then the trace id is the other program's.

Sources: https://www.w3.org/TR/trace-context/ (format), CloudEvents' distributed tracing extension (the attribute).
"""

import re
from typing import Any

from flyball.app.core import FlyballError, derive_id
from flyball.app.events.envelope import TRACEPARENT, Cause, Envelope

TRACE_DIGITS, SPAN_DIGITS = 32, 16
SAMPLED = "01"
_ID = re.compile(f"[0-9a-f]{{{TRACE_DIGITS}}}")


class BadTraceparent(FlyballError, code="usage"):
    """A trace context that W3C's recommendation calls invalid."""


def check_traceparent(text: str) -> str:
    """Return a trace context from another program. Raises ``BadTraceparent``."""
    if _external(text) is None:
        raise BadTraceparent(
            f"{text!r} is no trace context.",
            hint="It has the form 00-TRACE-SPAN-01, with 32 and 16 hexadecimal digits that are not all 0.",
        )
    return text


def trace_id(event: Envelope[Any] | Cause) -> str:
    """Return the 32 hexadecimal digits shared by a causal chain."""
    if external := _external(event.traceparent):
        return external[0]
    return _digits(event.correlationid, TRACE_DIGITS)


def span_id(event_id: str) -> str:
    """Return the 16 hexadecimal digits that name an event in its trace."""
    return _digits(event_id, SPAN_DIGITS)


def parent_span_id(envelope: Envelope[Any]) -> str | None:
    """Return the span id of an event's cause; None without one. The cause may be another program's span."""
    if envelope.causationid is not None:
        return span_id(envelope.causationid)
    external = _external(envelope.traceparent)
    return external[1] if external else None


def traceparent_of(event: Envelope[Any] | Cause) -> str:
    """Return the trace context of what an event causes. An event causes logs, jobs, and spans of other programs."""
    external = _external(event.traceparent)
    return f"00-{trace_id(event)}-{span_id(event.id)}-{external[2] if external else SAMPLED}"


def _external(traceparent: str | None) -> tuple[str, str, str] | None:
    """Split a trace context into trace id, span id and flags. Returns None for a missing or invalid trace context."""
    if traceparent is None or not re.fullmatch(TRACEPARENT, traceparent):
        return None
    version, trace, span, flags = traceparent.split("-")
    return (trace, span, flags) if version != "ff" and trace.strip("0") and span.strip("0") else None


def _digits(identifier: str, count: int) -> str:
    """Return the first digits of an id, or of its hash if it is not 32 hexadecimal digits or begins with zeros."""
    digits = identifier[:count] if _ID.fullmatch(identifier) else ""
    return digits if digits.strip("0") else derive_id("trace", identifier)[:count]
