"""The bus within one process: the same frames, journal and order, without a broker."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any

from app.bus.errors import BusClosed, BusError, PublishRefused
from app.bus.ports import Batch, Journal, NotPermitted, Subscription, check_rights
from app.bus.sequencer import WINDOW, Sequencer, microseconds
from app.core import Clock, is_broker
from app.events import Envelope, Event, Payload
from app.events.frames import DeadLetter, Frame, frame_of, read_events

READ_RECORDS = 64


class MemoryBus:
    """Publishes straight into a journal, and reads from it; see ``Bus``.

    Args:
        journal: where events are recorded; this bus is its only writer.
        clock: the time of recording.
        producer: the source of what is published here.
    """

    def __init__(self, journal: Journal, clock: Clock, *, producer: str = "local@localhost") -> None:
        self._journal, self._clock, self._producer = journal, clock, producer
        recent = journal.ids(max(0, journal.head - WINDOW))
        self._sequencer = Sequencer(journal.head, journal.recorded_us, recent)
        self._epoch = journal.head
        self._sequencer.introduce(producer, self._epoch, journal.mark(producer, self._epoch) or 0)
        self._subscriptions: set[MemorySubscription] = set()
        self._closed = False

    async def publish(self, envelope: Envelope[Any]) -> int:
        """See ``Bus.publish``."""
        return (await self.publish_many((envelope,)))[0]

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """See ``Bus.publish_many``."""
        return self.record(envelopes)

    def record(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Do what ``publish_many`` does, without a loop."""
        if self._closed:
            raise BusClosed("The bus is closed.", hint="Publish before closing it.")
        if not envelopes:
            return ()
        base = self._sequencer.marks[self._producer, self._epoch]
        frame = Frame.parse(frame_of(envelopes, producer=self._producer, epoch=self._epoch, base=base))
        if not is_broker(self._producer):
            try:
                check_rights(frame)
            except NotPermitted as error:
                raise PublishRefused(error.message, hint=error.hint) from error
        runs = self._sequencer.admit(frame, microseconds(self._clock.now()), self._producer)
        records, marks = self._sequencer.take()
        self._journal.append(records, marks=marks)
        for subscription in self._subscriptions:
            subscription.notify()
        return tuple(position for run in runs for position in range(run.first, run.first + run.size))

    def subscribe(
        self,
        types: Collection[type[Payload]] | None = None,
        *,
        after: int | None = None,
        durable: str | None = None,
    ) -> "MemorySubscription":
        """See ``Bus.subscribe``."""
        head = self._journal.head
        if after is None:
            after = head if durable is None else self._journal.cursors().get(durable, 0)
        if after > head:
            hint = "Is this the right journal?"
            raise BusError(f"The cursor {after} lies beyond the journal's end {head}.", hint=hint)
        names = None if types is None else frozenset(payload.event_type for payload in types)
        on_close = self._subscriptions.discard
        subscription = MemorySubscription(
            self._journal, names, after, durable=durable, reader=self._producer, on_close=on_close
        )
        self._subscriptions.add(subscription)
        return subscription

    async def bury(self, letter: DeadLetter) -> None:
        """See ``Bus.bury``."""
        self._journal.append(letters=[letter])

    async def close(self) -> None:
        """Close the subscriptions; the journal stays open."""
        self._closed = True
        for subscription in tuple(self._subscriptions):
            await subscription.close()


class MemorySubscription(Subscription):
    """Batches in the order of the journal; established from the start. See ``Subscription``."""

    def __init__(
        self,
        journal: Journal,
        types: frozenset[str] | None,
        after: int,
        *,
        durable: str | None,
        reader: str,
        on_close: "Callable[[MemorySubscription], None]",
    ) -> None:
        self._journal, self._types, self._durable = journal, types, durable
        self._position, self._reader, self._on_close = after, reader, on_close
        self._caught_up = self._closed = False
        self._news = asyncio.Event()

    async def __anext__(self) -> Batch:
        """See ``Subscription.__anext__``."""
        while not self._closed:
            if self._position < self._journal.head or not self._caught_up:
                batch = self._read()
                if batch.events or not self._caught_up:
                    self._caught_up = batch.position >= batch.head
                    return batch
            else:
                self._news.clear()
                await self._news.wait()
        raise StopAsyncIteration

    async def commit(self, position: int) -> None:
        """See ``Subscription.commit``."""
        if self._durable is None:
            raise ValueError("Only a subscription with a durable name has a cursor to commit.")
        self._journal.append(cursors={self._durable: position})

    async def close(self) -> None:
        """See ``Subscription.close``."""
        self._closed = True
        self.notify()
        self._on_close(self)

    def notify(self) -> None:
        """Wake the tasks that wait for a change."""
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
