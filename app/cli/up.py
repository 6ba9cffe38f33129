"""``flyball up``: all daemons of a run, supervised and watched."""

import asyncio
import json
import signal
import socket
import sys
from collections import deque
from collections.abc import Callable
from contextlib import ExitStack, closing, suppress
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any, Self

import click
import structlog
from rich.columns import Columns
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from app.api.runs import SAVE_AFTER, Place, is_listening, open_bus, presence_on, try_save
from app.cli.group import tolerate_closed_output
from app.cli.options import json_option, placed
from app.cli.output import note, stdout_console, write_event, write_json
from app.config import PROFILES, RunFolder, RunSettings
from app.config.dashboard import DashboardSettings
from app.config.loading import COMMAND_LINE, Loaded, variable
from app.core import BROKER, FlyballError
from app.dashboard.access import Access, AddressTaken, listen, url_of
from app.engine import python_module
from app.engine.ray_engine import check_ray
from app.events import CATALOGUE, Event, ModelPromoted, Payload, PromotionRejected, TrainingIntensityChanged
from app.journal import NotAJournal, SqliteJournal, SqliteJournalReader, history
from app.journal.history import past_settings, voided_events
from app.status.status import READS, Board, DaemonStatus, Presence, Status, load_board
from app.status.summary import event_text
from app.status.tables import STATE_STYLES, status_table
from app.telemetry import check_wandb, configure
from daemons import monitoring
from daemons.bootstrap import check_settings
from daemons.clock import SystemClock
from daemons.ray_cluster import cluster_command, is_own_cluster, ray_environment
from daemons.registry import MACHINE_ROLES, MachineRole, names_of
from daemons.run_folder import AlreadyRunning, bus_endpoint, held, prepare
from daemons.suitability import check_lasting
from daemons.supervisor import ChildReport, ChildSpec, Supervisor

LOOK_SECONDS = 0.5
AFTER_DRAIN_SECONDS = 5.0
"""Time after its jobs' ``drain_seconds`` until a daemon is killed."""

INTERESTING: frozenset[type[Payload]] = frozenset(
    {ModelPromoted, PromotionRejected, TrainingIntensityChanged, *(one for one in CATALOGUE if one.notable)}
)
"""Event types that are shown; ``LiveScreen`` pins the notable ones. Of the intensity, only pauses are shown."""


def is_shown(data: Payload) -> bool:
    """Return whether a line tells of an event."""
    if isinstance(data, TrainingIntensityChanged):
        return "paused" in (data.intensity, data.previous)
    return type(data) in INTERESTING


AT_ONCE = 5000
"""Most events read at once, because other tasks must not wait long."""


