"""Functions behind the commands and the public API."""

import sys

import structlog


def stderr_logger(*_: object) -> structlog.PrintLogger:
    """Return the logger of programs that have not configured any."""
    return structlog.PrintLogger(sys.stderr)


# By default structlog writes logs to stdout, where a program expects its own results alone.
if not structlog.is_configured():
    structlog.configure(logger_factory=stderr_logger)
