"""Configuring structlog, and leading the standard library's logs into it."""

import logging
import os
import sys
from pathlib import Path
from typing import TextIO

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from app.telemetry.record import render, shape
from app.telemetry.sink import LogFile


class Logger:
    """What structlog writes finished lines to."""

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
    """Shows events to the human at the terminal as well."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._render = structlog.dev.ConsoleRenderer(colors=not os.environ.get("NO_COLOR"))

    def __call__(self, logger: WrappedLogger, level: str, event: EventDict) -> EventDict:
        self._stream.write(f"{self._render(logger, level, {**event})}\n")
        return event


def configure(daemon: str, node: str, path: Path, level: str = "INFO") -> LogFile:
    """Send all logs of this process to a file as JSON lines, and to the terminal when stderr is one.

    Args:
        daemon: attribute of every line.
        node: attribute of every line.
        path: the file.
        level: DEBUG, INFO, WARNING or ERROR; what lies below is left out.

    Returns:
        The open file, to be closed at the end of the process.
    """

    def who(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
        return {"daemon": daemon, "node": node, **event}

    sink = LogFile(path)
    echo: list[Processor] = []
    if sys.stderr.isatty():
        echo = [structlog.stdlib.add_log_level, _Echo(sys.stderr), _drop_level]
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *echo,
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


def _drop_level(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    del event["level"]
    return event