@click.command()
@click.option("--profile", type=click.Choice(list(PROFILES)), help="Which configurations to run.")
@click.option("--config", "configs", multiple=True, metavar="KEY", help="Run this configuration; may be repeated.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the run.")
@click.option(
    "--role",
    type=click.Choice(MACHINE_ROLES),
    help="Only a head's daemons, which record and decide, or a worker's, which run jobs.",
)
@click.option("--for", "seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
@json_option
@placed
def up(
    place: Place,
    *,
    profile: str | None,
    configs: tuple[str, ...],
    seed: int | None,
    role: MachineRole | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Start all daemons of a run and watch them.

    Ctrl-C stops the daemons in order; a second Ctrl-C does not wait. A cluster has one head, where the broker runs, and
    workers: --role names what this machine is.
    """
    given = {"profile": profile, "configs": list(configs) or None, "seed": seed}
    loaded = place.load({key: value for key, value in given.items() if value is not None})
    check_settings(loaded)
    check_wandb(loaded.deployment.wandb, "deployment.wandb")
    if loaded.deployment.engine == "ray":
        check_ray()
    folder, deployment = place.folder, loaded.deployment
    Access.of(deployment.dashboard, loaded.folder)  # refuses an unsafe token now, before anything runs
    prepare(folder)
    with held(folder), ExitStack() as stack:
        if role != "worker" and is_listening(endpoint := bus_endpoint(folder, deployment)):
            raise AlreadyRunning(f"A broker listens at {endpoint} already.", hint="Stop it, or choose another --run.")
        _check_journal(folder.journal, loaded.run)
        title = f"Run folder {folder.path.absolute()}; daemons log to {folder.log('*')}. Ctrl-C stops."
        specs = child_specs(place, loaded, role)
        shown, server = open_dashboard(deployment.dashboard, role)
        if server is not None:
            specs[1].append(dashboard_spec(place, loaded, stack.enter_context(server).fileno()))
        note(title)
        if shown:
            note(shown)
            title = f"{shown}\n{title}"
        with configure("supervisor", deployment.node, folder.log("supervisor"), deployment.log_level, echo=False):
            screen = LiveScreen(title) if sys.stdout.isatty() and not as_json else Screen(as_json=as_json)
            if not asyncio.run(_up(place, loaded, specs, seconds, screen)):
                sys.exit(1)


def open_dashboard(settings: DashboardSettings, role: MachineRole | None) -> tuple[str, socket.socket | None]:
    """Return a line about the dashboard, and its open socket.

    The socket outlives restarts of the dashboard's process. It is ``None`` if there is no dashboard. A run goes on
    without a dashboard, for instance if another run's has the port.
    """
    if role == "worker" or not settings.start:
        return "", None
    try:
        server = listen(settings)
    except AddressTaken as error:
        return f"No dashboard: {error.message} {error.hint}", None
    return f"Dashboard: {url_of(server)}", server


def _check_journal(file: Path, settings: RunSettings) -> None:
    """Migrate an older journal; refuse damage and unfit settings.

    Otherwise the broker would fail at each restart.
    """
    if file.is_file() and file.stat().st_size:
        # The settings are closed too, because their reader would fail later in a closed journal.
        with closing(SqliteJournal(file)) as journal, closing(past_settings(journal)) as past:
            check_lasting(past, settings)


PINNED_LINES = 6
"""Most pinned lines.

Each shows the latest event of a type and configuration, or a daemon's failure.
"""

STREAM_LINES = 6
"""Most lines of ordinary events."""


class Screen:
    """Plain output: events on stdout, the rest on stderr.

    With JSON, reports go to stdout too.
    """

    def __init__(self, *, as_json: bool = False) -> None:
        self._as_json = as_json

    def report(self, report: ChildReport) -> None:
        """Show an unusual report on a daemon's process; with JSON, every report."""
        if self._as_json:
            fields = asdict(report)
            write_json({"daemon": fields.pop("name"), **fields})
        elif not is_usual(report):
            note(describe(report))

    def event(self, event: Event[Any]) -> None:
        """Show an interesting event."""
        write_event(event, as_json=self._as_json)

    def status(self, status: Status) -> None:
        """Ignore the status, because a file has no use for repeated tables."""

    def say(self, text: str) -> None:
        """Show a line to the operator."""
        note(text)

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

    def event(self, event: Event[Any]) -> None:
        """Add a line; pin it if the event is notable."""
        line = _line(event.recordedtime.strftime("%H:%M:%S "), "dim").append_text(event_text(event))
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
        return [status_table(self._status, self._live.console.width), "", daemons_text(self._status), ""]

    def _lines(self, room: int) -> list[RenderableType]:
        """Return the lines below the tables.

        The pinned lines come first, then others as far as there is room.
        """
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
    """Return all daemons side by side, coloured by state.

    Notes say what is unusual about a daemon.
    """
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


Specs = tuple[list[ChildSpec], list[ChildSpec]]
"""Processes in two lists; the second needs the first."""


async def _up(place: Place, loaded: Loaded, specs: Specs, seconds: float | None, chosen: Screen) -> bool:
    stop, hurry, loop = asyncio.Event(), asyncio.Event(), asyncio.get_running_loop()
    watch = JournalWatch(place.folder)
    with chosen as screen:

        def on_signal() -> None:
            if stop.is_set():
                hurry.set()
                return
            stop.set()
            with tolerate_closed_output():
                screen.say("Stopping: running jobs get their time. Ctrl-C again does not wait.")

        drain_seconds = loaded.deployment.drain_seconds + AFTER_DRAIN_SECONDS
        (needed, others), report = specs, _reporter(screen, stop)
        supervisor = Supervisor(
            [*needed, *others], SystemClock(), report, needed=len(needed), drain_seconds=drain_seconds
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            loop.add_signal_handler(number, on_signal)
        if seconds is not None:
            loop.call_later(seconds, stop.set)
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(_watch(watch, place, loaded, screen, stop))
            fine = await supervisor.run(stop, hurry)
            watcher.cancel()
        with tolerate_closed_output():
            _look(watch, None, screen)
        watch.save()
        unknown = supervisor.cut_short() if seconds is not None else []
        if unknown:
            with tolerate_closed_output():
                screen.say(f"The time was over before these had started: {', '.join(unknown)}. Give --for more.")
    return fine and not unknown


def child_specs(place: Place, loaded: Loaded, role: MachineRole | None = None) -> Specs:
    """Return a process for each daemon.

    The broker and a Ray cluster of the run's own belong to the first list. The monitoring daemon is left out if the
    settings ask it for nothing.
    """
    folder, environment = place.folder, child_environment(place, loaded)
    cluster = []
    if is_own_cluster(loaded.deployment):
        environment |= ray_environment(folder)
        cluster = [ChildSpec("ray", cluster_command(folder, loaded.deployment), folder.errors("ray"))]
    command = python_module("app.cli", "--run", str(folder.path.absolute()), "daemon", "run")
    names = [name for name in names_of(role) if name != monitoring.DAEMON.name or loaded.deployment.is_monitored]
    daemons = [ChildSpec(name, (*command, name, "--supervised"), folder.errors(name), environment) for name in names]
    broker = [spec for spec in daemons if spec.name == BROKER]
    return [*broker, *cluster], [spec for spec in daemons if spec not in broker]


def dashboard_spec(place: Place, loaded: Loaded, fd: int) -> ChildSpec:
    """Return the dashboard's process, which serves at an open socket.

    The run goes on if the dashboard cannot start.
    """
    folder = place.folder
    command = python_module(
        "app.cli", "--run", str(folder.path.absolute()), "dashboard", "--supervised", "--fd", str(fd)
    )
    errors, environment = folder.errors("dashboard"), child_environment(place, loaded)
    return ChildSpec("dashboard", command, errors, environment, fds=(fd,), vital=False)


def child_environment(place: Place, loaded: Loaded) -> dict[str, str]:
    """Return the variables that pass this process's command-line settings to a child."""
    values = loaded.values()
    given = {key: values[key] for key, origin in loaded.origins.items() if origin == COMMAND_LINE}
    environment = {variable(key): json.dumps(value) for key, value in given.items()}
    if place.config_file is not None:
        environment["FLYBALL_CONFIG_FILE"] = str(place.config_file.absolute())
    return environment


def _reporter(screen: Screen, stop: asyncio.Event) -> Callable[[ChildReport], None]:
    log = structlog.get_logger("supervisor")

    def report(report: ChildReport) -> None:
        write: Any = log.error if report.what in ("failed", "hopeless", "killed") else log.info
        fields = asdict(report)
        write(f"{report.name} {report.what}", child=fields.pop("name"), **fields)
        with tolerate_closed_output(stop.set):
            screen.report(report)

    return report


class JournalWatch:
    """Feeds a board from the journal in parts.

    The watch starts where the board was last saved.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._voided = set[int]()
        self.board, self._began_at = Board(), 0
        with suppress(FlyballError), closing(SqliteJournalReader(folder.journal)) as reader:  # ``news`` reports errors
            self.board, self._began_at = load_board(folder.board, reader), reader.head
        self._saved_at = self.board.position
        self.behind = False  # the last part was full, so there may be more to read at once
        self.trouble = ""  # the last read error that was shown to the operator

    def news(self) -> list[Event[Any]]:
        """Read the next part; return its interesting new events.

        Raises ``FlyballError`` for damage.
        """
        try:
            reader = SqliteJournalReader(self._folder.journal)
        except NotAJournal:
            return []
        with closing(reader):
            wanted, voided = READS | INTERESTING, voided_events(reader)
            if voided.keys() != self._voided:
                self._voided, self.board = set(voided), load_board(self._folder.board, reader)
            events = history(reader, after=self.board.position, types=wanted, on_dead=lambda _: None)
            part = list(islice(events, AT_ONCE))
        self.behind = len(part) == AT_ONCE
        self.board.feed(event for event in part if event.sequence not in voided)
        if self.board.position - self._saved_at >= SAVE_AFTER:
            self.save()
        return [event for event in part if is_shown(event.data) and event.sequence > self._began_at]

    def save(self) -> None:
        """Save the board, so that the next watch starts from it."""
        if self.board.position > self._saved_at:
            try_save(self._folder, self.board)
            self._saved_at = self.board.position


async def _watch(watch: JournalWatch, place: Place, loaded: Loaded, screen: Screen, stop: asyncio.Event) -> None:
    """Show news until cancelled.

    Stops the run in order once nobody reads stdout.
    """
    bus = open_bus(place, loaded, LOOK_SECONDS, "up")
    try:
        while True:
            presence = await presence_on(bus)
            with tolerate_closed_output(stop.set):
                _look(watch, presence, screen)
            await asyncio.sleep(0 if watch.behind else LOOK_SECONDS)
    finally:
        await bus.close()


def _look(watch: JournalWatch, presence: Presence | None, screen: Screen) -> None:
    """Show new events and the status.

    An unreadable journal is only reported; it does not end the run.
    """
    try:
        for event in watch.news():
            screen.event(event)
    except FlyballError as error:
        if watch.trouble != error.message:
            screen.say(str(error))
        watch.trouble = error.message
    screen.status(watch.board.status(SystemClock().now(), presence, running=True))
