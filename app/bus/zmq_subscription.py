"""A subscription over ZeroMQ."""

import asyncio
from collections import deque
from types import TracebackType
from typing import Any, NamedTuple, Protocol, Self

from app.bus import wire
from app.bus.errors import BrokerUnavailable
from app.bus.ports import Batch
from app.core import FlyballError
from app.events import Event
from app.events.frames import DeadLetter, Record, read_events

CREDIT_BYTES = 4 << 20


class Delivery(NamedTuple):
    """Records that cover the positions after ``start`` up to ``end``."""

    start: int
    end: int
    head: int
    raws: list[bytes]

    @property
    def size(self) -> int:
        """The credit it takes, bytes."""
        return wire.EVENTS_FORM.size + sum(map(len, self.raws))


class Owner(Protocol):
    """The bus, as a subscription needs it."""

    endpoint: str
    producer: str
    deadline_s: float

    def open(self, subscription: "ZmqSubscription") -> None:
        """Ask the broker for the subscription, under a new number."""
        ...

    def release(self, subscription: "ZmqSubscription") -> None:
        """End the subscription."""
        ...

    def send(self, parts: list[bytes]) -> None:
        """Send a message if the broker is there."""
        ...

    async def ask(self, method: bytes, arguments: wire.Message) -> None:
        """Ask the broker for something and wait for its answer."""
        ...

    def tell(self, method: bytes, arguments: wire.Message, body: bytes) -> None:
        """Ask the broker for something whose answer doesn't matter."""
        ...


class ZmqSubscription:
    """Batches in the order of the journal. Not iterating stops the broker from sending, and loses nothing."""

    def __init__(self, bus: Owner, types: frozenset[str] | None, *, after: int | None, durable: str | None) -> None:
        self.number = 0
        self._bus, self._types, self._durable = bus, types, durable
        self._received = after  # the broker sent everything up to here
        self._opened = asyncio.get_running_loop().create_future()
        self._queue: deque[Delivery] = deque()
        self._news = asyncio.Event()
        self._owed = 0
        self._held_until: int | None = None  # what was queued when it was opened again counts as one
        self._error: FlyballError | None = None
        self._closed = False

    def __aiter__(self) -> Self:
        """Return itself."""
        return self

    async def __anext__(self) -> Batch:
        """Wait for the next batch."""
        while not self._queue:
            if self._error is not None:
                raise self._error
            if self._closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        delivery = self._queue.popleft()
        batch = self._open(delivery)
        self._give_credit(delivery)
        return batch

    async def __aenter__(self) -> Self:
        """Wait until the broker has opened the subscription."""
        try:
            await asyncio.wait_for(asyncio.shield(self._opened), self._bus.deadline_s)
        except TimeoutError as error:
            await self.close()
            raise BrokerUnavailable(self._bus.endpoint, self._bus.deadline_s, queued=False) from error
        if self._error is not None:
            raise self._error
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
        await self._bus.ask(b"commit", wire.Commit(name=self._durable, position=position))

    async def close(self) -> None:
        """End the iteration. Twice does nothing."""
        if not self._closed:
            self._closed = True
            self._queue.clear()
            self._bus.release(self)
            self._news.set()

    def request(self) -> list[bytes]:
        """Return the message that opens it where it left off; what is queued here goes on counting."""
        self._owed = 0
        self._held_until = self._received if self._queue else None
        wanted = wire.Subscribe(
            id=self.number,
            types=self._types,
            after=self._received,
            durable=self._durable,
            credit=CREDIT_BYTES,
            held=sum(delivery.size for delivery in self._queue),
        )
        return [wire.SUBSCRIBE, wanted.model_dump_json().encode()]

    def on_opened(self, position: int) -> None:
        """Note where it begins."""
        self._received = position
        if not self._opened.done():
            self._opened.set_result(None)

    def on_events(self, delivery: Delivery) -> None:
        """Take a delivery; one that does not continue what came before is asked for again."""
        if delivery.start != self._received:
            self._bus.open(self)
            return
        self._received = delivery.end
        self._queue.append(delivery)
        self._news.set()

    def fail(self, error: FlyballError) -> None:
        """End with an error."""
        self._error = error
        self._news.set()
        if not self._opened.done():
            self._opened.set_result(None)

    def _open(self, delivery: Delivery) -> Batch:
        events: list[Event[Any]] = []
        for raw in delivery.raws:
            record = Record.open(raw)
            events += read_events(
                record, after=delivery.start, types=self._types, reporter=self._bus.producer, on_dead=self._report
            )
        return Batch(tuple(events), delivery.end, delivery.head)

    def _report(self, letter: DeadLetter) -> None:
        self._bus.tell(b"letter", wire.letter(letter), letter.body)

    def _give_credit(self, delivery: Delivery) -> None:
        self._owed += delivery.size
        if self._owed >= CREDIT_BYTES // 4 or delivery.end == self._held_until:
            self._owed = 0
            self._bus.send([wire.CREDIT_FORM.pack(wire.CREDIT, self.number, delivery.end)])
