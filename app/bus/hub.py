"""The broker without its socket: messages in, one transaction, messages out."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import takewhile
from struct import error as struct_error
from typing import Any

from pydantic import TypeAdapter, ValidationError

from flyball.app.bus import wire
from flyball.app.bus.access import Access, KeyRefused
from flyball.app.bus.fanout import Fanout
from flyball.app.bus.keys import Key
from flyball.app.bus.ports import BrokerLimits, Present, PublishRefused, Sign, check_rights
from flyball.app.bus.presence import READ_TYPES, PresenceTable
from flyball.app.bus.sequencer import WINDOW, Gap, Run, Sequencer
from flyball.app.bus.wire import ProtocolError
from flyball.app.core import FlyballError, is_broker
from flyball.app.events import CATALOGUE, DaemonFact, Envelope, MalformedEvent, NoUpcast, Payload, RefusalReason, decode
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import DamagedFrame, DeadLetter, Frame, frame_of, peek, read_events
from flyball.app.journal import Journal

Message = tuple[bytes, list[bytes]]
"""A peer (the ROUTER socket's id of a connection) and the parts sent to it."""

RESTRICTED = {wire.BURY: ("head", "worker", "operator"), wire.DISCARD: ("head", "operator")}
"""Methods that only some roles of keys may request: readers change nothing, and workers remove nothing."""

OWN_FACTS = frozenset(payload.event_type for payload in CATALOGUE if issubclass(payload, DaemonFact))
"""Event types of daemons' facts about themselves."""

SILENCE_S = 5.0
BURST_S = 2.0
NAME_RETRY_MS = 500
"""Time after which a process asks again for a taken name."""

_table = TypeAdapter(tuple[Present, ...])


class RateLimiter:
    """Token bucket for each producer, shared by its connections: ``rate`` events a second, filled in two seconds."""

    def __init__(self, rate: float) -> None:
        self._rate, self._capacity = rate, BURST_S * rate
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and when they were counted

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, producer: str, count: int, now: float) -> float:
        """Take tokens and return 0, or return the seconds to wait. One call may overdraw the bucket."""
        tokens = self._tokens(producer, now)
        if tokens <= 0:
            return -tokens / self._rate + 0.001
        self._buckets[producer] = tokens - count, now
        return 0.0

    def drop_full(self, now: float) -> None:
        """Drop full buckets, because a new bucket starts full."""
        for producer in [name for name in self._buckets if self._tokens(name, now) >= self._capacity]:
            del self._buckets[producer]

    def _tokens(self, producer: str, now: float) -> float:
        tokens, then = self._buckets.get(producer, (self._capacity, now))
        return min(tokens + (now - then) * self._rate, self._capacity)


@dataclass(slots=True)
class Session:
    """The broker's state of one connection.

    Attributes:
        hello: its last hello.
        since_us: time of day of that hello, microseconds since 1970 UTC.
        heard: time of its last message, in the broker's seconds.
        key: the key of the connection; None on a bus without keys.
        silenced: frames are ignored until the next hello, because frames were lost or came too fast.
    """

    hello: wire.Hello
    since_us: int
    heard: float
    key: Key | None = None
    silenced: bool = False

    @property
    def producer(self) -> str:
        """The producer's name."""
        return self.hello.producer


