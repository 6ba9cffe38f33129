"""A run: its folder, settings, journal, board and broker."""

import asyncio
import os
import shlex
import socket
import struct
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from flyball.app.api.commands import completed, flyball
from flyball.app.bus import Bus, ZmqBus
from flyball.app.bus.access import KeyRefused
from flyball.app.bus.ports import BrokerUnavailable
from flyball.app.config import GAMES, Deployment, ForeignSettings, GameConfig, RunFolder, RunSettings
from flyball.app.config.deployment import JournalSettings
from flyball.app.config.loading import Loaded, UnknownConfig, load
from flyball.app.core import BROKER, FlyballError, ModelHash, UnusableFile, allow_modules_in, nearest, suggest
from flyball.app.events import Event, EventVoided, Payload
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import JournalReader, NotAJournal, history
from flyball.app.journal.history import last_settings, past_settings, voided_events
from flyball.app.journal.kept_files import rescued_copy
from flyball.app.journal.opening import journal_of
from flyball.app.journal.ports import JournalLocation, StoredReader
from flyball.app.status.status import READS, Board, Presence, ProcessEnd, Status, ask_presence, load_board
from flyball.app.status.summary import show_time
from flyball.app.telemetry import FAILED, last_records
from flyball.daemons.clock import SystemClock
from flyball.daemons.rights import client_keys
from flyball.daemons.run_folder import bus_endpoint, is_held

SAVE_AFTER = 20_000
"""Events read before the board is saved again, which spares the next reader seconds."""

PROBE_SECONDS = 2.0
ASK_SECONDS = 5.0
"""Longest wait for the broker's table of daemons."""

Say = Callable[[str], None]
"""Receives a line of progress or a warning."""


class SettingsNotNamed(UnknownConfig, code="settings_not_named"):
    """The run plays a configuration of a settings file that is not named."""


class NotRunning(FlyballError, code="not_running"):
    """No broker answers."""


@dataclass(frozen=True, slots=True)
class RunLocation:
    """The run folder, and the settings file if one is named."""

    folder: RunFolder
    config_file: Path | None

    def load(self, overrides: Mapping[str, Any] | None = None) -> Loaded:
        """Load the settings."""
        return load(self.folder.path, overrides, config_file=self.config_file)

    @property
    def journal(self) -> JournalLocation:
        """The place of its journal; with unusable settings, the file in the run folder. Raises ``OtherJournal``."""
        settings = JournalSettings()
        with suppress(FlyballError):
            settings = self.load().deployment.journal
        return journal_of(self.folder, settings)

    @property
    def store(self) -> str:
        """The folder or URL of the run's store."""
        return self.load().store(self.folder)

    def command(self, *words: str) -> str:
        """Return a command about this run, to paste into this shell."""
        return f"{flyball(self.folder.path, self.config_file)} {shlex.join(words)}"

    def completed(self, text: str) -> str:
        """Return a text whose commands are about this run; see ``command``."""
        return completed(text, flyball(self.folder.path, self.config_file))

    @property
    def settings_folder(self) -> str:
        """The folder of the settings file, where the user's commands run."""
        return str((self.config_file or self.folder.settings).parent.absolute())

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments of ``locate_run`` as JSON, with absolute paths, which stay valid in another working folder."""
        file = None if self.config_file is None else str(self.config_file.absolute())
        return {"run": str(self.folder.path.absolute()), "config_file": file}

    def config(self, key: str) -> GameConfig:
        """Load one configuration, whether or not the run plays it.

        Raises ``UnknownConfig``, or ``SettingsNotNamed`` if the run was begun with a settings file that has it.
        """
        try:
            return self.load({"configs": [key]}).run.config(key)
        except UnknownConfig as error:
            played = self._played()
            if key in played:
                message = f"The run in {self.folder.path} plays {key}, which is in another settings file."
                raise SettingsNotNamed(message, hint="Name that file, too: config_file.") from None
            if (near := nearest(key, {*played, *GAMES})) in played:
                raise UnknownConfig(error.message, hint=f"Did you mean {near}?") from None
            raise

    def _played(self) -> set[str]:
        """Return the configurations of all settings that the run recorded; none without a readable journal."""
        with suppress(FlyballError), open_journal(self) as reader:
            return played_keys(reader)
        return set()


def locate_run(run: str | Path, config_file: str | Path | None = None) -> RunLocation:
    """Locate a run folder.

    ``config_file`` replaces the settings file of the folder. From then on, the user's own modules beside the settings
    can be imported.

    Raises ``UnusableFile``.
    """
    folder, file = RunFolder(Path(run)), None if config_file is None else Path(config_file)
    for path in (folder.path, file or folder.settings):
        _check_name(path)
    allow_modules_in((file or folder.settings).parent)
    return RunLocation(folder, file)


def _check_name(path: Path) -> None:
    """Refuse a name that is not UTF-8, because journals, logs and JSON hold names."""
    try:
        absolute = path.absolute()
        str(absolute).encode()
    except FileNotFoundError:
        raise UnusableFile("The current folder was deleted.", hint="Change to another one.") from None
    except UnicodeEncodeError:
        raise UnusableFile(f"The name {os.fsencode(absolute)!r} is not UTF-8.", hint="Rename it.") from None


def config_of(game: str | GameConfig, location: RunLocation) -> GameConfig:
    """Return ``game`` itself, or the configuration with this key. Raises ``UnknownConfig``."""
    return location.config(game) if isinstance(game, str) else game


def silent(_: str) -> None:
    """Drop a line: the default of ``say``."""


def complaint(say: Say) -> Callable[[DeadLetter], None]:
    """Return a function that says that an event can't be read."""
    return lambda dead: say(f"The event at position {dead.position} can't be read: {dead.error}")


