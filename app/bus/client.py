"""State machine of a bus client, without I/O, event loop or clock.

The owner reports events (``connected``, ``receive``, ``tick`` …), sends ``messages()`` and acts on ``outputs()``.
"""

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any, NamedTuple

from flyball.app.bus import wire
from flyball.app.bus.access import KeyRefused
from flyball.app.bus.outgoing import Outgoing, Packed
from flyball.app.bus.ports import Batch, BusError, OtherHistory, PublishRefused, Sign
from flyball.app.core import FlyballError
from flyball.app.events import Event
from flyball.app.events.frames import DeadLetter, Draft, Record, read_events
from flyball.app.journal import KnownRecord

CREDIT_BYTES = 4 << 20
FOREIGN_HINT = "Was an older copy of the journal restored, or another run's?"
REFUSED_S = 2.0
"""Seconds after which a refused client tries again."""

SEARCH_S = 1.0
"""Seconds after which a client tries the other head's address if nobody listens at this one."""

WELCOME_S = 5.0
"""The same if somebody listens, but does not welcome the client: many clients may greet a new broker at once."""


class Finished(NamedTuple):
    """Outcome of a publish or request: the published events' positions, the answer's body, or an error."""

    token: int
    result: tuple[int, ...] | bytes | FlyballError


class Overdue(NamedTuple):
    """A publish or request that missed its deadline; it is still sent, unless it asks for the table of daemons."""

    token: int


class Settled(NamedTuple):
    """Frames that an outbox may delete, by (epoch, base): acknowledged or refused."""

    keys: tuple[tuple[int, int], ...]


class Changed(NamedTuple):
    """A change of a subscription. The subscription was opened, received a batch, or was ended."""

    subscription: "ClientSubscription"


class Postponed(NamedTuple):
    """A greeting, or a patient client's key, that the broker refuses for now; the client tries again."""

    why: str


class Reconnect(NamedTuple):
    """A new connection is due, to the other head's address if there is one.

    ZeroMQ never reconnects after a refused handshake, and it does not know the other address.
    """


Output = Finished | Overdue | Settled | Changed | Postponed | Reconnect


class Delivery(NamedTuple):
    """Records that cover the positions after ``start`` up to ``end``.

    The delivery uses ``size`` bytes of credit. ``checksum`` is that of the record at ``end``; 0 if unknown.
    """

    start: int
    end: int
    head: int
    checksum: int
    raws: list[bytes]
    size: int


@dataclass(eq=False, slots=True)
class ClientSubscription:
    """The client's state of a subscription.

    Attributes:
        types: event types to deliver; None for all.
        received: position up to which all events have arrived; None until a subscription to the head is opened.
        number: id on the wire; each opening takes a new one, so that late deliveries are recognised.
        opened: the broker has opened it at least once.
        error: the reason if the broker ended it.
        queue: deliveries that are received but not consumed.
        owed: bytes consumed since the last credit message.
        held_until: end of the deliveries queued at the last opening; the broker counts them as one delivery.
    """

    types: frozenset[str] | None
    received: int | None
    number: int = 0
    opened: bool = False
    error: FlyballError | None = None
    queue: deque[Delivery] = field(default_factory=deque)
    owed: int = 0
    held_until: int | None = None

    @property
    def held_bytes(self) -> int:
        """Size of unconsumed deliveries in bytes; it counts against the credit."""
        return sum(delivery.size for delivery in self.queue)

    def reopen(self, number: int) -> list[bytes]:
        """Return the message that opens or resumes the subscription. The subscription gets the new ``number``."""
        self.number, self.owed = number, 0
        self.held_until = self.received if self.queue else None
        subscribe = wire.Subscribe(
            id=number,
            types=self.types,
            after=self.received,
            credit=CREDIT_BYTES,
            held=self.held_bytes,
        )
        return [wire.SUBSCRIBE, subscribe.model_dump_json().encode()]

    def credit(self, delivery: Delivery) -> list[bytes] | None:
        """Count a delivery as consumed; return the credit message if due."""
        self.owed += delivery.size
        if self.owed < CREDIT_BYTES // 4 and delivery.end != self.held_until:
            return None
        self.owed = 0
        return [wire.CREDIT_FORM.pack(wire.CREDIT, self.number, delivery.end)]


