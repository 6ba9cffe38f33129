"""The bus over ZeroMQ: one connection for all a program publishes and subscribes to."""

import asyncio
import os
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from itertools import count
from typing import Any

from app.bus import wire
from app.bus.connection import Connection
from app.bus.errors import BrokerUnavailable, BusClosed, BusError, EventTooLarge, PublishRefused
from app.bus.outgoing import Outgoing, Ticket
from app.bus.ports import Spill
from app.bus.zmq_subscription import Delivery, ZmqSubscription
from app.core import FlyballError
from app.events import Envelope, Payload
from app.events.frames import DeadLetter, draft_of

MAX_EVENT_BYTES = 1 << 20
FAREWELL_S = 1.0


class ZmqBus:
    """A program's end of the bus. Create it on the loop it is used on.

    It connects, greets the broker and resends by itself, now and after every interruption.

    Args:
        endpoint: the broker's address.
        producer: this program's name, ``daemon@node``; stable over restarts.
        outbox: keeps frames while the broker is away; without one they are in memory only.
        deadline_s: how long to wait for an acknowledgement.
        epoch: names this life of the producer; by default a fresh nonce, which no decision depends on.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        producer: str,
        outbox: Spill | None = None,
        deadline_s: float = 30.0,
        epoch: int | None = None,
    ) -> None:
        self.endpoint, self.producer, self.deadline_s = endpoint, producer, deadline_s
        self._loop = asyncio.get_running_loop()
        nonce = int.from_bytes(os.urandom(8), "little") if epoch is None else epoch
        self._outgoing = Outgoing(producer, nonce, outbox)
        self._subscriptions: dict[int, ZmqSubscription] = {}
        self._asked: dict[int, tuple[list[bytes], asyncio.Future[str] | None]] = {}
        self._numbers = count(1)
        self._up = self._welcomed = self._greeting_under_way = self._closed = False
        self._greeting = 0
        self._drained = asyncio.Event()
        self._rare: dict[bytes, Callable[[bytes, bytes], None]] = {
            wire.WELCOME: self._on_welcome,
            wire.GREET: self._on_greet,
            wire.REJECT: self._on_reject,
            wire.OPENED: self._on_opened,
            wire.CLOSED: self._on_closed,
            wire.ANSWER: self._on_answer,
            wire.ERROR: self._on_error,
            wire.BEAT: self._on_beat,
        }
        self._alarm: asyncio.TimerHandle | None = None
        self._connection = Connection(endpoint, self, self._loop)

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Publish an event and return its position, once it is durable."""
        return (await self._submit((envelope,)))[0]

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Publish events in order and return their positions, once all are durable."""
        return await self._submit(envelopes) if envelopes else ()

    def subscribe(
        self,
        types: Collection[type[Payload]] | None = None,
        *,
        after: int | None = None,
        durable: str | None = None,
    ) -> ZmqSubscription:
        """Subscribe to events; see the port."""
        self._check_open()
        names = None if types is None else frozenset(payload.event_type for payload in types)
        subscription = ZmqSubscription(self, names, after=after, durable=durable)
        self.open(subscription)
        return subscription

    async def forget_letter(self, number: int) -> None:
        """Remove a dead letter.

        Raises:
            BusError: there is none of this number.
        """
        await self.ask(b"forget", wire.Forget(number=number))

    async def bury(self, letter: DeadLetter) -> None:
        """Keep a dead letter; see the port."""
        await self.ask(b"letter", wire.letter(letter), letter.body)

    async def close(self) -> None:
        """Send what is left if the broker is there, put the rest into the outbox, close."""
        if self._closed:
            return
        self._closed = True
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        if self._welcomed and self._outgoing:
            self._connection.wake()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), min(FAREWELL_S, self.deadline_s))
        self._connection.close()
        self._keep()
        self._outgoing.fail(BusClosed("The bus was closed before the broker acknowledged."))
        for _, future in self._asked.values():
            if future is not None and not future.done():
                future.set_exception(BusClosed("The bus was closed before the broker answered."))
        if self._alarm is not None:
            self._alarm.cancel()

    # What subscriptions need of their bus ------------------------------------------------------------------------

    def open(self, subscription: ZmqSubscription) -> None:
        """Ask the broker for a subscription, under a new number."""
        self._subscriptions.pop(subscription.number, None)
        subscription.number = next(self._numbers)
        self._subscriptions[subscription.number] = subscription
        if self._up:
            self.send(subscription.request())

    def release(self, subscription: ZmqSubscription) -> None:
        """End a subscription."""
        if self._subscriptions.pop(subscription.number, None) is not None and self._up:
            self.send([wire.ID_FORM.pack(wire.UNSUBSCRIBE, subscription.number)])

    def send(self, parts: list[bytes]) -> None:
        """Send a message if the broker is there."""
        if self._up:
            self._connection.send(parts)

    async def ask(self, method: bytes, arguments: wire.Message, body: bytes = b"") -> None:
        """Ask the broker for something, again after every interruption, and wait for its answer."""
        self._check_open()
        future: asyncio.Future[str] = self._loop.create_future()
        self._request(method, arguments, body, future)
        try:
            problem = await asyncio.wait_for(future, self.deadline_s)
        except TimeoutError as error:
            raise BrokerUnavailable(self.endpoint, self.deadline_s, queued=False) from error
        if problem:
            raise BusError(problem)

    def tell(self, method: bytes, arguments: wire.Message, body: bytes) -> None:
        """Ask the broker for something whose answer doesn't matter."""
        self._request(method, arguments, body, None)

    # What the connection tells -----------------------------------------------------------------------------------

    def on_up(self) -> None:
        """Greet the broker."""
        self._up = True
        self._greet()

    def on_down(self) -> None:
        """Put what is not acknowledged into the outbox."""
        self._up = self._welcomed = False
        self._keep()

    def on_message(self, parts: list[bytes]) -> None:
        """Act on a message of the broker."""
        head = parts[0]
        match head[:1]:
            case wire.ACK:
                self._outgoing.acknowledged(*wire.read_ack(head))
                if self._closed and not self._outgoing:
                    self._drained.set()
            case wire.EVENTS:
                _, number, start, end, newest = wire.EVENTS_FORM.unpack(head)
                if subscription := self._subscriptions.get(number):
                    subscription.on_events(Delivery(start, end, newest, parts[1:]))
            case kind:
                self._rare[kind](head, parts[-1])

    def fill(self, send: Callable[[list[bytes]], None]) -> None:
        """Send the frames that are due; keep them when the broker is away."""
        if self._welcomed:
            for raw in self._outgoing.due():
                send([wire.FRAME, raw])
        elif not self._up:
            self._keep()

    # -------------------------------------------------------------------------------------------------------------

    def _on_welcome(self, head: bytes, _: bytes) -> None:
        if wire.WELCOME_FORM.unpack(head)[1] == self._greeting:
            self._greeting_under_way = False
            self._welcomed = True
            self._outgoing.restart()
            self._connection.wake()

    def _on_greet(self, head: bytes, _: bytes) -> None:
        milliseconds = wire.GREET_FORM.unpack(head)[1]
        if milliseconds or not self._greeting_under_way:  # else it speaks of frames sent before the greeting
            self._welcomed = False
            self._greeting_under_way = True
            self._loop.call_later(milliseconds / 1000, self._greet)

    def _on_reject(self, head: bytes, last: bytes) -> None:
        _, epoch, base, _ = wire.REJECT_FORM.unpack(head)
        self._outgoing.refused(epoch, base, PublishRefused(last.decode()))

    def _on_opened(self, head: bytes, _: bytes) -> None:
        _kind, number, position = wire.OPENED_FORM.unpack(head)
        if subscription := self._subscriptions.get(number):
            subscription.on_opened(position)

    def _on_closed(self, head: bytes, last: bytes) -> None:
        if subscription := self._subscriptions.pop(wire.ID_FORM.unpack(head)[1], None):
            subscription.fail(BusError(last.decode()))

    def _on_answer(self, head: bytes, last: bytes) -> None:
        _, future = self._asked.pop(wire.TOKEN_FORM.unpack(head)[1], (None, None))
        if future is not None and not future.done():
            future.set_result(last.decode())

    def _on_error(self, _: bytes, last: bytes) -> None:
        self._outgoing.fail(BusError(last.decode(), hint="Use the same version of Flyball on both sides."))

    def _on_beat(self, *_: bytes) -> None:
        """Do nothing: the broker only wanted to know whether this end can be reached."""

    def _greet(self) -> None:
        if not self._up or self._closed:
            return
        self._welcomed = False
        self._greeting_under_way = True
        self._greeting += 1
        hello = wire.Hello(greeting=self._greeting, producer=self.producer, epochs=self._outgoing.epochs())
        self.send([wire.HELLO, hello.model_dump_json().encode()])
        for subscription in list(self._subscriptions.values()):
            self.open(subscription)
        for parts, _ in self._asked.values():
            self.send(parts)

    async def _submit(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        self._check_open()
        drafts = list(map(draft_of, envelopes))
        for envelope, draft in zip(envelopes, drafts, strict=True):
            if len(draft.body) > MAX_EVENT_BYTES:
                raise _too_large(envelope, len(draft.body))
        ticket = Ticket(self._loop.create_future(), len(drafts))
        self._outgoing.add(drafts, ticket, self._loop.time())
        self._connection.wake()
        if self._alarm is None:
            self._alarm = self._loop.call_later(self.deadline_s, self._look_at_deadlines)
        return await ticket.future

    def _request(self, method: bytes, arguments: wire.Message, body: bytes, future: asyncio.Future[str] | None) -> None:
        token = next(self._numbers)
        parts = [wire.TOKEN_FORM.pack(wire.ASK, token), method, arguments.model_dump_json().encode(), body]
        self._asked[token] = parts, future
        self.send(parts)

    def _look_at_deadlines(self) -> None:
        now, deadline = self._loop.time(), self._outgoing.next_deadline(self.deadline_s)
        if deadline is not None and deadline <= now:
            self._keep()
            self._outgoing.fail_overdue(self.endpoint, now, self.deadline_s)
            deadline = self._outgoing.next_deadline(self.deadline_s)
        self._alarm = None if deadline is None else self._loop.call_at(deadline, self._look_at_deadlines)

    def _keep(self) -> None:
        try:
            self._outgoing.keep()
        except FlyballError as error:
            self._outgoing.fail(error)

    def _check_open(self) -> None:
        if self._closed:
            raise BusClosed("The bus is closed.", hint="Publish before closing it.")


def _too_large(envelope: Envelope[Any], size: int) -> EventTooLarge:
    return EventTooLarge(
        f"Event {envelope.id} ({envelope.type}) has {size} bytes; the bus carries {MAX_EVENT_BYTES}.",
        hint="Put the data into the store and publish its key.",
    )