def no_run(folder: RunFolder) -> NotAJournal:
    """Return the error for a folder without a journal; its hint names the copy that a broker made of a lost one."""
    hint = "Name the folder of a run, or begin one: flyball up."
    if copy := rescued_copy(folder.journal):
        hint = f"Put its journal back: {shlex.join(('mv', str(copy), str(folder.journal)))}"
    return NotAJournal(f"There is no run in {folder.path}.", hint=hint)


@contextmanager
def open_journal(location: RunLocation) -> Iterator[StoredReader]:
    """Open the run's journal for reading. Raises ``NotAJournal``."""
    journal = location.journal
    if not journal.exists():
        raise no_run(location.folder)
    with closing(journal.reader()) as reader:
        yield reader


@contextmanager
def open_run(location: RunLocation) -> Iterator[StoredReader]:
    """Open the run's journal, and refuse settings of another version. Raises ``NotAJournal`` or ``ForeignSettings``."""
    with open_journal(location) as reader:
        last_settings(reader)
        yield reader


def settings_shown(reader: JournalReader) -> RunSettings | None:
    """Return the settings in force, which name user-defined controllers; ``None``: unknown to this version."""
    with suppress(ForeignSettings):
        return last_settings(reader)
    return None


def played_keys(reader: JournalReader) -> set[str]:
    """Return the configurations of all settings that a run recorded. Raises ``ForeignSettings``."""
    return {str(config.key) for settings in past_settings(reader) for config in settings.configs}


def check_config(reader: JournalReader | None, config_key: str | None) -> None:
    """Refuse a key that neither the run nor Flyball knows.

    Raises ``UnknownConfig``, which names the nearest of the run's own configurations; without a run, of Flyball's.
    """
    if config_key is None or config_key in GAMES:
        return
    played = played_keys(reader) if reader else set()
    if config_key not in played:
        hint = suggest(config_key, played, "The run plays ") if played else suggest(config_key, GAMES)
        raise UnknownConfig(f"There is no configuration {config_key!r}.", hint=hint)


def check_played(reader: JournalReader, location: RunLocation, config_key: str) -> None:
    """Refuse a configuration that is not in the settings of the run's last start. Raises ``UnknownConfig``."""
    settings = last_settings(reader)
    played = sorted(config.key for config in settings.configs) if settings else []
    if played and config_key not in played:
        hint = f"It plays {', '.join(played)}."
        raise UnknownConfig(f"The run in {location.folder.path} does not play {config_key}.", hint=hint)


