"""What ``flyball up`` shows: a live picture on a terminal, a line for each thing of interest elsewhere."""

import sys
from collections import deque
from dataclasses import asdict
from types import TracebackType
from typing import Any, Protocol, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.cli.output import note, stdout_console, write_event, write_json
from app.dashboard import Status, daemons_text, event_text, status_table
from app.events import Event
from app.runtime.supervisor import ChildReport

LAST_LINES = 6


def is_usual(report: ChildReport) -> bool:
    """Whether nobody needs to be told."""
    return report.what == "started" or (report.what == "stopped" and not report.reason)


class Screen(Protocol):
    """Shows what happens."""

    def report(self, report: ChildReport) -> None:
        """Show what happened to a daemon's process."""
        ...

    def event(self, event: Event[Any]) -> None:
        """Show an interesting event."""
        ...

    def status(self, status: Status) -> None:
        """Show the present status."""
        ...

    def say(self, text: str) -> None:
        """Tell the operator something."""
        ...

    def __enter__(self) -> Self:
        """Begin."""
        ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End, and leave the terminal as it was."""
        ...


def describe(report: ChildReport) -> str:
    """Say in a line what happened to a daemon's process."""
    match report.what:
        case "failed":
            return f"{report.name} failed: {report.reason}; starts again in {report.delay:g} s"
        case "hopeless":
            return f"{report.name} cannot start: {report.reason}"
        case "killed":
            return f"{report.name} was killed before it had stopped"
    return f"{report.name} {report.what}{f', but not in order: {report.reason}' if report.reason else ''}"


class LineScreen:
    """Lines: events on stdout, the rest on stderr; with JSON, events and reports on stdout."""

    def __init__(self, *, as_json: bool) -> None:
        self._as_json = as_json

    def report(self, report: ChildReport) -> None:
        """Write what happened to a process, when it is out of the ordinary."""
        if self._as_json:
            write_json({"daemon": report.name} | {k: v for k, v in asdict(report).items() if k != "name"})
        elif not is_usual(report):
            note(describe(report))

    def event(self, event: Event[Any]) -> None:
        """Write an event."""
        write_event(event, as_json=self._as_json)

    def status(self, status: Status) -> None:
        """Write nothing: a table every second is no use in a file."""

    def say(self, text: str) -> None:
        """Write a line to stderr."""
        note(text)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Do nothing."""


class LiveScreen:
    """A picture that is painted anew: configurations, daemons, the last lines."""

    def __init__(self) -> None:
        self._lines: deque[Text] = deque(maxlen=LAST_LINES)
        self._status: Status | None = None
        self._live = Live(console=stdout_console(), auto_refresh=False, transient=False)

    def report(self, report: ChildReport) -> None:
        """Add a line, when it is out of the ordinary."""
        if not is_usual(report):
            self._add(Text(describe(report), "red"))

    def event(self, event: Event[Any]) -> None:
        """Add a line."""
        self._add(Text(event.recordedtime.strftime("%H:%M:%S "), "dim").append_text(event_text(event)))

    def status(self, status: Status) -> None:
        """Paint the picture."""
        self._status = status
        self._paint()

    def say(self, text: str) -> None:
        """Add a line."""
        self._add(Text(text, "bold"))

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.stop()

    def _add(self, line: Text) -> None:
        line.no_wrap, line.overflow = True, "ellipsis"
        self._lines.append(line)
        self._paint()

    def _paint(self) -> None:
        parts: list[RenderableType] = list(self._lines)
        if self._status is not None:
            parts = [status_table(self._status, self._live.console.width), "", daemons_text(self._status), "", *parts]
        self._live.update(Group(*parts), refresh=True)


def choose_screen(*, as_json: bool) -> Screen:
    """Return the screen that suits stdout."""
    if not as_json and sys.stdout.isatty():
        return LiveScreen()
    return LineScreen(as_json=as_json)
