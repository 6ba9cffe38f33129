"""Logs as JSON lines after OpenTelemetry's log data model, written through structlog.

Source: https://opentelemetry.io/docs/specs/otel/logs/data-model/ (fields, severity numbers) and the semantic
conventions for exceptions.
"""

import fcntl
import json
import logging
import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, Self, TextIO

import structlog
from pydantic_core import to_json
from structlog.typing import EventDict, WrappedLogger

SEVERITY_NUMBERS = {"debug": 5, "info": 9, "warning": 13, "error": 17, "critical": 21}


def shape(logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
    """Turn a structlog event into a log record; nonstandard fields become attributes."""
    record: dict[str, Any] = {
        "timestamp": event.pop("timestamp"),
        "severity_text": level.upper(),
        "severity_number": SEVERITY_NUMBERS[level],
        "body": event.pop("event", None),
    }
    if name := event.pop("event_name", None):
        record["event_name"] = name
    if traceparent := event.pop("traceparent", None):
        _, record["trace_id"], record["span_id"], record["trace_flags"] = traceparent.split("-", 3)
    if scope := getattr(logger, "name", ""):
        record["scope"] = {"name": scope}
    failure = _exception(event.pop("exc_info", None))
    record["attributes"] = {key: value for key, value in event.items() if value is not None} | failure
    return record


def render(_: WrappedLogger, __: str, record: EventDict) -> str:
    """Return a record as one line of JSON. Values that JSON does not know become text."""
    try:
        return to_json(record, inf_nan_mode="null", fallback=repr, serialize_unknown=True).decode()
    except ValueError:  # bytes that are not UTF-8 or lone surrogates, for instance in a file name
        attributes = {key: repr(value) for key, value in record["attributes"].items()}
        return json.dumps({**record, "attributes": attributes}, default=repr)


def _exception(exc_info: object) -> dict[str, str]:
    error = _error(exc_info)
    if error is None:
        return {}
    kind = type(error)
    return {
        "exception.type": f"{kind.__module__}.{kind.__qualname__}".removeprefix("builtins."),
        "exception.message": str(error),
        "exception.stacktrace": "".join(traceback.format_exception(error)),
    }


def _error(exc_info: object) -> BaseException | None:
    """Return the exception to log; ``None`` without one.

    It is ``exc_info`` itself, the exception in a tuple, or for True the exception being handled.
    """
    if isinstance(exc_info, BaseException):
        return exc_info
    handled = exc_info if isinstance(exc_info, tuple) else sys.exc_info()
    return handled[1] if exc_info else None


MAX_BYTES = 64 << 20
FILES = 3


class LogFile:
    """Appends lines to a file.

    Each line is one system call, so that lines of several processes don't mix. A file of ``max_bytes`` becomes
    ``NAME.1``, the one before ``NAME.2``, and the oldest is removed. Several processes may write and rotate it: each
    follows the name to the present file, and rotates only a file that it has locked and that still has the name. A file
    or its folder that was removed is made again, but not the folder above, which is a run's. A line that cannot be
    written is lost, because a full disk must not end a daemon; stderr gets a message for the first of several lost in a
    row.

    Args:
        path: the file; created with its folder when missing.
        max_bytes: size at which it is rotated.
        files: how many are kept, including the one being written.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, files: int = FILES) -> None:
        self._path, self._max_bytes, self._files = path, max_bytes, files
        self._descriptor: int | None = _open(path)
        self._failing = False

    def write(self, line: bytes) -> None:
        """Append a line. Does nothing once closed."""
        if self._descriptor is None:
            return
        try:
            with suppress(OSError):  # a failed rotation only lets the file grow
                self._descriptor = self._current_file(self._descriptor)
            os.write(self._descriptor, line + b"\n")
        except OSError as error:
            if not self._failing:
                sys.stderr.write(f"{self._path}: log lines are being lost: {error}\n")
            self._failing = True
        else:
            self._failing = False

    def _current_file(self, descriptor: int) -> int:
        """Return a descriptor of the file that has the name now. A full file is rotated first."""
        if self._is_named(descriptor):
            if os.fstat(descriptor).st_size < self._max_bytes:
                return descriptor
            self._rotate(descriptor)
        fresh = _open(self._path)
        os.close(descriptor)
        return fresh

    def _rotate(self, descriptor: int) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._files))]
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if self._is_named(descriptor):  # otherwise another process has rotated it
                for newer, older in reversed(list(pairwise(names))):
                    with suppress(FileNotFoundError):
                        newer.replace(older)
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _is_named(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close. Idempotent."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _open(path: Path) -> int:
    path.parent.mkdir(exist_ok=True)
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)


LAST_BYTES = 256 << 10
FAILED = "daemon failed"
"""Body of the last record of a daemon that ends by an error."""


def last_records(path: Path) -> Iterator[dict[str, Any]]:
    """Iterate over the records in the last 256 KiB of a log; none if it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - LAST_BYTES))
            text = file.read()
    except OSError:
        return
    yield from records_in(text)


def records_in(text: bytes) -> Iterator[dict[str, Any]]:
    """Iterate over the records in a part of a log; a line that is cut is skipped."""
    for line in text.splitlines():
        with suppress(ValueError):
            record = json.loads(line.decode(errors="replace"))
            if isinstance(record, dict):
                yield record


class Logger:
    """Destination of structlog's lines."""

    def __init__(self, sink: LogFile, name: str = "") -> None:
        self._sink, self.name = sink, name

    def msg(self, line: str) -> None:
        """Write a line, whatever its level."""
        self._sink.write(line.encode(errors="replace"))

    debug = info = warning = error = critical = msg


class Bridge(logging.Handler):
    """Passes records of the standard library's logging (asyncio's, captured warnings) to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record to structlog."""
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        structlog.get_logger(record.name).log(level, record.getMessage(), exc_info=record.exc_info)


class _Echo:
    """Copies events to stderr. At a terminal it copies all events, otherwise only errors, one line each."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._terminal = stream.isatty()
        self._render = structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))

    def __call__(self, logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
        if self._terminal:
            self._stream.write(f"{self._render(logger, level, {**event, 'level': level})}\n")
        elif SEVERITY_NUMBERS[level] >= SEVERITY_NUMBERS["error"]:
            self._stream.write(f"{event['event']}: {_reason(event)}\n".replace(": \n", "\n"))
        return event


def _reason(event: EventDict) -> str:
    error = _error(event.get("exc_info"))
    if error is None:
        return str(event.get("error", ""))
    errors = error.exceptions if isinstance(error, BaseExceptionGroup) else (error,)
    return "; ".join(f"{type(cause).__name__}: {cause}" for cause in errors)


def configure(
    daemon: str, node: str, path: Path, level: str = "INFO", *, echo: bool = True, whole_process: bool = True
) -> LogFile:
    """Send all logs of this process to a file as JSON lines.

    Lines below ``level`` are left out. Every line names the daemon and its node. With ``echo``, some are copied to
    stderr (``_Echo``). Without ``whole_process``, records of the standard library's logging stay where they go. The
    returned file is open; close it at the end of the process.
    """

    def who(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {"daemon": daemon, "node": node, **event}

    path.parent.mkdir(parents=True, exist_ok=True)
    sink = LogFile(path)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([_Echo(sys.stderr)] if echo else []),
            who,
            shape,
            render,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=lambda name="": Logger(sink, name),
    )
    if whole_process:
        logging.basicConfig(handlers=[Bridge()], level=level, force=True)
        logging.captureWarnings(capture=True)
    return sink
