"""The bus over ZeroMQ: one connection for each program."""

import asyncio
import os
from collections import deque
from collections.abc import Collection, Sequence
from contextlib import suppress
from socket import gethostname
from typing import Any, Self

import structlog
import zmq
from pydantic import TypeAdapter
from zmq.utils.monitor import recv_monitor_message

from flyball.app.bus import wire
from flyball.app.bus.access import ClientKeys, KeyRefused, check_endpoint
from flyball.app.bus.client import Changed, Client, ClientSubscription, Finished, Overdue, Postponed, Reconnect, Settled
from flyball.app.bus.ports import Batch, BrokerUnavailable, BusClosed, EventTooLarge, Present, Sign, Subscription
from flyball.app.core import FlyballError
from flyball.app.events import Envelope, Payload
from flyball.app.events.frames import DeadLetter, draft_of
from flyball.app.journal import KnownRecord, Outbox, Snapshot

MAX_EVENT_BYTES = 1 << 20
FAREWELL_S = 1.0
REFUSED = zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL
WATCHED = zmq.EVENT_CONNECTED | zmq.EVENT_HANDSHAKE_SUCCEEDED | zmq.EVENT_DISCONNECTED | REFUSED
MESSAGES_PER_TURN = 64
"""Messages received before the loop's other tasks get their turn."""

_table = TypeAdapter(tuple[Present, ...])