def read_board(folder: RunFolder, reader: JournalReader, say: Say) -> Board:
    """Load the saved board and feed it the events recorded since. Raises ``DamagedRecord``."""
    board = load_board(folder.board, reader)
    start, voided = board.position, voided_events(reader)
    events = history(reader, after=start, types=READS, on_dead=complaint(say))
    board.feed(event for event in events if event.sequence not in voided)
    if board.position - start >= SAVE_AFTER:
        try_save(folder, board)
    return board


def try_save(folder: RunFolder, board: Board) -> None:
    """Save a board, ignoring a failure. A failure only makes the next load slower."""
    with suppress(OSError):
        board.save(folder.board)


def current_model(location: RunLocation, reader: JournalReader, config_key: str, say: Say) -> ModelHash | None:
    """Return a configuration's current model; None before the first."""
    row = read_board(location.folder, reader, say).configs.get(config_key)
    return row.model if row else None


def last_failure(folder: RunFolder, daemon: str) -> ProcessEnd | None:
    """Return the latest failure in a daemon's log; None without one."""
    failure = None
    for record in last_records(folder.log(daemon)):
        with suppress(ValueError, KeyError, TypeError):
            if record["body"] == FAILED:
                attributes = record["attributes"]
                reason = attributes.get("error") or attributes["exception.message"]
                failure = ProcessEnd(daemon, datetime.fromisoformat(record["timestamp"]), reason)
    return failure


def is_listening(endpoint: str) -> bool:
    """Return whether a broker listens at an address."""
    transport, _, rest = endpoint.partition("://")
    with suppress(OSError):
        if transport == "ipc":
            with socket.socket(socket.AF_UNIX) as probe:
                probe.settimeout(PROBE_SECONDS)
                with suppress(BlockingIOError):  # a halted broker's queue is full
                    probe.connect(rest)
                return True
        host, _, port = rest.rpartition(":")
        with socket.create_connection((host.strip("[]"), int(port)), timeout=PROBE_SECONDS):
            return True
    return False


class BrokerAddress(NamedTuple):
    """A broker's address, and whether it listens there."""

    endpoint: str
    listens: bool


def find_broker(folder: RunFolder, deployment: Deployment) -> BrokerAddress:
    """Return the address at which the broker of either head listens; if neither does, that of this head."""
    endpoint = bus_endpoint(folder, deployment)
    for address in filter(None, (endpoint, deployment.other_head)):
        if is_listening(address):
            return BrokerAddress(address, listens=True)
    return BrokerAddress(endpoint, listens=False)


def check_listening(location: RunLocation) -> str:
    """Return the address of the run's broker. Raises ``NotRunning`` when none listens."""
    endpoint, listens = find_broker(location.folder, location.load().deployment)
    if not listens:
        if location.load().deployment.keys.broker is not None:
            raise _no_answer(endpoint)
        raise NotRunning(f"No broker listens at {endpoint}.", hint=f"Start it: {location.command('up')}")
    return endpoint


def broker_silence(endpoint: str, since: datetime | None = None) -> NotRunning:
    """Return the error for a broker that listens and does not answer. ``since``: when it recorded its last event."""
    pid = _listener(endpoint)
    who = f"The broker (process {pid})" if pid else f"The broker at {endpoint}"
    what = f"{who} does not answer" + (f"; it recorded its last event at {show_time(since)}" if since else "")
    if pid and _is_halted(pid):
        return NotRunning(f"{what}. Its process is halted.", hint=f"Let it go on: kill -CONT {pid}")
    restart = f"kill -9 {pid}" if pid else "restart it on its machine"
    return NotRunning(f"{what}.", hint=f"Its disk may hang. If it does not come back, let it start again: {restart}")


def _listener(endpoint: str) -> int | None:
    """Return the process that listens at a socket of this machine; None if it is unknown."""
    transport, _, path = endpoint.partition("://")
    if transport == "ipc":
        with suppress(OSError), socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(PROBE_SECONDS)
            probe.connect(path)
            (pid,) = struct.unpack_from("i", probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))  # unix(7)
            return pid or None
    return None


