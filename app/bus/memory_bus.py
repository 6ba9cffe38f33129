"""The bus within one process: the same frames, journal and order, without a broker."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Any, Self

from app.bus.errors import BusClosed, BusError, PublishRefused
from app.bus.ports import Batch, Ledger, NotPermitted, check_rights
from app.bus.sequencer import Sequencer
from app.bus.window import WINDOW
from app.core import Clock, is_broker
from app.events import Envelope, Event, Payload
from app.events.frames import DeadLetter, Frame, frame_of, read_events

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
READ_RECORDS = 64
WRONG = "Is this the right journal?"


class MemoryBus:
    """Publishes straight into a journal, and reads from it.

    Args:
        journal: where events are recorded; this bus is its only writer.
        clock: the time of recording.
        producer: the source of what is published here.
    """

    def __init__(self, journal: Ledger, clock: Clock, *, producer: str = "local@localhost") -> None:
        self._journal, self._clock, self._producer = journal, clock, producer
        recent = journal.ids(max(0, journal.head - WINDOW))
        self._sequencer = Sequencer(journal.head, journal.recorded_us, recent)
        self._epoch = journal.head
        self._sequencer.introduce(producer, self._epoch, journal.mark(producer, self._epoch) or 0)
        self._subscriptions: set[MemorySubscription] = set()
        self._closed = False

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Publish an event and return its position."""
        return (await self.publish_many((envelope,)))[0]

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Publish events in order and return their positions."""
        return self.record(envelopes)

    def record(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Do what ``publish_many`` does, without a loop."""
        if self._closed:
            raise BusClosed("The bus is closed.", hint="Publish before closing it.")
        if not envelopes:
            return ()
        base = self._sequencer.marks[self._producer, self._epoch]
        raw = frame_of(envelopes, producer=self._producer, epoch=self._epoch, base=base)
        frame = Frame.parse(raw)
        if not is_broker(self._producer):
            try:
                check_rights(frame)
            except NotPermitted as error:
                raise PublishRefused(error.message, hint=error.hint) from error
        now_us = (self._clock.now() - EPOCH) // MICROSECOND
        runs = self._sequencer.admit(frame, now_us, self._producer)
        records, marks = self._sequencer.take()
        self._journal.append(records, marks=marks)
        for subscription in self._subscriptions:
            subscription.on_news()
        return tuple(position for run in runs for position in range(run.first, run.first + run.size))

    def subscribe(
        self,
        types: Collection[type[Payload]] | None = None,
        *,
        after: int | None = None,
        durable: str | None = None,
    ) -> "MemorySubscription":
        """Subscribe to events; see the port."""
        if after is None:
            after = self._journal.head if durable is None else self._journal.cursors().get(durable, 0)
        names = None if types is None else frozenset(payload.event_type for payload in types)
        if after > self._journal.head:
            raise BusError(f"The cursor {after} lies beyond the journal's end {self._journal.head}.", hint=WRONG)
        subscription = MemorySubscription(
            self._journal,
            names,
            after,
            durable=durable,
            reader=self._producer,
            on_close=self._subscriptions.discard,
        )
        self._subscriptions.add(subscription)
        return subscription

    async def bury(self, letter: DeadLetter) -> None:
        """Keep a dead letter; see the port."""
        self._journal.append(letters=[letter])

    async def close(self) -> None:
        """Close the subscriptions; the journal stays open."""
        self._closed = True
        for subscription in tuple(self._subscriptions):
            await subscription.close()


class MemorySubscription:
    """Batches in the order of the journal."""

    def __init__(
        self,
        journal: Ledger,
        types: frozenset[str] | None,
        after: int,
        *,
        durable: str | None,
        reader: str,
        on_close: "Callable[[MemorySubscription], None]",
    ) -> None:
        self._on_close = on_close
        self._journal, self._types, self._durable, self._reader = journal, types, durable, reader
        self._position = after
        self._told = False
        self._closed = False
        self._news = asyncio.Event()

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Batch:
        """Wait for the next batch."""
        while True:
            if self._closed:
                raise StopAsyncIteration
            if self._position < self._journal.head or not self._told:
                batch = self._read()
                if batch.events or not self._told:
                    self._told = batch.position >= batch.head
                    return batch
            else:
                self._news.clear()
                await self._news.wait()

    async def __aenter__(self) -> Self:
        """Return itself: it is established from the start."""
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    async def commit(self, position: int) -> None:
        """Make ``position`` the durable cursor."""
        if self._durable is None:
            raise ValueError("Only a subscription with a durable name has a cursor to commit.")
        self._journal.append(cursors={self._durable: position})

    async def close(self) -> None:
        """End the iteration. Twice does nothing."""
        self._closed = True
        self._news.set()
        self._on_close(self)

    def on_news(self) -> None:
        """Wake who waits."""
        self._news.set()

    def _read(self) -> Batch:
        chunk = self._journal.read(self._position, limit=READ_RECORDS, types=self._types)
        events: list[Event[Any]] = []
        dead: list[DeadLetter] = []
        for record in chunk.records:
            events += read_events(
                record, after=self._position, types=self._types, reporter=self._reader, on_dead=dead.append
            )
        if dead:
            self._journal.append(letters=dead)
        self._position = chunk.position
        return Batch(tuple(events), self._position, self._journal.head)
