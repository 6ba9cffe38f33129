"""``flyball up``: all daemons of a run, supervised and watched."""

import asyncio
import json
import signal
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import asdict
from itertools import islice
from typing import Any

import click
import structlog

from app.cli.group import tolerate_closed_output
from app.cli.options import Place, is_listening, json_option, placed
from app.cli.output import note
from app.cli.screen import Screen, choose_screen
from app.cli.status import SAVE_AFTER, silent_after, try_save
from app.config import PROFILES, RunFolder, RunSettings
from app.config.loading import COMMAND_LINE, Loaded, variable
from app.core import FlyballError
from app.engine import python_module
from app.events import CATALOGUE, Event, ModelPromoted, Payload, PromotionRejected
from app.journal import NotAJournal, SqliteJournal, SqliteJournalReader, history
from app.journal.history import past_settings, voided_events
from app.status.snapshot import load_board
from app.status.status import READS, Board
from app.telemetry import configure
from daemons.clock import SystemClock
from daemons.registry import start_order
from daemons.run_folder import AlreadyRunning, bus_endpoint, held, prepare
from daemons.suitability import check_lasting, check_playable
from daemons.supervisor import ChildReport, ChildSpec, Supervisor

LOOK_SECONDS = 0.5
AFTER_DRAIN_SECONDS = 5.0
"""A daemon gets this much longer than its jobs before it is killed."""

INTERESTING: frozenset[type[Payload]] = frozenset(
    {ModelPromoted, PromotionRejected, *(payload for payload in CATALOGUE if payload.notable)}
)
"""Event types that stay on the screen."""

AT_ONCE = 5000
"""Events read before others get their turn."""


@click.command()
@click.option("--profile", type=click.Choice(list(PROFILES)), help="Which configurations to run.")
@click.option("--config", "configs", multiple=True, metavar="KEY", help="Run this configuration; may be repeated.")
@click.option("--seed", type=click.IntRange(0), help="Seed of the run.")
@click.option("--for", "seconds", type=click.FloatRange(0, min_open=True), help="Stop after this many seconds.")
@json_option
@placed
def up(
    place: Place,
    *,
    profile: str | None,
    configs: tuple[str, ...],
    seed: int | None,
    seconds: float | None,
    as_json: bool,
) -> None:
    """Start all daemons of a run and watch them. Ctrl-C stops them in order; a second one does not wait."""
    given = {"profile": profile, "configs": list(configs) or None, "seed": seed}
    loaded = place.load({key: value for key, value in given.items() if value is not None})
    check_playable(loaded.run)
    prepare(place.folder)
    with held(place.folder):
        _run(place, loaded, seconds, as_json=as_json)


def _run(place: Place, loaded: Loaded, seconds: float | None, *, as_json: bool) -> None:
    endpoint = bus_endpoint(place.folder, loaded.deployment)
    if is_listening(endpoint):
        raise AlreadyRunning(f"A broker listens at {endpoint} already.", hint="Stop it, or choose another --run.")
    _check_journal(place, loaded.run)
    title = f"Run folder {place.folder.path.absolute()}; daemons log to {place.folder.log('*')}. Ctrl-C stops."
    note(title)
    with configure(
        "supervisor", loaded.deployment.node, place.folder.log("supervisor"), loaded.deployment.log_level, echo=False
    ):
        if not asyncio.run(_up(place, loaded, seconds, choose_screen(title, as_json=as_json))):
            sys.exit(1)


def _check_journal(place: Place, settings: RunSettings) -> None:
    """Refuse a damaged journal and settings that the run can't have.

    Here, because the broker would refuse them at each restart. Migrates a journal of an older format.
    """
    file = place.folder.journal
    if file.is_file() and file.stat().st_size:
        with closing(SqliteJournal(file)) as journal:
            check_lasting(past_settings(journal), settings)


