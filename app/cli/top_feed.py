"""Read what ``flyball top`` shows from a run's files."""

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flyball.app.api.following import JournalWatch
from flyball.app.api.runs import RunLocation, open_journal
from flyball.app.api.selection import Selection, before_last
from flyball.app.core import ConfigKey
from flyball.app.dashboard.logs import LogLine
from flyball.app.events import Event
from flyball.app.status.state import Field, state_fields
from flyball.app.status.summary import one_line
from flyball.app.telemetry import records_in

FIRST_EVENTS, MOST_EVENTS = 200, 500
"""Events that are shown at first, and most events read at once."""

LOG_BYTES = 32 << 10
"""Most bytes that are read at once from a log file. At first, these are the end of the file."""

SHOWN_ATTRIBUTES = ("config_key", "summary", "by", "child", "reason", "error", "remedy")
"""Attributes of a log's line that are shown after its text."""


class EventFeed:
    """New events of a journal, in parts."""

    def __init__(self, location: RunLocation, selection: Selection) -> None:
        self._location, self._selection = location, selection
        self._position: int | None = None

    def news(self) -> list[Event[Any]]:
        """Return the events since the last call. The first call returns the latest events."""
        with open_journal(self._location) as reader:
            if self._position is None:
                self._position = before_last(reader, FIRST_EVENTS, self._selection, reader.head)
            events, head = list[Event[Any]](), reader.head
            for event in self._selection.read(reader, self._position, on_dead=lambda _: None):
                if event.sequence > head:
                    break
                events.append(event)
                if len(events) == MOST_EVENTS:
                    break
            self._position = events[-1].sequence if len(events) == MOST_EVENTS else head
        return events


@dataclass(slots=True)
class LogFeed:
    """New lines of all logs of a run, in parts."""

    folder: Path
    read: dict[Path, int] = field(default_factory=dict)

    def news(self) -> list[LogLine]:
        """Return the lines since the last call, in order of time. The first call returns the ends of the files."""
        lines = [line for path in sorted(self.folder.glob("*.jsonl")) for line in self._lines(path)]
        return sorted(lines, key=lambda line: line.time)

    def _lines(self, path: Path) -> Iterator[LogLine]:
        with suppress(OSError), path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            last_end = self.read.get(path)
            start = max(size - LOG_BYTES, 0) if last_end is None or size < last_end else max(last_end, size - LOG_BYTES)
            file.seek(start)
            text = file.read(LOG_BYTES)
            whole = text.rfind(b"\n") + 1  # the last line may be incomplete
            self.read[path] = start + whole
            yield from (LogLine.of(record, path.stem) for record in records_in(text[:whole]))


def log_text(line: LogLine) -> str:
    """Return what a line of a log says, without control characters."""
    shown = (str(line.attributes[name]) for name in SHOWN_ATTRIBUTES if line.attributes.get(name))
    return one_line(" ".join((line.text, *shown, line.event_id)))


def read_state(location: RunLocation, key: str) -> dict[str, Field]:
    """Return a configuration's state, each field with the event that set it. Folds the whole journal."""
    with open_journal(location) as reader:
        return state_fields(reader, ConfigKey(key), lambda _: None)


class Feed:
    """Everything that changes on the screen. The methods block, so they run in a thread."""

    def __init__(self, location: RunLocation, selection: Selection) -> None:
        self._location = location
        self.watch = JournalWatch(location)
        self.events = EventFeed(location, selection)
        self.logs = LogFeed(location.folder.log("").parent)

    def look(self) -> tuple[list[Event[Any]], list[LogLine]]:
        """Feed the board, and return new events and lines of logs."""
        self.watch.news()
        return self.events.news(), self.logs.news()

    def select(self, selection: Selection) -> None:
        """Start over with other events."""
        self.events = EventFeed(self._location, selection)
