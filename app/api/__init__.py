"""Functions behind the commands and the public API."""

import sys

import structlog

# By default structlog writes logs to stdout, where a program expects its own results alone.
if not structlog.is_configured():
    structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))
