"""The latest log lines of all daemons on this machine."""

from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Self
from zlib import crc32

from flyball.app.config import RunFolder
from flyball.app.telemetry import last_records

LEVELS = ("DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL")


@dataclass(frozen=True, slots=True)
class LogLine:
    """A line of a log.

    Attributes:
        time: as written, ISO 8601 in UTC.
        level: one of ``LEVELS``.
        daemon: the daemon that wrote it.
        node: its node.
        text: what happened.
        event_id: the event that it is about; an empty string without one.
        attributes: the rest, as written.
    """

    time: str
    level: str
    daemon: str
    node: str
    text: str
    event_id: str
    attributes: dict[str, Any]

    @classmethod
    def of(cls, record: dict[str, Any], daemon: str) -> Self:
        """Return a log record as a line; ``daemon`` is whose log it is in, for a record that names none."""
        recorded = record.get("attributes")
        attributes = dict(recorded) if isinstance(recorded, dict) else {}
        return cls(
            time=str(record.get("timestamp") or ""),
            level=str(record.get("severity_text") or ""),
            daemon=str(attributes.pop("daemon", None) or daemon),
            node=str(attributes.pop("node", None) or ""),
            text=str(record.get("body") or ""),
            event_id=str(attributes.pop("event_id", None) or ""),
            attributes=attributes,
        )

    @property
    def key(self) -> str:
        """The name of the line in a page. It keeps the line's details open while the page is refreshed."""
        return f"line-{crc32(f'{self.time} {self.daemon} {self.text} {self.event_id}'.encode(errors='replace')):08x}"


def log_names(folder: RunFolder) -> list[str]:
    """Return the names of the daemons that have logs, in order."""
    return sorted(path.stem for path in folder.log("x").parent.glob("*.jsonl"))


def latest_lines(
    folder: RunFolder, most: int, *, daemon: str = "", level: str = "", event_id: str = ""
) -> list[LogLine]:
    """Return the latest lines, latest first.

    Args:
        folder: the run's folder.
        most: most lines.
        daemon: only of this daemon; an empty string: of all.
        level: only of this level or above; an empty string: of all.
        event_id: only lines that name an event id beginning so; an empty string: all lines.
    """
    least = LEVELS.index(level) if level in LEVELS else 0
    names = [name for name in log_names(folder) if daemon in ("", name)]
    lines = (LogLine.of(record, name) for name in names for record in last_records(folder.log(name)))
    chosen = (
        line
        for line in lines
        if (line.level not in LEVELS or LEVELS.index(line.level) >= least)
        and (not event_id or line.event_id.startswith(event_id) or _names(line, event_id))
    )
    return nlargest(most, chosen, key=lambda line: line.time)


def _names(line: LogLine, event_id: str) -> bool:
    return any(isinstance(value, str) and event_id in value for value in line.attributes.values())
