"""The bus, the journal, a state store and an outbox in memory; they pass the contract suites of the real ones."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from app.bus import Batch, JournalPublisher, Subscription
from app.bus.ports import BusClosed, BusError
from app.core import Clock
from app.events import Envelope, Event, Payload
from app.events.frames import DeadLetter, Record, read_events
from app.journal import Journal
from app.journal.damage import landmarks_in
from app.journal.outbox import MAX_BYTES, check_bound, key_of
from app.journal.ports import Chunk, StateKey
from app.journal.queries import MARKS_KEPT, check_order

READ_RECORDS = 64


class MemoryBus:
    """Publishes straight into a journal, and reads from it; see ``Bus``.

    Args:
        journal: where events are recorded; this bus is its only writer.
        clock: the time of recording.
        producer: the source of what is published here.
    """

    def __init__(self, journal: Journal, clock: Clock, *, producer: str = "local@localhost") -> None:
        self._journal, self._producer = journal, producer
        self._publisher = JournalPublisher(journal, clock, producer)
        self._subscriptions: set[MemorySubscription] = set()
        self._closed = False

    async def publish(self, envelope: Envelope[Any]) -> int:
        return (await self.publish_many((envelope,)))[0]

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        return self.record(envelopes)

    def record(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Do what ``publish_many`` does, without a loop."""
        if self._closed:
            raise BusClosed("The bus is closed.", hint="Publish before closing it.")
        positions = self._publisher.publish(envelopes)
        for subscription in self._subscriptions:
            subscription.notify()
        return positions

    def subscribe(
        self, types: Collection[type[Payload]] | None = None, *, after: int | None = None
    ) -> "MemorySubscription":
        head = self._journal.head
        if after is None:
            after = head
        if after > head:
            hint = "Is this the right journal?"
            raise BusError(f"The cursor {after} lies beyond the journal's end {head}.", hint=hint)
        names = None if types is None else frozenset(payload.event_type for payload in types)
        subscription = MemorySubscription(self._journal, names, after, self._producer, self._subscriptions.discard)
        self._subscriptions.add(subscription)
        return subscription

    async def bury(self, dead_letter: DeadLetter) -> None:
        self._journal.append(dead_letters=[dead_letter])

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
        return Batch(tuple(events), self._position, self._journal.head)


class MemoryJournal:
    """A journal that lives as long as the object. Records are kept as bytes, so they are read as from a disk."""

    def __init__(self) -> None:
        self.head = 0
        self.recorded_us = 0
        self._records: list[Record] = []
        self._firsts: list[int] = []
        self._marks: dict[str, dict[int, int]] = {}
        self._landmarks: dict[str, int] = {}
        self._dead_letters: dict[int, DeadLetter] = {}
        self._dead_letter_count = 0

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        check_order(self.head, records)
        for record in records:
            self._records.append(record)
            self._firsts.append(record.first)
            self.head, self.recorded_us = record.last, record.recorded_us
        for (producer, epoch), sequence in (marks or {}).items():
            kept = self._marks.setdefault(producer, {})
            kept.pop(epoch, None)
            kept[epoch] = sequence
            if len(kept) > MARKS_KEPT:
                del kept[next(iter(kept))]
        self._landmarks.update(landmarks_in(records))
        for dead in dead_letters:
            about = (dead.position, dead.reporter)
            if dead.position and any(about == (one.position, one.reporter) for one in self._dead_letters.values()):
                continue
            self._dead_letter_count += 1
            self._dead_letters[self._dead_letter_count] = replace(dead, number=self._dead_letter_count)

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        chosen, size, position = list[Record](), 0, after
        for record in self._records[self._index(after) :][:limit]:
            position = record.last
            if types is None or not frozenset(types).isdisjoint(record.frame.types):
                chosen.append(record)
                size += len(record.raw)
            if size > max_bytes:
                break
        return Chunk(tuple(chosen), position)

    def headers_back(self, upto: int) -> Iterator[Record]:
        yield from reversed(self._records[: bisect_right(self._firsts, upto)])

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        return ((record.first, record.frame.ids) for record in self._records[self._index(after) :])

    def mark(self, producer: str, epoch: int) -> int | None:
        return self._marks.get(producer, {}).get(epoch)

    def landmark(self, event_type: str) -> int:
        return self._landmarks.get(event_type, 0)

    def dead_letters(self) -> list[DeadLetter]:
        return list(self._dead_letters.values())

    def remove_dead_letter(self, number: int) -> bool:
        return self._dead_letters.pop(number, None) is not None

    def rest(self, *, idle: bool = True) -> None:
        """Do nothing: there is nothing to tidy."""

    def close(self) -> None:
        """Do nothing: the content stays for as long as the object."""

    def _index(self, after: int) -> int:
        """Return the index of the record that holds the next event."""
        index = max(0, bisect_right(self._firsts, after + 1) - 1)
        return index + bool(self._records and self._records[index].last <= after)


class MemoryStateStore:
    """State in memory."""

    def __init__(self) -> None:
        self._cursor = 0
        self._rows: dict[StateKey, bytes] = {}

    def load(self) -> tuple[int, dict[StateKey, bytes]]:
        return self._cursor, dict(self._rows)

    def save(self, cursor: int, changed: Mapping[StateKey, bytes | None]) -> None:
        self._cursor = cursor
        for key, value in changed.items():
            if value is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = value

    def close(self) -> None:
        """Do nothing: the content stays for as long as the object."""


class MemoryOutbox:
    """Frames in memory: they outlive a bus, but not the program."""

    def __init__(self, *, max_bytes: int = MAX_BYTES) -> None:
        self._frames: dict[tuple[int, int], bytes] = {}
        self._max_bytes = max_bytes

    def put(self, frames: Sequence[bytes]) -> None:
        kept = {key_of(frame): frame for frame in frames} | self._frames
        check_bound(sum(map(len, kept.values())), self._max_bytes)
        for frame in frames:
            self._frames.setdefault(key_of(frame), frame)

    def load(self) -> list[bytes]:
        return list(self._frames.values())

    def remove(self, keys: Collection[tuple[int, int]]) -> None:
        for key in keys:
            self._frames.pop(key, None)

    def close(self) -> None:
        """Do nothing: the content stays for as long as the object."""
