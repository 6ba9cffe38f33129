"""The output of ``flyball up``: plain lines, or a live picture."""

from collections import deque
from dataclasses import asdict
from typing import Any, Self

import click
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from flyball.app.cli.output import json_text, stdout_console, write_event
from flyball.app.config import RunSettings
from flyball.app.events import Event
from flyball.app.status.status import DaemonStatus, Status
from flyball.app.status.summary import event_text, show_clock
from flyball.app.status.tables import STATE_STYLES, next_trainings, status_table
from flyball.daemons.supervisor import ChildReport

PINNED_LINES = 6
"""Most pinned lines. Each shows the latest event of a type and configuration, or a daemon's failure."""

TRAINING_LINES = 8
"""Most lines about next trainings. There are fewer where events would find no room."""

STREAM_LINES = 6
"""Most lines of ordinary events."""


class Screen:
    """Plain output: events on stdout, the rest on stderr.

    With JSON, reports go to stdout too. Methods raise ``OSError`` once nobody reads, because that ends the run.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json

    def report(self, report: ChildReport) -> None:
        """Show an unusual report on a daemon's process; with JSON, every report."""
        if self._as_json:
            fields = asdict(report)
            click.echo(json_text({"daemon": fields.pop("name"), **fields}))
        elif not is_usual(report):
            self.say(describe(report))

    def event(self, event: Event[Any], settings: RunSettings | None = None) -> None:
        """Show an interesting event. ``settings`` name user-defined controllers."""
        write_event(event, as_json=self._as_json, settings=settings)

    def status(self, status: Status) -> None:
        """Ignore the status, because a file has no use for repeated tables."""

    def say(self, text: str) -> None:
        """Show a line to the operator."""
        click.echo(text, err=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Do nothing; see ``LiveScreen``."""


class LiveScreen(Screen):
    """A live picture: title, configurations, daemons, notable events and the latest others.

    It uses the terminal's alternate screen, because otherwise a resize wraps the old picture into lines that are
    never cleared. The last picture stays on the ordinary screen.
    """

    def __init__(self, title: str) -> None:
        super().__init__()
        self._title = Group(*(_line(line, "dim") for line in title.splitlines()))
        self._pinned: dict[tuple[str, str], Text] = {}
        self._stream: deque[Text] = deque(maxlen=STREAM_LINES)
        self._status: Status | None = None
        self._live = Live(console=stdout_console(), auto_refresh=False, screen=True)

    def report(self, report: ChildReport) -> None:
        """Pin an unusual report on a daemon's process."""
        if not is_usual(report):
            self._pin(report.what, report.name, _line(describe(report), "red"))

    def event(self, event: Event[Any], settings: RunSettings | None = None) -> None:
        """Add a line; pin it if the event is notable."""
        line = _line(f"{show_clock(event.recordedtime)} ", "dim")
        line.append_text(event_text(event, settings, self._live.console.width - len(line)))
        if event.data.notable:
            self._pin(event.data.event_name, event.subject, line)
        else:
            self._stream.append(line)
            self._paint()

    def status(self, status: Status) -> None:
        """Show a new status."""
        self._status = status
        self._paint()

    def say(self, text: str) -> None:
        """Add a line."""
        self._stream.append(_line(text, "bold"))
        self._paint()

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._live.console.clear()  # tmux, once resized, would keep the other screen's lines in its history
        self._live.stop()
        self._live.console.print(Group(*self._tables(), *self._lines(PINNED_LINES + STREAM_LINES + 1)))

    def _pin(self, what: str, about: str, line: Text) -> None:
        self._pinned.pop((what, about), None)  # the latest come last
        self._pinned[what, about] = line
        self._paint()

    def _paint(self) -> None:
        console, tables = self._live.console, [self._title, "", *self._tables()]
        room = console.height - len(console.render_lines(Group(*tables), pad=False))
        self._live.update(Group(*tables, *self._lines(room)), refresh=True)

    def _tables(self) -> list[RenderableType]:
        if self._status is None:
            return []
        console = self._live.console
        table, daemons = status_table(self._status, console.width), daemons_text(self._status)
        taken = len(console.render_lines(Group(self._title, "", table, "", daemons, ""), pad=False))
        room = console.height - taken - STREAM_LINES
        return [table, *next_trainings(self._status, min(TRAINING_LINES, room)), "", daemons, ""]

    def _lines(self, room: int) -> list[RenderableType]:
        """Return the lines below the tables. The pinned lines come first, then others as far as there is room."""
        pinned = list[RenderableType](self._pinned.values())[-PINNED_LINES:]
        if pinned and self._stream:
            pinned.append("")
        stream = [*self._stream]
        return [*pinned, *stream[max(0, len(stream) - max(0, room - len(pinned))) :]]


def is_usual(report: ChildReport) -> bool:
    """Return whether a report needs no attention."""
    return report.what == "started" or (report.what == "stopped" and not report.reason)


def describe(report: ChildReport) -> str:
    """Describe in a line what happened to a daemon's process."""
    match report.what:
        case "failed":
            return f"{report.name} failed: {report.reason}; starts again in {report.delay:g} s"
        case "hopeless":
            return f"{report.name} cannot start: {report.reason}"
        case "killed":
            return f"{report.name} was killed before it had stopped"
    return f"{report.name} {report.what}{f', but not in order: {report.reason}' if report.reason else ''}"


def daemons_text(status: Status) -> Columns:
    """Return all daemons side by side, coloured by state. Notes say what is unusual about a daemon."""
    return Columns([_daemon_text(daemon) for daemon in status.daemons], padding=(0, 2))


def _daemon_text(daemon: DaemonStatus) -> Text:
    text = Text("● ", STATE_STYLES[daemon.state], no_wrap=True)
    text.append(daemon.daemon, "default")
    notes: list[str] = [daemon.state] if daemon.state != "ready" else []
    notes += [f"{daemon.restarts} restarts"] if daemon.restarts else []
    notes += [f"{daemon.lag} behind"] if daemon.lag else []
    notes += [f"{daemon.jobs or 0}/{daemon.capacity}"] if daemon.capacity else []
    return text.append(f" ({', '.join(notes)})", "dim") if notes else text


def _line(text: str, style: str) -> Text:
    return Text(text, style, no_wrap=True, overflow="ellipsis")
