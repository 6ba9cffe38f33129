"""The screen of ``flyball top``."""

import asyncio
import json
from typing import Any, ClassVar

from rich.console import Group
from rich.text import Text
from textual import work
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Footer, Input, Static, TabbedContent, TabPane
from textual.widgets.data_table import RowKey

from flyball.app.api.following import BrokerWatch
from flyball.app.api.runs import RunLocation
from flyball.app.api.selection import Selection, select
from flyball.app.cli.state import COLUMNS, field_rows
from flyball.app.cli.top_feed import Feed, log_text, read_state
from flyball.app.core import FlyballError
from flyball.app.dashboard.logs import LogLine
from flyball.app.events import Event
from flyball.app.status.status import ConfigStatus, Status
from flyball.app.status.summary import event_text, show_clock
from flyball.app.status.tables import CONFIGS, Column, daemons_table, fitting, next_trainings

LOOK_SECONDS = 1.0
ASK_SECONDS = 2.0
MOST_ROWS = 1000
"""Events and lines of logs that are kept; older ones are dropped."""

PADDING = 4
"""Columns of the terminal beside a table: borders and scroll bar."""

CLOCK = slice(11, 19)
"""The time of day in ISO 8601."""

LEVELS = {"ERROR": "bold red", "CRITICAL": "bold red", "WARNING": "yellow"}
EVERYTHING = Selection(None, None)