class Client:
    """One program's publishes, requests and subscriptions, across reconnections.

    Each connection begins with a greeting, followed by all subscriptions and open requests. Once the broker has
    answered the greeting, all unacknowledged frames are sent again.

    Args:
        producer: the program's name, ``daemon@node``.
        epoch: identifies this start of the producer; never used before.
        deadline_s: seconds after which a publish or request is reported as ``Overdue``.
        outbox_frames: frames from the outbox, oldest first.
        process: a description of the process for people.
        sole: no other living process may have this name.
        patient: wait while the broker does not admit this client's key, instead of failing.
        last_record: the latest record that an earlier start of the producer knew of. A broker whose journal does not
            hold it is refused, before anything is published.
        has_other: there is another address, which is tried if this one does not answer.
    """

    def __init__(
        self,
        producer: str,
        epoch: int,
        *,
        deadline_s: float = 30.0,
        outbox_frames: Iterable[bytes] = (),
        process: str = "a program",
        sole: bool = False,
        patient: bool = False,
        last_record: KnownRecord | None = None,
        has_other: bool = False,
    ) -> None:
        self._last_record, self._has_other = last_record, has_other
        self._lost: OtherHistory | None = None  # why nothing more can be published or read
        self._producer, self._deadline_s = producer, deadline_s
        self._life, self._process, self._sole, self._patient = epoch, process, sole, patient
        self._sign: list[bytes] = []  # the latest sign of life; empty before the first
        self._sign_due = False
        self._outgoing = Outgoing(producer, epoch, outbox_frames)
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._requests: dict[int, list[bytes]] = {}
        self._deadlines: dict[int, float] = {}  # in order of time, because ``deadline_s`` is constant
        self._tokens, self._numbers = count(1), count(1)
        self._messages: list[list[bytes]] = []
        self._outputs: list[Output] = []
        self.is_connected = False
        self.is_welcome = False
        self._greeting = 0
        self._again_at: float | None = None  # when to greet, or to connect, again
        self._other_at: float | None = None  # when the other address gets its turn

    @property
    def has_unacknowledged(self) -> bool:
        """True while any published event is unacknowledged."""
        return bool(self._outgoing)

    @property
    def has_messages(self) -> bool:
        """True while messages other than frames wait to be sent."""
        return bool(self._messages)

    def messages(self) -> list[list[bytes]]:
        """Return the messages to send now, each as a list of parts. Each message is returned once."""
        messages, self._messages = self._messages, []
        if self.is_welcome:
            messages += [[wire.FRAME, raw] for raw in self._outgoing.due()]
            if self._sign_due:  # after the frames, because one of them may say that the daemon started
                messages.append(self._sign)
                self._sign_due = False
        return messages

    def outputs(self) -> list[Output]:
        """Return the outputs since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def next_deadline(self) -> float | None:
        """Return the time of the next ``tick``; None if nothing is scheduled."""
        first = next(iter(self._deadlines.values()), None)
        return min((due for due in (first, self._again_at, self._other_at) if due is not None), default=None)

    def tick(self, now: float) -> None:
        """Report overdue publishes and requests; greet or reconnect if due."""
        while (first := next(iter(self._deadlines.items()), None)) and first[1] <= now:
            del self._deadlines[first[0]]
            self._outputs.append(Overdue(first[0]))
            if first[0] in self._requests and self._requests[first[0]][1] == wire.PRESENT:
                del self._requests[first[0]]  # because the table would be outdated when the answer came
        if self._other_at is not None and self._other_at <= now:
            self.disconnected()
            self._reconnect()
        elif self._again_at is not None and self._again_at <= now:
            if self.is_connected:
                self._greet()
            else:
                self._reconnect()

    def publish(self, drafts: Sequence[Draft], now: float) -> int:
        """Add events in order; return the token of their ``Finished`` output."""
        token = self._token(now)
        self._outgoing.add(drafts, token)
        self._refuse_if_lost()
        return token

    def request(self, method: bytes, arguments: wire.Message, body: bytes, now: float) -> int:
        """Make a request; return the token of its ``Finished`` output. The request is repeated after reconnections."""
        token = self._token(now)
        self._ask(token, method, arguments, body)
        self._refuse_if_lost()
        return token

    def show_life(self, sign: Sign) -> None:
        """Send a sign of life. While the broker is away, the latest sign is kept."""
        self._sign = [wire.SIGN, sign.model_dump_json().encode()]
        if self.is_welcome:
            self._send(self._sign)

    def subscribe(self, types: frozenset[str] | None, after: int | None) -> ClientSubscription:
        """Subscribe to event types, None for all; see ``Bus.subscribe``."""
        subscription = ClientSubscription(types, after)
        self._open(subscription)
        self._refuse_if_lost()
        return subscription

    def unsubscribe(self, subscription: ClientSubscription) -> None:
        """End a subscription and drop what it holds."""
        subscription.queue.clear()
        if self._subscriptions.pop(subscription.number, None) is not None:
            self._send([wire.ID_FORM.pack(wire.UNSUBSCRIBE, subscription.number)])

    def next_batch(self, subscription: ClientSubscription) -> Batch | None:
        """Return the next batch; None if no delivery waits.

        Events that can't be read become dead letters.

        Raises:
            DamagedRecord: a record has changed since it was written.
        """
        if not subscription.queue:
            return None
        delivery = subscription.queue.popleft()
        events: list[Event[Any]] = []
        for raw in delivery.raws:
            events += read_events(
                Record.open(raw),
                after=delivery.start,
                types=subscription.types,
                reporter=self._producer,
                on_dead=self._report,
            )
        if credit := subscription.credit(delivery):
            self._send(credit)
        return Batch(tuple(events), delivery.end, delivery.head, delivery.checksum)

    def unstored(self) -> list[bytes]:
        """Return the frames that should go into the outbox."""
        return [frame.raw for frame in self._outgoing.unstored()]

    def mark_stored(self) -> None:
        """Mark the frames that ``unstored`` returned as stored in the outbox."""
        for frame in self._outgoing.unstored():
            frame.stored = True

    def search(self, now: float, *, reached: bool = False) -> None:
        """Note that a connection was begun or lost, or that it ``reached`` a listener.

        Without a welcome, the other address gets its turn after a while.
        """
        if self._has_other:
            self._other_at = now + (WELCOME_S if reached else SEARCH_S)

    def connected(self) -> None:
        """Greet the broker after a connection is made."""
        self.is_connected = True
        self._greet()

    def disconnected(self) -> None:
        """Drop unsent messages, because the next greeting repeats those still needed."""
        if self.is_connected:  # otherwise a refused handshake ended, and only this client connects again
            self._again_at = None
        self.is_connected = self.is_welcome = False
        self._messages.clear()

    def receive(self, parts: list[bytes], now: float) -> None:  # noqa: C901, PLR0912, PLR0915 - one case for each kind
        """Handle a message from the broker."""
        head, text = parts[0], parts[-1]
        match head[:1]:
            case wire.ACK:
                self._settle(self._outgoing.acknowledge(*wire.read_ack(head)))
            case wire.EVENTS:
                _, number, start, end, newest, checksum = wire.EVENTS_FORM.unpack(head)
                if subscription := self._subscriptions.get(number):
                    delivery = Delivery(start, end, newest, checksum, parts[1:], sum(map(len, parts)))
                    self._deliver(subscription, delivery)
            case wire.WELCOME:
                if wire.WELCOME_FORM.unpack(head)[1] == self._greeting:
                    self._other_at = None
                    self.is_welcome, self._sign_due = True, bool(self._sign)
                    self._outgoing.restart()
            case wire.GREET:
                milliseconds = wire.GREET_FORM.unpack(head)[1]
                if milliseconds:
                    self.is_welcome, self._other_at = False, None
                    self._again_at = now + milliseconds / 1000
                    self._outputs.append(Postponed(text.decode()))
                elif self.is_welcome:  # otherwise it answers frames sent before the latest greeting
                    self._greet()
            case wire.REJECT:
                _, epoch, base, _ = wire.REJECT_FORM.unpack(head)
                self._settle(self._outgoing.refuse(epoch, base), PublishRefused(text.decode()))
            case wire.OPENED:
                _, number, position = wire.OPENED_FORM.unpack(head)
                if subscription := self._subscriptions.get(number):
                    subscription.received, subscription.opened = position, True
                    self._outputs.append(Changed(subscription))
            case wire.CLOSED:
                if subscription := self._subscriptions.pop(wire.ID_FORM.unpack(head)[1], None):
                    subscription.error = BusError(text.decode())
                    self._outputs.append(Changed(subscription))
            case wire.ANSWER:
                token = wire.TOKEN_FORM.unpack(head)[1]
                self._requests.pop(token, None)
                self._deadlines.pop(token, None)
                problem, body = parts[1], parts[2]
                self._outputs.append(Finished(token, BusError(problem.decode()) if problem else body))
            case wire.ERROR:
                error = BusError(text.decode(), hint="Use the same version of Flyball on both sides.")
                self._outputs += [Finished(token, error) for token in self._deadlines if token not in self._requests]
            case wire.FOREIGN:
                self.is_welcome, self._lost = False, OtherHistory(text.decode(), hint=FOREIGN_HINT)
                self._refuse_if_lost()
            case wire.DENIED:
                self.refused(KeyRefused(text.decode()), now)
            case wire.BEAT:
                pass  # the broker only tests whether this client can be reached
            case kind:
                raise wire.ProtocolError(f"The broker sent a message of the unknown kind {kind!r}.")

    def refused(self, error: FlyballError, now: float) -> None:
        """Note that the broker does not admit this client's key.

        The client greets or connects again after a while. Waiting publishes, requests and subscriptions fail, unless
        this client is patient. Unacknowledged frames remain in any case: they are sent if the key is authorized later.
        """
        self.is_welcome = False
        self._again_at = now + REFUSED_S
        if self._patient:
            self._outputs.append(Postponed(str(error)))
            return
        self._fail(error)

    def _refuse_if_lost(self) -> None:
        if self._lost:
            self._fail(self._lost)

    def _fail(self, error: FlyballError) -> None:
        """End waiting publishes, requests and subscriptions with an error."""
        self._outputs += [Finished(token, error) for token in self._deadlines]
        self._deadlines.clear()
        for subscription in self._subscriptions.values():
            subscription.error = error
            self._outputs.append(Changed(subscription))
        self._subscriptions.clear()

    def _reconnect(self) -> None:
        self._again_at = self._other_at = None
        self._outputs.append(Reconnect())

    def _greet(self) -> None:
        self.is_welcome, self._again_at = False, None
        self._greeting += 1
        hello = wire.Hello(
            greeting=self._greeting,
            producer=self._producer,
            epochs=self._outgoing.epochs(),
            life=self._life,
            place=self._process,
            sole=self._sole,
            known=self._last_record,
        )
        self._send([wire.HELLO, hello.model_dump_json().encode()])
        for subscription in list(self._subscriptions.values()):
            self._open(subscription)
        for parts in self._requests.values():
            self._send(parts)

    def _open(self, subscription: ClientSubscription) -> None:
        """Request a subscription under a new number. The new number lets the client ignore late deliveries."""
        self._subscriptions.pop(subscription.number, None)
        message = subscription.reopen(next(self._numbers))
        self._subscriptions[subscription.number] = subscription
        self._send(message)

    def _deliver(self, subscription: ClientSubscription, delivery: Delivery) -> None:
        if delivery.start != subscription.received:  # deliveries in between were lost
            self._open(subscription)
            return
        subscription.received = delivery.end
        if delivery.checksum and (self._last_record is None or delivery.end >= self._last_record.position):
            self._last_record = KnownRecord(delivery.end, delivery.checksum)
        subscription.queue.append(delivery)
        self._outputs.append(Changed(subscription))

    def _settle(self, frames: Sequence[Packed], error: FlyballError | None = None) -> None:
        """Report frames as recorded, or as refused with ``error``."""
        for frame in frames:
            for ticket, offset, start, size in frame.waiters:
                if error is None:
                    ticket.positions[offset : offset + size] = frame.positions[start : start + size]
                    ticket.missing -= size
                if error is not None or not ticket.missing:
                    self._deadlines.pop(ticket.token, None)
                    self._outputs.append(Finished(ticket.token, error or tuple(ticket.positions)))
        if stored := tuple((frame.epoch, frame.base) for frame in frames if frame.stored):
            self._outputs.append(Settled(stored))

    def _report(self, dead: DeadLetter) -> None:
        self._ask(next(self._tokens), wire.BURY, wire.Bury.of(dead), dead.body)

    def _ask(self, token: int, method: bytes, arguments: wire.Message, body: bytes) -> None:
        parts = [wire.TOKEN_FORM.pack(wire.ASK, token), method, arguments.model_dump_json().encode(), body]
        self._requests[token] = parts
        self._send(parts)

    def _token(self, now: float) -> int:
        token = next(self._tokens)
        self._deadlines[token] = now + self._deadline_s
        return token

    def _send(self, parts: list[bytes]) -> None:
        if self.is_connected:
            self._messages.append(parts)