class Hub:
    """A broker's state: sequencer, sessions, subscriptions and pending answers.

    Args:
        journal: where events are recorded.
        source: the broker's own name as a producer, ``broker@node``.
        limits: see ``BrokerLimits``.
        access: the admitted keys and their rights; None lets every client publish.
        give_up: polled while the latest ids are read, which may take seconds. Once it returns True, the rest is
            skipped, and the hub must not be used.

    All times are in the broker's seconds: those of a monotonic clock that stops while the broker does not listen.
    """

    def __init__(
        self,
        journal: Journal,
        source: str,
        limits: BrokerLimits,
        access: Access | None = None,
        give_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._journal, self._source, self._limits, self._access = journal, source, limits, access
        recent = journal.ids(max(0, journal.head - WINDOW))
        self._sequencer = Sequencer(journal.head, journal.recorded_us, takewhile(lambda _: not give_up(), recent))
        self._fanout = Fanout(journal, limits)
        self._rates = RateLimiter(limits.events_per_second)
        self._now = 0.0
        self._presence = PresenceTable(limits.silent_seconds)
        self._presence.recall(journal, self._now, give_up=give_up)
        self._sessions: dict[bytes, Session] = {}
        self._sole: dict[str, bytes] = {}  # peers of sole producers, by name
        self._epoch_sessions: Counter[tuple[str, int]] = Counter()
        self._dead_letters: list[DeadLetter] = []  # this and the next two await the next transaction
        self._acks: dict[tuple[bytes, int], list[Run]] = {}
        self._answers: list[Message] = []
        self._out: list[Message] = []
        self._epoch = journal.head
        self._sequencer.introduce(source, self._epoch, journal.mark(source, self._epoch) or 0)

    def receive(self, peer: bytes, parts: list[bytes], now: float, now_us: int, key: Key | None = None) -> None:
        """Handle a message; a malformed one is answered with an error.

        ``now`` is in the broker's seconds, ``now_us`` is the time of day in microseconds since 1970 UTC. ``key`` is the
        connection's valid key. A bus with keys refuses a message without a key.
        """
        self._now = now
        kind = parts[0][:1] if parts else b""
        if self._access is not None and not self._is_admitted(peer, key):
            return
        try:
            if kind == wire.HELLO:
                self._hello(peer, wire.Hello.model_validate_json(parts[1]), now, now_us, key)
            elif (session := self._sessions.get(peer)) is None:
                self._greet(peer, 0, "The broker does not know this connection.")
            else:
                session.heard = now
                self._receive_in_session(peer, session, parts, now, now_us)
        except (ProtocolError, ValidationError, struct_error, IndexError) as error:
            self._out.append((peer, [wire.ERROR, f"The broker does not understand this message: {error}".encode()]))

    def drop_revoked(self) -> None:
        """Drop the connections whose keys are no longer valid. Dropped connections get no further events."""
        assert self._access is not None
        for peer, session in list(self._sessions.items()):
            if session.key is None or self._access.key(session.key.public) != session.key:
                self._deny(peer, session.key, "revoked", f"The key of {session.producer} is not authorized any more.")

    def presence_facts(self, now: float) -> list[Payload]:
        """Return the broker's next facts about daemons; call ``settle`` first, so that a roll call includes all."""
        self._now = now
        return self._presence.due(now, self._sequencer.head)

    def originate(self, envelopes: Sequence[Envelope[Any]], now_us: int) -> None:
        """Publish the broker's own events."""
        if envelopes:
            base = self._sequencer.marks[self._source, self._epoch]
            raw = frame_of(envelopes, producer=self._source, epoch=self._epoch, base=base)
            self._sequencer.admit(Frame.parse(raw), now_us, self._source)

    def settle(self) -> None:
        """Append pending records and dead letters to the journal; then acknowledge and answer.

        Raises:
            Fenced: another broker has taken over. This is noticed before any answer, also by an empty transaction:
                that broker may have recorded what this one would turn a client away for.
        """
        records, marks = self._sequencer.take()
        if records or marks or self._dead_letters or self._acks or self._answers:
            self._journal.append(records, marks=marks, dead_letters=self._dead_letters)
        self._out += [(peer, wire.ack(epoch, runs)) for (peer, epoch), runs in self._acks.items()]
        self._out += self._answers
        self._dead_letters, self._acks, self._answers = [], {}, []
        self._fanout.extend(records)
        for record in records:
            if not READ_TYPES.isdisjoint(record.frame.types):
                events = read_events(record, after=0, types=READ_TYPES, reporter=self._source, on_dead=lambda _: None)
                self._presence.fold((event.data for event in events), self._now)

    def messages(self) -> Iterator[Message]:
        """Iterate over the messages that are due: answers and acknowledgements, then one round of deliveries."""
        out, self._out = self._out, []
        yield from out
        yield from self._fanout.deliver()

    def has_more(self) -> bool:
        """Return whether another round of deliveries is due at once."""
        return self._fanout.has_more()

    def forget(self, peer: bytes) -> None:
        """Drop a closed connection, and epochs that no other connection uses."""
        self._fanout.remove(peer)
        if session := self._sessions.pop(peer, None):
            if self._sole.get(session.producer) == peer:
                del self._sole[session.producer]
            for epoch, _ in session.hello.epochs:
                key = session.producer, epoch
                self._epoch_sessions[key] -= 1
                if not self._epoch_sessions[key]:
                    del self._epoch_sessions[key]
                    self._sequencer.retire(*key)

    def probe(self, now: float) -> list[Message]:
        """Return a BEAT for each silent connection. Sending a BEAT shows if the client is gone."""
        self._rates.drop_full(now)
        silent = [peer for peer, session in self._sessions.items() if now - session.heard > SILENCE_S]
        return [(peer, [wire.BEAT]) for peer in silent]

    def _receive_in_session(self, peer: bytes, session: Session, parts: list[bytes], now: float, now_us: int) -> None:
        """Handle a message from a connection that has sent a hello."""
        match parts[0][:1]:
            case wire.FRAME:
                self._frame(peer, session, parts[1], now, now_us)
            case wire.SUBSCRIBE:
                self._subscribe(peer, wire.Subscribe.model_validate_json(parts[1]))
            case wire.CREDIT:
                _, number, position = wire.CREDIT_FORM.unpack(parts[0])
                self._fanout.consume(peer, number, position)
            case wire.UNSUBSCRIBE:
                self._fanout.remove(peer, wire.ID_FORM.unpack(parts[0])[1])
            case wire.ASK:
                self._ask(peer, session, parts)
            case wire.SIGN:
                self._presence.hear(session.producer, Sign.model_validate_json(parts[1]), now)
            case kind:
                raise ProtocolError(f"{peer!r} sent a message of the unknown kind {kind!r}.")

    def _is_admitted(self, peer: bytes, key: Key | None) -> bool:
        """Return whether a message's key is valid.

        A message without a valid key is denied. A session with another key is dropped.
        """
        session = self._sessions.get(peer)
        if key is None:
            self._deny(peer, session.key if session else None, "revoked", "This key is not authorized any more.")
        elif session is not None and session.key != key:
            self.forget(peer)  # another connection took the name of one that is gone
        return key is not None

    def _deny(self, peer: bytes, key: Key | None, reason: RefusalReason, why: str) -> None:
        """End a connection's session, with the reason, and count the refusal."""
        assert self._access is not None
        address = self._sessions[peer].producer if peer in self._sessions else ""
        self._access.refusals.add(key, reason, address, why)
        self.forget(peer)
        self._out.append((peer, [wire.DENIED, why.encode()]))

    def _hello(self, peer: bytes, hello: wire.Hello, now: float, now_us: int, key: Key | None) -> None:  # noqa: C901
        if self._access is not None and key is not None:
            try:
                self._access.check_producer(key, hello.producer)
            except KeyRefused as error:
                return self._deny(peer, key, "producer", str(error))
            sessions_of_key = sum(session.key == key for session in self._sessions.values())
            if peer not in self._sessions and sessions_of_key >= self._limits.max_sessions_per_key:
                why = f"The key of {key.name} has {self._limits.max_sessions_per_key} connections already."
                self._access.refusals.add(key, "connections", hello.producer, why)
                return self._greet(peer, self._limits.retry_ms, why)
        if is_broker(hello.producer):
            raise ProtocolError(f"{hello.producer!r} is a broker's name: choose another name for the client.")
        if peer not in self._sessions and len(self._sessions) >= self._limits.max_sessions:
            why = f"The broker serves {self._limits.max_sessions} connections already."
            return self._greet(peer, self._limits.retry_ms, why)
        if hello.known and (why := self._contradiction(*hello.known)):
            self._answers.append((peer, [wire.FOREIGN, why.encode()]))
            return None
        if rival := self._rival_session(hello, now):
            why = f"{hello.producer} is another process's name: {rival.hello.place} has it since {_time(rival)}."
            return self._greet(peer, NAME_RETRY_MS, why)
        self.forget(peer)
        self._sessions[peer] = Session(hello, now_us, now, key)
        if hello.sole:
            self._sole[hello.producer] = peer
        self._epoch_sessions.update((hello.producer, epoch) for epoch, _ in hello.epochs)
        for epoch, base in hello.epochs:
            stored = self._journal.mark(hello.producer, epoch) or 0
            self._sequencer.introduce(hello.producer, epoch, max(stored, base))
        self._out.append((peer, [wire.WELCOME_FORM.pack(wire.WELCOME, hello.greeting)]))
        return None

    def _contradiction(self, position: int, checksum: int) -> str:
        """Return why the journal contradicts a client's latest record; empty if it has or cannot read the record."""
        if position > self._journal.head:
            return f"The journal ends at {self._journal.head}; this program has followed one up to {position}."
        record = None
        if checksum:
            with suppress(FlyballError):  # the segment is missing or damaged
                record = next(self._journal.headers_back(position), None)
        if record is not None and (record.last, record.checksum) != (position, checksum):
            return f"The journal's record at {position} is another than the one that this program has read there."
        return ""

    def _rival_session(self, hello: wire.Hello, now: float) -> Session | None:
        """Return another process's session that holds a sole producer's name.

        A silent session is ended instead. A live one is sent a BEAT: if its process is gone, sending fails, and the
        next HELLO gets the name.
        """
        peer = self._sole.get(hello.producer)
        if peer is None:
            return None
        session = self._sessions[peer]
        if session.hello.life == hello.life or now - session.heard >= self._limits.silent_seconds:
            self.forget(peer)
            return None
        self._out.append((peer, [wire.BEAT]))
        return session

    def _greet(self, peer: bytes, milliseconds: int, why: str) -> None:
        self._out.append((peer, [wire.GREET_FORM.pack(wire.GREET, milliseconds), why.encode()]))

    def _frame(self, peer: bytes, session: Session, raw: bytes, now: float, now_us: int) -> None:
        if session.silenced:
            return
        try:
            frame = Frame.parse(raw)
            _check_producer(frame, session)
            check_rights(frame)
            self._check_key(frame, session)
            if wait := self._rates.take(session.key.name if session.key else session.producer, frame.count, now):
                session.silenced = True
                self._greet(peer, int(1000 * wait) + 1, "Too many events a second.")
                return
            runs = self._sequencer.admit(frame, now_us, session.producer)
        except (DamagedFrame, PublishRefused) as error:
            epoch, base, count = peek(raw) or (0, 0, 0)
            is_new = self._sequencer.skip(session.producer, epoch, base, count) or not count
            if is_new and not isinstance(error, KeyRefused):  # those are events, which a flood cannot multiply
                self._dead_letters.append(DeadLetter(0, session.producer, self._source, str(error), raw))
            refusal = wire.REJECT_FORM.pack(wire.REJECT, epoch, base, count)
            self._answers.append((peer, [refusal, str(error).encode()]))
        except Gap as gap:
            session.silenced = True
            self._greet(peer, 0, str(gap))
        else:
            self._acks.setdefault((peer, frame.epoch), []).extend(runs)

    def _check_key(self, frame: Frame, session: Session) -> None:
        """Refuse a frame that its key may not publish. Counts the refusal. Raises ``KeyRefused``."""
        if self._access is not None and session.key is not None:
            try:
                self._access.check_types(session.key, frame)
                if session.key.role == "worker":
                    _check_speaker(frame, session.producer)
            except KeyRefused as error:
                self._access.refusals.add(session.key, "rights", session.producer, str(error))
                raise

    def _subscribe(self, peer: bytes, request: wire.Subscribe) -> None:
        head = self._sequencer.head
        position = head if request.after is None else request.after
        if position > head:
            why = f"The cursor {position} lies beyond the journal's end {head}: is this the right journal?"
        elif self._fanout.count(peer) >= self._limits.max_subscriptions:
            why = f"This connection has {self._limits.max_subscriptions} subscriptions already."
        else:
            self._fanout.add(peer, request, position)
            self._out.append((peer, [wire.OPENED_FORM.pack(wire.OPENED, request.id, position)]))
            return
        self._answers.append((peer, [wire.ID_FORM.pack(wire.CLOSED, request.id), why.encode()]))

    def _ask(self, peer: bytes, session: Session, parts: list[bytes]) -> None:
        """Carry out a peer's request (``wire.ASK``); it is answered after the next transaction."""
        _, token = wire.TOKEN_FORM.unpack(parts[0])
        problem, body = "", b""
        match parts[1]:
            case method if session.key and method in RESTRICTED and session.key.role not in RESTRICTED[method]:
                problem = f"A {session.key.role} key may not ask for this."
            case wire.BURY:
                dead_letter = wire.Bury.model_validate_json(parts[2]).dead_letter(parts[3])
                head = self._sequencer.head
                if dead_letter.position > head:
                    problem = f"The position {dead_letter.position} lies beyond the journal's end {head}."
                else:
                    self._dead_letters.append(dead_letter)
            case wire.DISCARD:
                # An unknown number is not an error, because clients repeat requests after interruptions.
                self._journal.remove_dead_letter(wire.Discard.model_validate_json(parts[2]).number)
            case wire.PRESENT:
                body = _table.dump_json(self._presence.table(self._now))
            case wire.SNAPSHOT:
                request = wire.AskSnapshot.model_validate_json(parts[2])
                body = wire.pack_snapshot(self._journal.snapshot(request.upto), request.kinds)
            case other:
                raise ProtocolError(f"There is no method {other!r}.")
        self._answers.append((peer, [wire.TOKEN_FORM.pack(wire.ANSWER, token), problem.encode(), body]))


def _time(session: Session) -> str:
    return f"{EPOCH + timedelta(microseconds=session.since_us):%Y-%m-%d %H:%M:%S} UTC"


def _check_speaker(frame: Frame, producer: str) -> None:
    """Refuse facts about daemons other than the producer.

    A worker could otherwise report another daemon as stopped, and so take its jobs. Raises ``KeyRefused``.
    """
    if OWN_FACTS.isdisjoint(frame.types):
        return
    for index, body in enumerate(frame.bodies()):
        if frame.types[frame.type_refs[index]] in OWN_FACTS:
            with suppress(MalformedEvent, NoUpcast):  # readers turn an unreadable event into a dead letter
                match decode(body).data:
                    case DaemonFact(daemon=daemon, node=node) if f"{daemon}@{node}" != producer:
                        raise KeyRefused(f"{producer} may not speak for {daemon}@{node}.")


def _check_producer(frame: Frame, session: Session) -> None:
    if frame.producer != session.producer:
        raise DamagedFrame(f"The frame is from {frame.producer!r}, the connection from {session.producer!r}.")