class ZmqBus:
    """A program's connection to the bus; see ``Bus``.

    Create it in the event loop that uses it. It connects, greets the broker and resends frames automatically, also
    after interruptions.

    Args:
        endpoint: the broker's address.
        producer: this program's name, ``daemon@node``; stable over restarts.
        outbox: stores frames while the broker is away; None keeps frames in memory only.
        deadline_s: seconds to wait for an acknowledgement.
        epoch: identifies this start of the producer; by default a random number, which affects no decision.
        keys: for a broker with keys; required for an address beyond this machine.
        sole: no other living process may have this name; this one waits while another has it.
        patient: wait while the broker does not admit the key, instead of failing with ``KeyRefused``.
        last_record: see ``Client``; everything fails with ``OtherHistory`` if the broker's journal does not hold it.
        other: address of the other head's broker. One of the two serves at a time, and both have the same keys.

    Raises:
        InsecureEndpoint: the address is beyond this machine, and there are no keys.
    """

    def __init__(
        self,
        endpoint: str,
        *,
        producer: str,
        outbox: Outbox | None = None,
        deadline_s: float = 30.0,
        epoch: int | None = None,
        keys: ClientKeys | None = None,
        sole: bool = False,
        patient: bool = False,
        last_record: KnownRecord | None = None,
        other: str | None = None,
    ) -> None:
        self._addresses = deque((endpoint, other) if other else (endpoint,))  # the first one is in use
        for address in self._addresses:
            check_endpoint(address, secured=keys is not None)
        self.producer, self.deadline_s = producer, deadline_s
        self._outbox = outbox
        self._loop = asyncio.get_running_loop()
        nonce = int.from_bytes(os.urandom(8), "little") if epoch is None else epoch
        self._client = Client(
            producer,
            nonce,
            deadline_s=deadline_s,
            outbox_frames=outbox.load() if outbox else (),
            process=f"process {os.getpid()} on {gethostname()}",
            sole=sole,
            patient=patient,
            last_record=last_record,
            has_other=other is not None,
        )
        self._postponed = ""  # why the broker refused the latest greeting; errors name it
        self._publishes: dict[int, asyncio.Future[tuple[int, ...]]] = {}
        self._requests: dict[int, asyncio.Future[bytes]] = {}
        self._subscriptions: dict[ClientSubscription, ZmqSubscription] = {}
        self._closed = self._scheduled = False
        self._drained = asyncio.Event()
        self._alarm: asyncio.TimerHandle | None = None
        self._unsent: deque[list[bytes]] = deque()
        self._context = zmq.Context()
        self._socket, self._keys = _dealer(self._context, keys), keys
        self._monitor = self._socket.get_monitor_socket(WATCHED)
        self._descriptors = _option(self._socket, zmq.FD), _option(self._monitor, zmq.FD)
        for descriptor in self._descriptors:
            self._loop.add_reader(descriptor, self._turn)
        self._connect()
        self.wake()

    @property
    def endpoint(self) -> str:
        """The address in use."""
        return self._addresses[0]

    async def publish(self, envelope: Envelope[Any]) -> int:
        """See ``Bus.publish``."""
        return (await self.publish_many((envelope,)))[0]

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """See ``Bus.publish_many``."""
        if not envelopes:
            return ()
        self._check_open()
        drafts = list(map(draft_of, envelopes))
        for envelope, draft in zip(envelopes, drafts, strict=True):
            if len(draft.body) > MAX_EVENT_BYTES:
                raise EventTooLarge(
                    f"Event {envelope.id} ({envelope.type}) has {len(draft.body)} bytes; "
                    f"the bus carries {MAX_EVENT_BYTES}.",
                    hint="Put the data into the store and publish its key.",
                )
        token = self._client.publish(drafts, self._loop.time())
        self._publishes[token] = self._loop.create_future()
        self.wake()
        positions: tuple[int, ...] = await self._publishes[token]
        return positions

    def subscribe(
        self, types: Collection[type[Payload]] | None = None, *, after: int | None = None
    ) -> "ZmqSubscription":
        """See ``Bus.subscribe``."""
        self._check_open()
        names = None if types is None else frozenset(payload.event_type for payload in types)
        state = self._client.subscribe(names, after)
        self._subscriptions[state] = subscription = ZmqSubscription(self, self._client, state)
        self.wake()
        return subscription

    def show_life(self, sign: Sign) -> None:
        """See ``Bus.show_life``."""
        self._check_open()
        if self._outbox is not None:
            self._outbox.check()
        self._client.show_life(sign)
        self.wake()

    async def present(self) -> tuple[Present, ...]:
        """See ``Bus.present``."""
        return _table.validate_json(await self._request(wire.PRESENT, wire.Message()))

    async def bury(self, dead_letter: DeadLetter) -> None:
        """See ``Bus.bury``."""
        await self._request(wire.BURY, wire.Bury.of(dead_letter), dead_letter.body)

    async def discard_dead_letter(self, number: int) -> None:
        """Remove a dead letter; an unknown number is ignored.

        Raises:
            BrokerUnavailable: not answered in time.
        """
        await self._request(wire.DISCARD, wire.Discard(number=number))

    async def snapshot(self, upto: int, kinds: Collection[str]) -> Snapshot | None:
        """See ``Bus.snapshot``."""
        request = wire.AskSnapshot(upto=upto, kinds=frozenset(kinds))
        return wire.read_snapshot(await self._request(wire.SNAPSHOT, request))

    async def _request(self, method: bytes, arguments: wire.Message, body: bytes = b"") -> bytes:
        """Return the body of the answer to a request, repeated after interruptions."""
        self._check_open()
        token = self._client.request(method, arguments, body, self._loop.time())
        future = self._requests[token] = self._loop.create_future()
        self.wake()
        answer: bytes = await future
        return answer

    def release(self, state: ClientSubscription) -> None:
        """End a subscription."""
        self._client.unsubscribe(state)
        self._subscriptions.pop(state, None)
        self.wake()

    def wake(self) -> None:
        """Schedule an exchange of messages, unless one is scheduled."""
        if not self._scheduled:
            self._scheduled = True
            self._loop.call_soon(self._turn)

    async def close(self) -> None:
        """Send remaining events, store the unacknowledged ones in the outbox, and close."""
        if self._closed:
            return
        self._closed = True
        for subscription in list(self._subscriptions.values()):
            await subscription.close()
        if self._client.is_welcome and self._client.has_unacknowledged:
            self.wake()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._drained.wait(), min(FAREWELL_S, self.deadline_s))
        self._unsent += self._client.messages()
        self._flush()
        for descriptor in self._descriptors:
            self._loop.remove_reader(descriptor)
        self._socket.disable_monitor()
        self._monitor.close(linger=0)
        self._socket.close(linger=200)
        self._context.term()
        if self._alarm is not None:
            self._alarm.cancel()
        self._store_frames()
        _fail(self._publishes, BusClosed("The bus was closed before the broker acknowledged."))
        _fail(self._requests, BusClosed("The bus was closed before the broker answered."))

    def _turn(self) -> None:
        """Exchange messages until there is nothing to send and nothing to receive.

        ZeroMQ's descriptor is edge-triggered: a send may consume the edge of a message that arrived. So the
        socket is drained after every send, because otherwise the loop might not wake for that message (pyzmq #2173).
        """
        self._scheduled = False
        handled = 0
        while not self._socket.closed:
            self._watch_connection()
            if not self._client.is_connected:
                self._store_frames()
            self._unsent += self._client.messages()
            sent, received = self._flush(), self._drain()
            self._act()
            self._set_alarm()
            if self._closed and not self._client.has_unacknowledged:
                self._drained.set()
            handled += received
            if handled >= MESSAGES_PER_TURN:
                self.wake()
                return
            if not sent and not received:
                return

    def _watch_connection(self) -> None:
        while _option(self._monitor, zmq.EVENTS) & zmq.POLLIN:
            event = recv_monitor_message(self._monitor)["event"]
            if event == zmq.EVENT_CONNECTED:
                self._client.search(self._loop.time(), reached=True)
            elif event == zmq.EVENT_HANDSHAKE_SUCCEEDED:
                self._postponed = ""  # so that the next refusal is logged again
                self._client.connected()
            elif event & REFUSED:
                self._client.refused(self._refusal(event), self._loop.time())
            else:
                self._unsent.clear()
                self._client.disconnected()
                self._client.search(self._loop.time())

    def _refusal(self, event: int) -> KeyRefused:
        if event == zmq.EVENT_HANDSHAKE_FAILED_AUTH and self._keys is not None:
            name = self.producer.rpartition("@")[2]
            return KeyRefused(
                f"The broker at {self.endpoint} does not admit the key of {self.producer}.",
                hint=f"Authorize it on the head, as worker, operator or reader: "
                f"flyball --run FOLDER keys authorize {name} worker {self._keys.own.public}",
            )
        return KeyRefused(
            f"One of the broker at {self.endpoint} and {self.producer} uses keys, and the other does not.",
            hint="Set deployment.keys on both sides: flyball keys new NAME",
        )

    def _flush(self) -> int:
        sent = 0
        while self._unsent:
            try:
                self._socket.send_multipart(self._unsent[0], zmq.NOBLOCK)
            except zmq.Again:
                if not _option(self._socket, zmq.EVENTS) & zmq.POLLOUT:
                    break
                continue
            self._unsent.popleft()
            sent += 1
        return sent

    def _drain(self) -> int:
        now = self._loop.time()
        for received in range(MESSAGES_PER_TURN):
            try:
                parts = self._socket.recv_multipart(zmq.NOBLOCK)
            except zmq.Again:
                return received
            self._client.receive(parts, now)
        return MESSAGES_PER_TURN

    def _reconnect(self) -> None:
        with suppress(zmq.ZMQError):  # ZeroMQ may not know the connection any more
            self._socket.disconnect(self.endpoint)
        self._unsent.clear()
        self._addresses.rotate()
        self._connect()

    def _connect(self) -> None:
        self._socket.connect(self.endpoint)
        self._client.search(self._loop.time())

    def _act(self) -> None:  # noqa: C901 - one case for each kind
        for output in self._client.outputs():
            match output:
                case Finished(token, result):
                    self._finish(token, result)
                case Overdue(token):
                    queued = token in self._publishes and self._outbox is not None
                    if queued:
                        self._store_frames()
                    self._finish(token, BrokerUnavailable(self.endpoint, self.deadline_s, queued=queued))
                case Changed(state) if subscription := self._subscriptions.get(state):
                    subscription.notify()
                case Settled(keys) if self._outbox is not None:
                    self._delete_frames(self._outbox, keys)
                case Reconnect():
                    self._reconnect()
                case Postponed(why) if why != self._postponed:
                    self._postponed = why
                    structlog.get_logger("bus").warning("the broker lets this program wait", reason=why)

    def _finish(self, token: int, result: tuple[int, ...] | bytes | FlyballError) -> None:
        """Complete the future of a publish or request, unless it is done."""
        future: asyncio.Future[Any] | None = self._publishes.pop(token, None) or self._requests.pop(token, None)
        if future is None or future.done():
            return
        if isinstance(result, FlyballError):
            future.set_exception(result)
        else:
            future.set_result(result)

    def _store_frames(self) -> None:
        """Store unacknowledged frames in the outbox, if there is one. If storing fails, all publishes fail."""
        if self._outbox is not None and (frames := self._client.unstored()):
            try:
                self._outbox.put(frames)
            except FlyballError as error:
                _fail(self._publishes, error)
            else:
                self._client.mark_stored()

    def _delete_frames(self, outbox: Outbox, keys: Collection[tuple[int, int]]) -> None:
        """Delete frames that are acknowledged or refused.

        Those that cannot be deleted are sent again at the next start, and recorded once. An error would end this turn,
        and later outcomes with it.
        """
        try:
            outbox.remove(keys)
        except FlyballError as error:
            structlog.get_logger("bus").warning("the outbox keeps acknowledged events", reason=str(error))

    def _set_alarm(self) -> None:
        due = self._client.next_deadline()
        if due is None or (self._alarm is not None and self._alarm.when() <= due):
            return
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(due, self._on_alarm)

    def _on_alarm(self) -> None:
        self._alarm = None
        self._client.tick(self._loop.time())
        self._turn()

    def _check_open(self) -> None:
        if self._closed:
            raise BusClosed("The bus is closed.", hint="Publish before closing it.")


