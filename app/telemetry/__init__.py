"""Structured logs: JSON lines after OpenTelemetry's log data model."""

from app.telemetry.logs import configure
from app.telemetry.sink import LogFile

__all__ = ["LogFile", "configure"]
