"""Configuring structlog, and leading the standard library's logs into it."""

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, WrappedLogger

from app.telemetry.record import SEVERITY_NUMBERS, render, shape
from app.telemetry.sink import LogFile


class Logger:
    """Destination of structlog's lines."""

    def __init__(self, sink: LogFile, name: str = "") -> None:
        self._sink, self.name = sink, name

    def msg(self, line: str) -> None:
        """Write a line, whatever its level."""
        self._sink.write(line.encode(errors="replace"))

    debug = info = warning = error = critical = msg


class Bridge(logging.Handler):
    """Leads records of the standard library's logging (asyncio's, captured warnings) into structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Pass a record on."""
        level = min(max(record.levelno // 10 * 10, logging.DEBUG), logging.CRITICAL)
        structlog.get_logger(record.name).log(level, record.getMessage(), exc_info=record.exc_info)


class _Echo:
    """Shows events on stderr as well: all to the human at a terminal, errors in one line to whoever else keeps it."""

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
    error = sys.exc_info()[1] if event.get("exc_info") is True else event.get("exc_info")
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(f"{type(one).__name__}: {one}" for one in error.exceptions)
    return f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(event.get("error", ""))


def configure(daemon: str, node: str, path: Path, level: str = "INFO", *, echo: bool = True) -> LogFile:
    """Send all logs of this process to a file as JSON lines, and to stderr what is of use there.

    Args:
        daemon: attribute of every line.
        node: attribute of every line.
        path: the file.
        level: DEBUG, INFO, WARNING or ERROR; what lies below is left out.
        echo: False keeps stderr for something else.

    Returns:
        The open file, to be closed at the end of the process.
    """

    def who(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {"daemon": daemon, "node": node, **event}

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
    logging.basicConfig(handlers=[Bridge()], level=level, force=True)
    logging.captureWarnings(capture=True)
    return sink