class ZmqSubscription(Subscription):
    """See ``Subscription``. Without iteration the broker pauses deliveries; no event is lost."""

    def __init__(self, bus: ZmqBus, client: Client, state: ClientSubscription) -> None:
        self._bus, self._client, self._state = bus, client, state
        self._news = asyncio.Event()
        self._closed = False

    async def __anext__(self) -> Batch:
        """See ``Subscription.__anext__``."""
        while (batch := self._client.next_batch(self._state)) is None:
            if self._state.error is not None:
                raise self._state.error
            if self._closed:
                raise StopAsyncIteration
            await self._wait_for_news()
        if self._client.has_messages:
            self._bus.wake()
        return batch

    async def __aenter__(self) -> Self:
        """Wait until the broker has opened the subscription."""
        try:
            async with asyncio.timeout(self._bus.deadline_s):
                while not self._state.opened and self._state.error is None:
                    await self._wait_for_news()
        except TimeoutError as error:
            await self.close()
            raise BrokerUnavailable(self._bus.endpoint, self._bus.deadline_s, queued=False) from error
        if self._state.error is not None:
            raise self._state.error
        return self

    async def close(self) -> None:
        """See ``Subscription.close``."""
        if not self._closed:
            self._closed = True
            self._bus.release(self._state)
            self.notify()

    def notify(self) -> None:
        """Wake the tasks that wait for a change of the subscription."""
        self._news.set()

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()