class Details(ModalScreen[None]):
    """An event as a CloudEvent."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,enter,q", "dismiss", "Back")]

    def __init__(self, location: RunLocation, event: Event[Any]) -> None:
        super().__init__()
        self._location, self._event = location, event

    def compose(self) -> ComposeResult:
        """Show attributes and data, and the commands that lead on."""
        text = json.dumps(self._event.to_cloudevent(), indent=2, ensure_ascii=False)
        yield VerticalScroll(
            Static(Text(f"{text}\n\nWhat led to it: {self._location.command('trace', self._event.id)}"))
        )
        yield Footer()


class Top(App[None]):
    """Overview, one configuration, events and logs of a run. It only reads."""

    TITLE = "flyball top"
    ENABLE_COMMAND_PALETTE = False
    CSS = """
    TabbedContent { height: 1fr; }
    DataTable { height: 1fr; }
    #line { height: 1; }
    #configs { height: auto; max-height: 50%; }
    #filter { display: none; height: 3; }
    Details { align: center middle; }
    Details VerticalScroll { width: 90%; height: 80%; border: round $primary; background: $surface; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("1", "show('overview')", "Overview"),
        Binding("2", "show('config')", "Config"),
        Binding("3", "show('events')", "Events"),
        Binding("4", "show('logs')", "Logs"),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("r", "refresh_state", "Reload"),
        Binding("q", "quit", "Quit"),
    ]

    def __init__(self, location: RunLocation) -> None:
        super().__init__()
        self._location, self._broker = location, BrokerWatch(location, location.load(), ASK_SECONDS, "top")
        self._feed = Feed(location, EVERYTHING)
        self._events: dict[RowKey, Event[Any]] = {}
        self._config: str | None = None

    def compose(self) -> ComposeResult:
        """Lay out the tabs, and the keys at the bottom."""
        with TabbedContent(initial="overview"):
            with TabPane("1 Overview", id="overview"):
                yield DataTable(id="configs", cursor_type="row")
                yield VerticalScroll(Static(id="daemons"))
            with TabPane("2 Configuration", id="config"):
                yield Static(id="config_name")
                yield DataTable(id="state", cursor_type="row")
            with TabPane("3 Events", id="events"):
                yield Input(id="filter", placeholder="pattern, such as MODEL_* (empty: all events)")
                yield DataTable(id="event_table", cursor_type="row", show_header=False)
            with TabPane("4 Logs", id="logs"):
                yield DataTable(id="log_table", cursor_type="row", show_header=False)
        yield Static(id="line")
        yield Footer()

    async def on_mount(self) -> None:
        """Begin to watch."""
        self._table("event_table").add_columns("position", "time", "event")
        self._table("log_table").add_columns("time", "daemon", "line")
        self._table("state").add_columns(*COLUMNS)
        self._table("configs").focus()
        self._watch()

    @work(exclusive=True, group="watch")
    async def _watch(self) -> None:
        while True:
            try:
                await self._look()
            except FlyballError as error:  # an unreadable journal is reported, and may be readable again
                self._say(str(error))
            await asyncio.sleep(LOOK_SECONDS)

    async def _look(self) -> None:
        """Read what is new, and show it."""
        feed = self._feed
        chosen = feed.events
        events, lines = await asyncio.to_thread(feed.look)
        await self._broker.look()
        status = self._broker.status(feed.watch.board)
        if self._config is None and status.configs:
            self._config = status.configs[0].key
            if self.query_one(TabbedContent).active == "config":
                self.action_refresh_state()
        self._show_status(status)
        if chosen is feed.events:  # otherwise another filter was chosen meanwhile
            self._add_events(events)
        self._add_lines(lines)

    def _show_status(self, status: Status) -> None:
        width = self.size.width - PADDING
        table, columns = self._table("configs"), fitting(CONFIGS, status.configs, width)
        row = table.cursor_row
        table.clear(columns=True)
        for column in columns:
            table.add_column(Text(column.name, justify="right" if column.right else "left"))
        for config in status.configs:
            table.add_row(*(_cell(column, config) for column in columns), key=config.key)
        table.move_cursor(row=row)
        waiting = [
            Text(f"{config.key}: {self._location.completed(config.waiting_for)}", "red")
            for config in status.configs
            if config.waiting_for
        ]
        waiting += [Text(self._broker.trouble, "red")] if self._broker.trouble else []
        daemons = self.query_one("#daemons", Static)
        waiting = [*next_trainings(status), *waiting]
        daemons.update(Group(*waiting, *([""] if waiting else []), daemons_table(status, width)))
        ready = sum(daemon.state == "ready" for daemon in status.daemons)
        state = "running" if status.running else "not running"
        self._say(
            f"{self._location.folder.path}: {state}, {status.position} events, {ready}/{len(status.daemons)} ready"
        )

    def _add_events(self, events: list[Event[Any]]) -> None:
        table = self._table("event_table")
        follow = table.cursor_row >= table.row_count - 1
        for event in events:
            text = event_text(event, self._feed.watch.board.settings)
            key = table.add_row(str(event.sequence), show_clock(event.recordedtime), text)
            self._events[key] = event
        self._trim(table)
        if events and follow:
            table.move_cursor(row=table.row_count - 1)

    def _add_lines(self, lines: list[LogLine]) -> None:
        table = self._table("log_table")
        follow = table.cursor_row >= table.row_count - 1
        for line in lines:
            table.add_row(f"{line.time[CLOCK]}Z", line.daemon, Text(log_text(line), LEVELS.get(line.level, "default")))
        self._trim(table)
        if lines and follow:
            table.move_cursor(row=table.row_count - 1)

    def _trim(self, table: DataTable[Any]) -> None:
        """Drop the oldest rows."""
        spare = list(table.rows)[: max(0, table.row_count - MOST_ROWS)]
        for key in spare:
            table.remove_row(key)
            self._events.pop(key, None)

    def on_data_table_row_selected(self, selected: DataTable.RowSelected) -> None:
        """Show the chosen configuration or event."""
        if selected.data_table.id == "configs" and selected.row_key.value:
            self._config = selected.row_key.value
            self.action_show("config")
        elif event := self._events.get(selected.row_key):
            self.push_screen(Details(self._location, event))

    def action_show(self, tab: str) -> None:
        """Switch to a tab."""
        self.query_one(TabbedContent).active = tab
        pane = self.query_one(f"#{tab}", TabPane)
        pane.query_one(DataTable).focus()
        if tab == "config":
            self.action_refresh_state()

    def action_refresh_state(self) -> None:
        """Read the state of the chosen configuration."""
        if self._config is not None:
            self._read_state(self._config)

    @work(exclusive=True, group="state")
    async def _read_state(self, key: str) -> None:
        name = self.query_one("#config_name", Static)
        name.update(Text(f"{key}: reading the journal …"))
        try:
            fields = await asyncio.to_thread(read_state, self._location, key)
        except FlyballError as error:
            name.update(Text(str(error), "red"))
            return
        table = self._table("state")
        table.clear()
        for row in field_rows(fields):
            table.add_row(*row)
        name.update(Text(f"{key}: each value, and the event that set it", "bold"))

    def action_filter(self) -> None:
        """Ask which events to show."""
        self.action_show("events")
        field = self.query_one("#filter", Input)
        field.display = True
        field.focus()

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        """Show the events that match a pattern."""
        try:
            selection = select((submitted.value,), None) if submitted.value else EVERYTHING
        except FlyballError as error:
            self.notify(str(error), severity="error", markup=False)
            return
        submitted.input.display = bool(submitted.value)
        self._feed.select(selection)
        self._table("event_table").clear()
        self._events.clear()
        self._table("event_table").focus()

    def _table(self, name: str) -> DataTable[Any]:
        table: DataTable[Any] = self.query_one(f"#{name}", DataTable)
        return table

    def _say(self, text: str) -> None:
        self.query_one("#line", Static).update(Text(text, "dim", no_wrap=True, overflow="ellipsis"))

    async def on_unmount(self) -> None:
        """Close the connection."""
        await self._broker.close()


def _cell(column: Column[ConfigStatus], config: ConfigStatus) -> Text:
    cell = column.cell(config)
    text = cell if isinstance(cell, Text) else Text(cell)
    text.justify = "right" if column.right else "left"
    return text