async def _up(place: Place, loaded: Loaded, seconds: float | None, chosen: Screen) -> bool:
    stop, hurry = asyncio.Event(), asyncio.Event()
    watch = JournalWatch(place.folder)
    with chosen as screen:
        supervisor = Supervisor(
            child_specs(place, loaded),
            SystemClock(),
            _reporter(screen, stop),
            drain_seconds=loaded.deployment.drain_seconds + AFTER_DRAIN_SECONDS,
        )
        _on_signals(lambda: _stop(stop, hurry, screen))
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(_watch(watch, loaded, screen, stop))
            timer = group.create_task(_stop_after(seconds, stop))
            fine = await supervisor.run(stop, hurry)
            watcher.cancel()
            timer.cancel()
        with tolerate_closed_output():
            _look(watch, loaded, screen)
        watch.save()
        unknown = supervisor.cut_short() if seconds is not None else []
        if unknown:
            with tolerate_closed_output():
                screen.say(f"The time was over before these had started: {', '.join(unknown)}. Give --for more.")
    return fine and not unknown


def child_specs(place: Place, loaded: Loaded) -> list[ChildSpec]:
    """Return a process for each daemon: with the same settings as this one."""
    environment = child_environment(place, loaded)
    command = python_module("app.cli", "--run", str(place.folder.path.absolute()), "daemon", "run")
    return [
        ChildSpec(name, (*command, name, "--supervised"), place.folder.errors(name), environment)
        for name in start_order()
    ]


def child_environment(place: Place, loaded: Loaded) -> dict[str, str]:
    """Return the variables by which a child gets this process's settings from the command line."""
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


def _on_signals(handle: Callable[[], None]) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        asyncio.get_running_loop().add_signal_handler(number, handle)


def _stop(stop: asyncio.Event, hurry: asyncio.Event, screen: Screen) -> None:
    if stop.is_set():
        hurry.set()
        return
    stop.set()
    with tolerate_closed_output():
        screen.say("Stopping: running jobs get their time. Ctrl-C again does not wait.")


async def _stop_after(seconds: float | None, stop: asyncio.Event) -> None:
    if seconds is not None:
        await asyncio.sleep(seconds)
        stop.set()


class JournalWatch:
    """Feeds a board from the journal, a part at a time, from where it was last saved.

    Attributes:
        behind: whether the last part was cut off: there is more to read at once.
        trouble: the last error of reading that was shown to the operator.
    """

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self._voided = set[int]()
        self.board, self.began_at = self._begin()
        self._saved_at = self.board.position
        self.behind = False
        self.trouble = ""

    def news(self) -> list[Event[Any]]:
        """Read on. Returns the interesting events among those recorded since the watch began.

        Raises:
            FlyballError: the journal can't be read any further.
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
        return [event for event in part if type(event.data) in INTERESTING and event.sequence > self.began_at]

    def save(self) -> None:
        """Save the board, so that the next watch begins here."""
        if self.board.position > self._saved_at:
            try_save(self._folder, self.board)
            self._saved_at = self.board.position

    def _begin(self) -> tuple[Board, int]:
        try:
            with closing(SqliteJournalReader(self._folder.journal)) as reader:
                return load_board(self._folder.board, reader), reader.head
        except FlyballError:  # reading on reports what is wrong with it
            return Board(), 0


async def _watch(watch: JournalWatch, loaded: Loaded, screen: Screen, stop: asyncio.Event) -> None:
    """Show what is new again and again; stop the run in order when the reader of stdout is gone."""
    while True:
        with tolerate_closed_output(stop.set):
            _look(watch, loaded, screen)
        await asyncio.sleep(0 if watch.behind else LOOK_SECONDS)


def _look(watch: JournalWatch, loaded: Loaded, screen: Screen) -> None:
    """Show what is new. An unreadable journal is reported and ends nothing: that is up to the broker."""
    try:
        for event in watch.news():
            screen.event(event)
    except FlyballError as error:
        if watch.trouble != error.message:
            screen.say(str(error))
        watch.trouble = error.message
    silent_seconds = silent_after(loaded.run, loaded.deployment)
    screen.status(watch.board.status(SystemClock().now(), silent_seconds, running=True))
