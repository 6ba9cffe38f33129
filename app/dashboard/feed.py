"""The feed: reads the journal part by part into one model. The model serves all pages and all clients."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, closing, contextmanager, suppress
from itertools import islice

import structlog

from flyball.app.api.following import BrokerWatch
from flyball.app.api.runs import RunLocation
from flyball.app.core import FlyballError
from flyball.app.dashboard.model import RunModel
from flyball.app.journal import NotAJournal, history
from flyball.app.journal.history import voided_events
from flyball.app.replay.replaying import all_settings
from flyball.app.status.status import Status

LOOK_SECONDS = 0.5
AT_ONCE = 500
"""Most events folded under one lock. With more, a page would wait for longer than tens of milliseconds."""

PRESENCE_SECONDS = 2.0


class Feed:
    """The model of a run, and its news.

    Attributes:
        place: the run.
        model: what the journal says; read it under ``reading``.
        head: position of the journal's last event, which the model is approaching while it catches up. A reader of the
            model never finds it behind the model's position; only another run's journal has a smaller one.
        trouble: why the journal cannot be read now; an empty string if it can.
        broker: the run's.
    """

    def __init__(self, place: RunLocation) -> None:
        self.place, self._journal = place, place.journal
        self.model, self.head, self.trouble = RunModel(), 0, ""
        self.broker = BrokerWatch(place, place.load(), PRESENCE_SECONDS, "dashboard")
        self._lock = threading.RLock()
        self._voided = frozenset[int]()
        self._news = asyncio.Event()
        self.closing = False

    @contextmanager
    def reading(self) -> Iterator[RunModel]:
        """Lock the model; hold the lock for as short as possible."""
        with self._lock:
            yield self.model

    def status(self) -> Status:
        """Return the status of the run. The caller is ``reading``."""
        return self.broker.status(self.model.board)

    def read_part(self) -> bool:
        """Fold the next part of the journal; return whether more is left."""
        try:
            reader = self._journal.reader()
        except NotAJournal:
            return False
        with closing(reader):
            self.head, voided = reader.head, frozenset(voided_events(reader))
            is_another = voided != self._voided or self.head < self.model.position
            if is_another or self.model.is_outdated or not self.model.position:
                with self._lock:
                    self._voided, self.model = voided, RunModel(all_settings(reader), voided)
            after = max(self.model.position, reader.first - 1)  # older events may be deleted for good
            events = history(reader, after=after, on_dead=lambda _: None)
            for _ in range(20):
                part = list(islice(events, AT_ONCE))
                with self._lock:
                    for event in part:
                        self.model.take(event, voided=event.sequence in voided)
                    self.head = max(self.head, self.model.position)  # events are recorded while this reads
                if len(part) < AT_ONCE:
                    return False
        return True

    @asynccontextmanager
    async def following(self) -> AsyncIterator[None]:
        """Follow the journal and the broker's table of daemons inside the context."""
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(self._follow()), group.create_task(self._follow_presence())]
            try:
                yield
            finally:
                for task in tasks:
                    task.cancel()

    async def _follow(self) -> None:
        log = structlog.get_logger("feed")
        while True:
            model, position, more = self.model, self.model.position, False
            try:
                more = await asyncio.to_thread(self.read_part)
                self.trouble = ""
            except FlyballError as error:
                if self.trouble != error.message:
                    log.error("the journal cannot be read", error=str(error))  # noqa: TRY400 - the message says it all
                self.trouble = error.message
            if (self.model, self.model.position) != (model, position):
                self._announce()
            if not more:
                await asyncio.sleep(LOOK_SECONDS)

    async def _follow_presence(self) -> None:
        try:
            while True:
                before = self.broker.running
                await self.broker.look()
                if self.broker.running != before:
                    self._announce()
                await asyncio.sleep(PRESENCE_SECONDS)
        finally:
            await self.broker.close()

    def _announce(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def wait(self, seconds: float) -> None:
        """Wait for news of the journal, or of whether the run is running, at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._news.wait()

    async def reach(self, position: int, seconds: float) -> None:
        """Wait until the model has read a position, at most ``seconds``."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self.model.position < position:
                    await self._news.wait()

    def close(self) -> None:
        """End all streams, so that the server can stop. A signal handler may call this."""
        self.closing = True
        self._announce()
