"""A client of the bus as a state machine, without sockets, event loop, files or clock.

Its owner reports what happens (``connected``, ``receive``, ``tick`` …), sends ``messages()`` and acts on ``outputs()``.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any, NamedTuple

from app.bus import wire
from app.bus.ports import Batch, BusError, PublishRefused
from app.bus.sequencer import Run
from app.core import FlyballError
from app.events import Event
from app.events.frames import DeadLetter, Draft, Frame, FrameBuilder, Record, read_events

FRAME_BYTES = 256 << 10
FRAMES_IN_FLIGHT = 16
CREDIT_BYTES = 4 << 20


class Finished(NamedTuple):
    """A publish (its events' positions) or a request (no positions) succeeded, or failed."""

    token: int
    result: tuple[int, ...] | FlyballError


class Overdue(NamedTuple):
    """A publish or a request has waited for too long. Its frames and messages are sent all the same."""

    token: int


class Settled(NamedTuple):
    """Kept frames, by (epoch, base), that an outbox may forget."""

    keys: tuple[tuple[int, int], ...]


class Changed(NamedTuple):
    """A subscription was opened, has a batch, or was ended by the broker."""

    subscription: "ClientSubscription"


Output = Finished | Overdue | Settled | Changed


@dataclass(slots=True)
class Ticket:
    """Collects the positions of events that were published together."""

    token: int
    positions: list[int]
    missing: int


@dataclass(slots=True)
class Packed:
    """An unacknowledged frame; ``waiters`` are (ticket, offset of its events in it, their start and count here)."""

    epoch: int
    base: int
    count: int
    raw: bytes
    waiters: list[tuple[Ticket, int, int, int]] = field(default_factory=list)
    kept: bool = False
    positions: list[int] = field(default_factory=list)


class Outgoing:
    """One producer's unacknowledged frames in order: first those in flight, then those that wait.

    Those from the outbox (``kept``) are sent first.
    """

    def __init__(self, producer: str, epoch: int, kept: Iterable[bytes]) -> None:
        self._producer, self._epoch = producer, epoch
        self._frames = deque(map(_restored, kept))
        self._in_flight = 0
        self._next = 0
        self._builder = FrameBuilder(producer)
        self._waiters: list[tuple[Ticket, int, int, int]] = []

    def __bool__(self) -> bool:
        return bool(self._frames) or len(self._builder) > 0

    def add(self, drafts: Sequence[Draft], token: int) -> None:
        """Add events, in order."""
        ticket, offset = Ticket(token, [0] * len(drafts), len(drafts)), 0
        while offset < len(drafts):
            start = len(self._builder)
            if taken := self._builder.take(drafts[offset:] if offset else drafts, FRAME_BYTES):
                self._waiters.append((ticket, offset, start, taken))
                offset += taken
            else:
                self._pack()

    def due(self) -> Iterator[bytes]:
        """Iterate over the frames that may be sent now; each is in flight once it is taken."""
        while self._in_flight < FRAMES_IN_FLIGHT:
            if self._in_flight == len(self._frames):
                if not len(self._builder):
                    return
                self._pack()
            self._in_flight += 1
            yield self._frames[self._in_flight - 1].raw

    def restart(self) -> None:
        """Send every frame again."""
        self._in_flight = 0

    def epochs(self) -> tuple[tuple[int, int], ...]:
        """Return (epoch, number of its first unacknowledged event) for each epoch."""
        first: dict[int, int] = {}
        for frame in self._frames:
            first.setdefault(frame.epoch, frame.base)
        first.setdefault(self._epoch, self._next)
        return tuple(first.items())

    def acknowledge(self, epoch: int, runs: Iterable[Run]) -> list[Packed]:
        """Take the positions of events; return the frames that have all, which are removed."""
        done = []
        for run in runs:
            index = self._find(epoch, run.base)
            if index is None:
                continue  # acknowledged twice, because it was sent twice
            frame = self._frames[index]
            frame.positions += range(run.first, run.first + run.size) if run.first else [0] * run.size
            if len(frame.positions) >= frame.count:
                done.append(self._remove(index))
        return done

    def refuse(self, epoch: int, base: int) -> list[Packed]:
        """Remove a frame and return it, if it is in flight."""
        index = self._find(epoch, base)
        return [] if index is None else [self._remove(index)]

    def unkept(self) -> list[Packed]:
        """Return the frames that are not in the outbox."""
        if len(self._builder):
            self._pack()
        return [frame for frame in self._frames if not frame.kept]

    def _pack(self) -> None:
        size = len(self._builder)
        raw = self._builder.build(self._epoch, self._next)
        self._frames.append(Packed(self._epoch, self._next, size, raw, self._waiters))
        self._next += size
        self._builder, self._waiters = FrameBuilder(self._producer), []

    def _find(self, epoch: int, base: int) -> int | None:
        for index, frame in enumerate(islice(self._frames, self._in_flight)):
            if frame.epoch == epoch and frame.base + len(frame.positions) == base:
                return index
        return None

    def _remove(self, index: int) -> Packed:
        frame = self._frames[index]
        del self._frames[index]
        self._in_flight -= 1
        return frame


def _restored(raw: bytes) -> Packed:
    frame = Frame.parse(raw)
    return Packed(frame.epoch, frame.base, frame.count, raw, kept=True)


class Delivery(NamedTuple):
    """Records that cover the positions after ``start`` up to ``end``; ``size`` is the credit they take, bytes."""

    start: int
    end: int
    head: int
    raws: list[bytes]
    size: int


@dataclass(eq=False, slots=True)
class ClientSubscription:
    """A client's state of a subscription.

    Attributes:
        types: event types wanted; None for all.
        received: the broker has sent everything up to this position; None before it is opened at the head.
        number: names it on the wire; a new one each time it is opened, so that late deliveries are recognised.
        opened: the broker has opened it, once at least.
        error: why the broker ended it.
        queue: what was received and not consumed.
        owed: bytes consumed since credit was last given back.
        held_until: end of what was queued when it was last opened; the broker counts all that as one delivery.
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
        """Size of what was received and not consumed; it counts against the credit."""
        return sum(delivery.size for delivery in self.queue)

    def reopen(self, number: int) -> list[bytes]:
        """Return the message that opens it where it left off, under a new number."""
        self.number, self.owed = number, 0
        self.held_until = self.received if self.queue else None
        wanted = wire.Subscribe(
            id=number,
            types=self.types,
            after=self.received,
            credit=CREDIT_BYTES,
            held=self.held_bytes,
        )
        return [wire.SUBSCRIBE, wanted.model_dump_json().encode()]

    def credit(self, delivery: Delivery) -> list[bytes] | None:
        """Return the message that gives back the credit of consumed deliveries, if it is due."""
        self.owed += delivery.size
        if self.owed < CREDIT_BYTES // 4 and delivery.end != self.held_until:
            return None
        self.owed = 0
        return [wire.CREDIT_FORM.pack(wire.CREDIT, self.number, delivery.end)]


class Client:
    """One program's publishes, requests and subscriptions over connections that break.

    Each connection begins with a greeting. Once it is answered, all unacknowledged frames are sent again; requests and
    subscriptions are repeated with the greeting itself.

    Args:
        producer: the program's name, ``daemon@node``.
        epoch: names this life of the producer; never used before.
        deadline_s: time after which a publish or request is reported as ``Overdue``.
        kept: frames from the outbox, oldest first.
    """

    def __init__(self, producer: str, epoch: int, *, deadline_s: float = 30.0, kept: Iterable[bytes] = ()) -> None:
        self._producer, self._deadline_s = producer, deadline_s
        self._outgoing = Outgoing(producer, epoch, kept)
        self._subscriptions: dict[int, ClientSubscription] = {}
        self._requests: dict[int, list[bytes]] = {}
        self._deadlines: dict[int, float] = {}  # in order of time: all wait equally long
        self._tokens, self._numbers = count(1), count(1)
        self._messages: list[list[bytes]] = []
        self._outputs: list[Output] = []
        self.is_connected = False
        self.is_welcome = False
        self._greeting = 0
        self._greet_at: float | None = None

    @property
    def has_unacknowledged(self) -> bool:
        """True while any event is not acknowledged."""
        return bool(self._outgoing)

    @property
    def has_messages(self) -> bool:
        """True if ``messages`` holds more than frames."""
        return bool(self._messages)

    def messages(self) -> list[list[bytes]]:
        """Return the messages to send now, each as its parts; the next call does not repeat them."""
        messages, self._messages = self._messages, []
        if self.is_welcome:
            messages += [[wire.FRAME, raw] for raw in self._outgoing.due()]
        return messages

    def outputs(self) -> list[Output]:
        """Return what became known since the last call."""
        outputs, self._outputs = self._outputs, []
        return outputs

    def next_deadline(self) -> float | None:
        """Return the time at which ``tick`` has something to do."""
        first = next(iter(self._deadlines.values()), None)
        if first is None or self._greet_at is None:
            return self._greet_at if first is None else first
        return min(first, self._greet_at)

    def tick(self, now: float) -> None:
        """Let time pass: report what is overdue, and greet again when the broker wanted that later."""
        while (first := next(iter(self._deadlines.items()), None)) and first[1] <= now:
            del self._deadlines[first[0]]
            self._outputs.append(Overdue(first[0]))
        if self._greet_at is not None and self._greet_at <= now:
            self._greet()

    def publish(self, drafts: Sequence[Draft], now: float) -> int:
        """Add events, in order; return the token of their ``Finished``."""
        token = self._token(now)
        self._outgoing.add(drafts, token)
        return token

    def request(self, method: bytes, arguments: wire.Message, body: bytes, now: float) -> int:
        """Make a request, again after every interruption; return the token of its ``Finished``."""
        token = self._token(now)
        self._ask(token, method, arguments, body)
        return token

    def subscribe(self, types: frozenset[str] | None, after: int | None) -> ClientSubscription:
        """Subscribe to event types, None for all; see ``Bus.subscribe``."""
        subscription = ClientSubscription(types, after)
        self._open(subscription)
        return subscription

    def unsubscribe(self, subscription: ClientSubscription) -> None:
        """End a subscription and drop what it holds."""
        subscription.queue.clear()
        if self._subscriptions.pop(subscription.number, None) is not None:
            self._send([wire.ID_FORM.pack(wire.UNSUBSCRIBE, subscription.number)])

    def next_batch(self, subscription: ClientSubscription) -> Batch | None:
        """Return the next batch if there is one. Events that can't be read become dead letters.

        Raises:
            DamagedRecord: a record is not what was once written.
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
        return Batch(tuple(events), delivery.end, delivery.head)

    def unkept(self) -> list[bytes]:
        """Return the frames that should go into the outbox."""
        return [frame.raw for frame in self._outgoing.unkept()]

    def mark_kept(self) -> None:
        """Take note that what ``unkept`` returned is in the outbox."""
        for frame in self._outgoing.unkept():
            frame.kept = True

    def connected(self) -> None:
        """Greet the broker, which can be reached (again)."""
        self.is_connected = True
        self._greet()

    def disconnected(self) -> None:
        """Drop what was to be sent: the next greeting repeats what matters."""
        self.is_connected = self.is_welcome = False
        self._greet_at = None
        self._messages.clear()

    def receive(self, parts: list[bytes], now: float) -> None:  # noqa: C901, PLR0912 - one case a kind of message
        """Take in a message of the broker."""
        head, text = parts[0], parts[-1]
        match head[:1]:
            case wire.ACK:
                self._settle(self._outgoing.acknowledge(*wire.read_ack(head)))
            case wire.EVENTS:
                _, number, start, end, newest = wire.EVENTS_FORM.unpack(head)
                if subscription := self._subscriptions.get(number):
                    delivery = Delivery(start, end, newest, parts[1:], sum(map(len, parts)))
                    self._deliver(subscription, delivery)
            case wire.WELCOME:
                if wire.WELCOME_FORM.unpack(head)[1] == self._greeting:
                    self.is_welcome = True
                    self._outgoing.restart()
            case wire.GREET:
                milliseconds = wire.GREET_FORM.unpack(head)[1]
                if milliseconds:
                    self.is_welcome = False
                    self._greet_at = now + milliseconds / 1000
                elif self.is_welcome:  # else it is about frames sent before the present greeting
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
                self._outputs.append(Finished(token, BusError(text.decode()) if text else ()))
            case wire.ERROR:
                error = BusError(text.decode(), hint="Use the same version of Flyball on both sides.")
                self._outputs += [Finished(token, error) for token in self._deadlines if token not in self._requests]
            case wire.BEAT:
                pass  # the broker only tests whether this end can be reached
            case kind:
                raise wire.ProtocolError(f"The broker sent a message of the unknown kind {kind!r}.")

    def _greet(self) -> None:
        self.is_welcome, self._greet_at = False, None
        self._greeting += 1
        hello = wire.Hello(greeting=self._greeting, producer=self._producer, epochs=self._outgoing.epochs())
        self._send([wire.HELLO, hello.model_dump_json().encode()])
        for subscription in list(self._subscriptions.values()):
            self._open(subscription)
        for parts in self._requests.values():
            self._send(parts)

    def _open(self, subscription: ClientSubscription) -> None:
        """Ask for a subscription under a new number, so that deliveries under the old one are ignored."""
        self._subscriptions.pop(subscription.number, None)
        message = subscription.reopen(next(self._numbers))
        self._subscriptions[subscription.number] = subscription
        self._send(message)

    def _deliver(self, subscription: ClientSubscription, delivery: Delivery) -> None:
        if delivery.start != subscription.received:  # it does not continue what came before
            self._open(subscription)
            return
        subscription.received = delivery.end
        subscription.queue.append(delivery)
        self._outputs.append(Changed(subscription))

    def _settle(self, frames: Sequence[Packed], error: FlyballError | None = None) -> None:
        """Report frames that are recorded, or refused with an error."""
        for frame in frames:
            for ticket, offset, start, taken in frame.waiters:
                if error is None:
                    ticket.positions[offset : offset + taken] = frame.positions[start : start + taken]
                    ticket.missing -= taken
                if error is not None or not ticket.missing:
                    self._deadlines.pop(ticket.token, None)
                    self._outputs.append(Finished(ticket.token, error or tuple(ticket.positions)))
        if kept := tuple((frame.epoch, frame.base) for frame in frames if frame.kept):
            self._outputs.append(Settled(kept))

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
