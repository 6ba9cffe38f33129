"""A bus within one process, without broker and sockets."""

import asyncio
from collections.abc import Callable, Collection, Sequence
from typing import Any, NamedTuple

from flyball.app.bus.ports import Batch, BrokerLimits, BusClosed, BusError, Present, Sign, Subscription
from flyball.app.bus.presence import PresenceTable
from flyball.app.bus.sequencer import JournalPublisher
from flyball.app.bus.wire import pack_snapshot, read_snapshot
from flyball.app.core import Clock
from flyball.app.events import Envelope, Event, Payload
from flyball.app.events.frames import DeadLetter, read_events
from flyball.app.journal import Journal, Snapshot

READ_RECORDS = 64


class _Shared(NamedTuple):
    """State that all connections share. Subscriptions are in the order in which they began."""

    publisher: JournalPublisher
    subscribed: "dict[MemorySubscription, None]"
    presence: PresenceTable


class MemoryBus:
    """Publishes straight into a journal, and reads from it; see ``Bus``.

    Everything happens in the order of the calls, so a run repeats if its callers do.

    Args:
        journal: where events are recorded; only this bus and its ``connection``s write it.
        clock: the time of recording.
        producer: the source of the events that are published here.
        shared: the state of the bus, if this object is another connection to it.
    """

    def __init__(
        self, journal: Journal, clock: Clock, *, producer: str = "local@localhost", shared: _Shared | None = None
    ) -> None:
        self._journal, self._clock, self._producer = journal, clock, producer
        presence = PresenceTable(BrokerLimits().silent_seconds)
        self._shared = shared or _Shared(JournalPublisher(journal, clock), {}, presence)
        self._own: dict[MemorySubscription, None] = {}
        self._closed = False

    def connection(self, producer: str) -> "MemoryBus":
        """Return another producer's connection to this bus."""
        return MemoryBus(self._journal, self._clock, producer=producer, shared=self._shared)

    async def publish(self, envelope: Envelope[Any]) -> int:
        """See ``Bus.publish``."""
        return (await self.publish_many((envelope,)))[0]

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """See ``Bus.publish_many``."""
        return self.record(envelopes)

    def record(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Publish events without an event loop; see ``Bus.publish_many``."""
        if self._closed:
            raise BusClosed("The bus is closed.", hint="Publish before closing it.")
        positions = self._shared.publisher.publish(envelopes, self._producer)
        self._shared.presence.fold((envelope.data for envelope in envelopes), self._clock.monotonic())
        for subscription in self._shared.subscribed:
            subscription.notify()
        return positions

    def subscribe(
        self, types: Collection[type[Payload]] | None = None, *, after: int | None = None
    ) -> "MemorySubscription":
        """See ``Bus.subscribe``."""
        head = self._journal.head
        if after is None:
            after = head
        if after > head:
            hint = "Is this the right journal?"
            raise BusError(f"The cursor {after} lies beyond the journal's end {head}.", hint=hint)
        names = None if types is None else frozenset(payload.event_type for payload in types)
        subscription = MemorySubscription(self._journal, names, after, self._producer, self._forget)
        self._shared.subscribed[subscription] = self._own[subscription] = None
        return subscription

    def _forget(self, subscription: "MemorySubscription") -> None:
        self._shared.subscribed.pop(subscription, None)
        self._own.pop(subscription, None)

    async def bury(self, dead_letter: DeadLetter) -> None:
        """See ``Bus.bury``."""
        self._journal.append(dead_letters=[dead_letter])

    def show_life(self, sign: Sign) -> None:
        """See ``Bus.show_life``."""
        self._shared.presence.hear(self._producer, sign, self._clock.monotonic())

    async def present(self) -> tuple[Present, ...]:
        """See ``Bus.present``."""
        return self._shared.presence.table(self._clock.monotonic())

    def presence_facts(self) -> list[Payload]:
        """Return the facts about daemons that a broker has to publish now."""
        return self._shared.presence.due(self._clock.monotonic(), self._journal.head)

    async def snapshot(self, upto: int, kinds: Collection[str]) -> Snapshot | None:
        """See ``Bus.snapshot``."""
        return read_snapshot(pack_snapshot(self._journal.snapshot(upto), kinds))

    async def close(self) -> None:
        """Close the subscriptions; the journal stays open."""
        self._closed = True
        for subscription in tuple(self._own):
            await subscription.close()


class MemorySubscription(Subscription):
    """Batches in the order of the journal. See ``Subscription``. The subscription is established from the start."""

    def __init__(
        self,
        journal: Journal,
        types: frozenset[str] | None,
        after: int,
        reader: str,
        on_close: "Callable[[MemorySubscription], None]",
    ) -> None:
        self._journal, self._types = journal, types
        self._position, self._reader, self._on_close = after, reader, on_close
        self._caught_up = self._closed = False
        self._news = asyncio.Event()

    async def __anext__(self) -> Batch:
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
            self._journal.append(dead_letters=dead)
        self._position = chunk.position
        return Batch(tuple(events), self._position, self._journal.head, chunk.checksum)
