"""Following a run: the news of its journal, and its broker's table of daemons."""

import asyncio
from contextlib import closing, suppress
from functools import partial
from itertools import islice
from typing import Any

from flyball.app.api.runs import SAVE_AFTER, RunLocation, broker_silence, find_broker, open_bus, try_save
from flyball.app.bus import ZmqBus
from flyball.app.bus.access import KeyRefused
from flyball.app.bus.ports import BrokerUnavailable
from flyball.app.config.loading import Loaded
from flyball.app.core import FlyballError
from flyball.app.events import (
    CATALOGUE,
    CurriculumRebalanced,
    Event,
    ModelPromoted,
    Payload,
    PromotionRejected,
    TrainingIntensityChanged,
)
from flyball.app.journal import NotAJournal, history
from flyball.app.journal.history import voided_events
from flyball.app.status.status import READS, Board, Presence, Status, ask_presence, load_board
from flyball.daemons.clock import SystemClock
from flyball.daemons.run_folder import is_held

INTERESTING: frozenset[type[Payload]] = frozenset(
    {
        CurriculumRebalanced,
        ModelPromoted,
        PromotionRejected,
        TrainingIntensityChanged,
        *(payload for payload in CATALOGUE if payload.notable),
    }
)
"""Event types that are shown; ``LiveScreen`` pins the notable ones. Of the intensity, only pauses are shown."""

AT_ONCE = 5000
"""Most events read at once, because other tasks must not wait long."""

SILENCE_SECONDS = 5.0
"""Time without an answer after which a broker that listens counts as silent, because it may only be busy."""


def is_shown(data: Payload) -> bool:
    """Return whether an event gets a line."""
    if isinstance(data, TrainingIntensityChanged):
        return "paused" in (data.intensity, data.previous)
    return type(data) in INTERESTING


class JournalWatch:
    """Feeds a board from the journal in parts. The watch starts where the board was last saved."""

    def __init__(self, location: RunLocation) -> None:
        self._folder, self._journal = location.folder, location.journal
        self._voided = set[int]()
        self.board, self._began_at = Board(), 0
        with suppress(FlyballError), closing(self._journal.reader()) as reader:  # ``news`` reports errors
            self.board, self._began_at = load_board(self._folder.board, reader), reader.head
        self._saved_at = self.board.position
        self.behind = False  # the last part was full, so there may be more to read at once
        self.trouble = ""  # the last read error that was shown to the operator

    def news(self) -> list[Event[Any]]:
        """Read the next part; return its interesting new events. Raises ``FlyballError`` for damage."""
        try:
            reader = self._journal.reader()
        except NotAJournal:
            return []
        with closing(reader):
            types, voided = READS | INTERESTING, voided_events(reader)
            if voided.keys() != self._voided:
                self._voided, self.board = set(voided), load_board(self._folder.board, reader)
            events = history(reader, after=self.board.position, types=types, on_dead=lambda _: None)
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


class BrokerWatch:
    """Asks a run's broker which daemons it hears, and notices when the broker falls silent.

    Attributes:
        presence: the broker's table of daemons; ``None``: it did not answer.
        running: whether the run is running.
        is_silent: whether the broker listens, but has not answered for ``SILENCE_SECONDS``.
        trouble: why there is no table although the broker listens, for the operator; otherwise empty.
    """

    def __init__(self, location: RunLocation, loaded: Loaded, deadline_s: float, producer: str) -> None:
        self.presence: Presence | None = None
        self.running, self.is_silent, self.trouble = False, False, ""
        self._folder = location.folder
        self._find = partial(find_broker, location.folder, loaded.deployment)
        self._open = partial(open_bus, location, loaded, deadline_s, producer)
        self._bus: ZmqBus | None = None
        self._unanswered_since: float | None = None

    async def look(self) -> None:
        """Ask the broker, if it listens."""
        now, presence, trouble, unanswered_since = asyncio.get_running_loop().time, None, "", None
        asked_at = now()
        listens = self.presence is not None or (await asyncio.to_thread(self._find)).listens
        if listens:
            try:
                self._bus = self._bus or self._open()
                presence = await ask_presence(self._bus)
            except KeyRefused as error:
                trouble = str(error)
            except BrokerUnavailable:
                unanswered_since = self._unanswered_since or asked_at
        self._unanswered_since, was_silent = unanswered_since, self.is_silent
        self.is_silent = unanswered_since is not None and now() - unanswered_since >= SILENCE_SECONDS
        if self.is_silent and was_silent:
            trouble = self.trouble
        elif self.is_silent:
            broker = await asyncio.to_thread(self._find)
            trouble = str(broker_silence(broker.endpoint))
        self.presence, self.trouble = presence, trouble
        self.running = listens or is_held(self._folder)

    def status(self, board: Board) -> Status:
        """Return the status of the run."""
        now = SystemClock().now()
        return board.status(now, self.presence, running=self.running, broker_is_silent=self.is_silent)

    async def close(self) -> None:
        """Close the connection."""
        if self._bus is not None:
            await self._bus.close()