def _fail(futures: dict[int, asyncio.Future[Any]], error: Exception) -> None:
    for future in futures.values():
        if not future.done():
            future.set_exception(error)
    futures.clear()


def _dealer(context: zmq.Context[zmq.Socket[bytes]], keys: ClientKeys | None) -> zmq.Socket[bytes]:
    socket = context.socket(zmq.DEALER)
    socket.setsockopt(zmq.IMMEDIATE, 1)  # queue no messages while the broker is away
    socket.setsockopt(zmq.SNDHWM, 0)  # no limit, because frames in flight are bounded
    socket.setsockopt(zmq.RCVHWM, 0)  # no limit, because credit bounds deliveries
    socket.setsockopt(zmq.RECONNECT_IVL, 20)
    socket.setsockopt(zmq.RECONNECT_IVL_MAX, 200)
    socket.setsockopt(zmq.HEARTBEAT_IVL, 2000)
    socket.setsockopt(zmq.HEARTBEAT_TIMEOUT, 10_000)
    if keys is not None:
        socket.setsockopt(zmq.CURVE_SECRETKEY, bytes.fromhex(keys.own.secret))
        socket.setsockopt(zmq.CURVE_PUBLICKEY, bytes.fromhex(keys.own.public))
        socket.setsockopt(zmq.CURVE_SERVERKEY, bytes.fromhex(keys.broker))
    return socket


def _option(socket: zmq.Socket[bytes], option: int) -> int:
    return int(socket.getsockopt(option))
