"""Log records after OpenTelemetry's log data model.

Source: https://opentelemetry.io/docs/specs/otel/logs/data-model/ (fields, severity numbers) and the semantic
conventions for exceptions.
"""

import json
import sys
import traceback
from types import TracebackType
from typing import Any, cast

from pydantic_core import to_json
from structlog.typing import EventDict, WrappedLogger

SEVERITY_NUMBERS = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}
ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]


def shape(logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
    """Turn structlog's event into a record: what has no field of its own becomes an attribute.

    Reads ``timestamp``, ``event``, ``event_name``, ``traceparent`` and ``exc_info`` from the event.
    """
    record: dict[str, Any] = {
        "timestamp": event.pop("timestamp"),
        "severity_text": level.upper(),
        "severity_number": SEVERITY_NUMBERS[level],
        "body": event.pop("event", None),
    }
    if name := event.pop("event_name", None):
        record["event_name"] = name
    record |= _trace(event.pop("traceparent", None))
    if scope := getattr(logger, "name", ""):
        record["scope"] = {"name": scope}
    failure = _exception(event.pop("exc_info", None))
    record["attributes"] = {key: value for key, value in event.items() if value is not None} | failure
    return record


def render(_: WrappedLogger, __: str, record: EventDict) -> str:
    """Write a record as one line of JSON: no value can break it, and what JSON can't say is said as text."""
    try:
        return to_json(record, inf_nan_mode="null", fallback=repr, serialize_unknown=True).decode()
    except ValueError:  # bytes or half characters, from a file's name for instance
        attributes = {key: repr(value) for key, value in record["attributes"].items()}
        return json.dumps({**record, "attributes": attributes}, default=repr)


def _trace(traceparent: str | None) -> dict[str, str]:
    if not traceparent:
        return {}
    _, trace_id, span_id, flags = traceparent.split("-", 3)
    return {"trace_id": trace_id, "span_id": span_id, "trace_flags": flags}


def _exception(exc_info: object) -> dict[str, str]:
    if not exc_info:
        return {}
    kind, error, trace = _exc_info(exc_info)
    if kind is None:
        return {}
    return {
        "exception.type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "exception.message": str(error),
        "exception.stacktrace": "".join(traceback.format_exception(kind, error, trace)),
    }


def _exc_info(exc_info: object) -> ExcInfo | tuple[None, None, None]:
    if isinstance(exc_info, BaseException):
        return type(exc_info), exc_info, exc_info.__traceback__
    return cast("ExcInfo", exc_info) if isinstance(exc_info, tuple) else sys.exc_info()