def _is_halted(pid: int) -> bool:
    """Return whether a process is stopped, as by SIGSTOP or a debugger."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2]
    except OSError:
        return False
    return state.split()[:1] in (["T"], ["t"])


def _no_answer(endpoint: str) -> NotRunning:
    """Return the error for a remote broker that does not answer."""
    return NotRunning(
        f"The broker at {endpoint} does not answer.",
        hint="Is the head running (`systemctl status flyball@broker` there), and is deployment.keys.broker its key?",
    )


@asynccontextmanager
async def connected(location: RunLocation, deadline_s: float, producer: str = "cli") -> AsyncIterator[ZmqBus]:
    """Connect to the run's broker, as ``producer@node``. Raises ``NotRunning`` when none listens."""
    check_listening(location)
    bus = open_bus(location, location.load(), deadline_s, producer)
    try:
        yield bus
    finally:
        await bus.close()


def open_bus(location: RunLocation, loaded: Loaded, deadline_s: float, producer: str) -> ZmqBus:
    """Return a connection to the run's broker, as ``producer@node``. The broker may start later."""
    endpoint, name = bus_endpoint(location.folder, loaded.deployment), f"{producer}@{loaded.deployment.node}"
    other = loaded.deployment.other_head
    return ZmqBus(endpoint, producer=name, deadline_s=deadline_s, keys=client_keys(loaded), other=other)


async def board_on(bus: Bus) -> Board:
    """Fold the board from the bus, without the journal's file."""
    voided = {event.data.position async for event in past_events(bus, {EventVoided})}
    board = Board()
    async for event in past_events(bus, READS):
        if event.sequence not in voided:
            board.feed((event,))
    return board


def read_status(location: RunLocation, say: Say) -> Status:
    """Return the status of a run.

    On a machine without the journal, the status comes from the broker's events. If there is no journal here and no
    broker answers, raises ``NotRunning`` for another machine's broker, otherwise ``NotAJournal``. Also raises
    ``KeyRefused`` or ``ForeignSettings``.
    """
    deployment = location.load().deployment
    endpoint, listening = find_broker(location.folder, deployment)
    presence, board, unanswered = asyncio.run(_ask(location, say)) if listening else (None, None, False)
    if board is None and deployment.keys.broker is not None and not location.journal.exists():
        raise _no_answer(endpoint)
    if board is None:
        with open_run(location) as reader:
            board = read_board(location.folder, reader, say)
            last = next(reader.headers_back(reader.head), None)
        if unanswered:
            since = EPOCH + timedelta(microseconds=last.recorded_us) if last else None
            say(f"WARNING: {broker_silence(endpoint, since)}")
        if not listening and (ended := last_failure(location.folder, BROKER)):
            board.end(ended)
    running = listening or is_held(location.folder)
    return board.status(SystemClock().now(), presence, running=running, broker_is_silent=unanswered)


async def _ask(location: RunLocation, say: Say) -> tuple[Presence | None, Board | None, bool]:
    """Ask the broker for its table of daemons, and a board; return also whether it did not answer.

    The board is None if this machine has the journal. Both are None if the broker does not answer, or refuses this key
    on a machine with the journal.
    """
    here = location.journal.exists()
    async with connected(location, ASK_SECONDS, producer="status") as bus:
        try:
            return await ask_presence(bus), None if here else await board_on(bus), False
        except BrokerUnavailable:
            return None, None, True
        except KeyRefused as error:
            if not here:
                raise
            say(str(error))
            return None, None, False


async def past_events(bus: Bus, types: Collection[type[Payload]], after: int = 0) -> AsyncIterator[Event[Any]]:
    """Iterate over past events of some types, from after position ``after`` to the journal's end."""
    async with bus.subscribe(types, after=after) as subscription:
        async for batch in subscription:
            for event in batch.events:
                yield event
            if batch.position >= batch.head:
                return
