"""The messages between clients and the broker.

The first part is a kind byte and packed little-endian numbers; other parts are bytes. Rare messages are validated JSON,
frequent ones are packed. Column ``to`` is the recipient. ``check`` is the checksum of the record at ``to``, or 0.

========  ============================  ==========================================================================
to        kind                          parts
========  ============================  ==========================================================================
broker    HELLO                         ``Hello``
broker    FRAME                         a frame
broker    SUBSCRIBE                     ``Subscribe``
broker    CREDIT id position            none: the subscriber has consumed up to the position
broker    UNSUBSCRIBE id                none
broker    ASK token                     method, ``Bury``, ``Discard``, ``AskSnapshot`` or ``{}``, a body (may be empty)
broker    SIGN                          ``Sign``: a sign of life
client    WELCOME greeting              none: frames may be sent; resend all unacknowledged ones first
client    GREET milliseconds            text: send HELLO again after this time
client    ACK epoch runs                none: (base, size, first) for each run
client    REJECT epoch base n           text: the frame was refused
client    OPENED id position            none: deliveries of the subscription begin after the position
client    CLOSED id                     text: the subscription cannot be served
client    EVENTS id from to head check  records that cover the positions after ``from`` up to ``to``
client    ANSWER token                  text: why the request failed, empty when it succeeded; a body (may be empty)
client    FOREIGN                       text: the client has followed another history of the journal, and is not served
client    DENIED                        text: this key may not do this; the connection has no session any more
client    BEAT                          none: tests whether the client can be reached
client    ERROR                         text: the broker does not understand this client
========  ============================  ==========================================================================
"""

from collections.abc import Collection, Sequence
from struct import Struct, pack, unpack_from
from typing import Annotated, Literal, Self

from msgspec import msgpack
from pydantic import BaseModel, ConfigDict, Field

from flyball.app.bus.sequencer import Run
from flyball.app.core import FlyballError
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import Snapshot

HELLO, FRAME, SUBSCRIBE, CREDIT, UNSUBSCRIBE, ASK, SIGN = b"H", b"F", b"S", b"C", b"U", b"Q", b"I"
WELCOME, GREET, ACK, REJECT, OPENED, CLOSED, EVENTS, ANSWER, FOREIGN, DENIED, BEAT, ERROR = (
    b"W", b"G", b"A", b"R", b"O", b"L", b"E", b"Z", b"N", b"D", b"B", b"X",
)  # fmt: skip

BURY, DISCARD, PRESENT, SNAPSHOT = b"letter", b"forget", b"present", b"snapshot"
"""Methods of ASK."""

CREDIT_FORM = Struct("<cIQ")
ID_FORM = Struct("<cI")
TOKEN_FORM = Struct("<cQ")
WELCOME_FORM = TOKEN_FORM
ACK_FORM = TOKEN_FORM
RUN_FORM = "QIQ"
GREET_FORM = Struct("<cI")
REJECT_FORM = Struct("<cQQI")
OPENED_FORM = Struct("<cIQ")
EVENTS_FORM = Struct("<cIQQQI")

Number = Annotated[int, Field(ge=0, lt=1 << 64)]
Name = Annotated[str, Field(min_length=1, max_length=255)]


class ProtocolError(FlyballError):
    """A malformed message."""


class Message(BaseModel):
    """Base of the rare messages, which are sent as JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hello(Message):
    """A producer's greeting, which WELCOME acknowledges.

    WELCOME returns ``greeting``. ``epochs`` has pairs of an epoch and its first unacknowledged number. ``life``
    identifies this start of the producer, ``place`` describes its process to people. While a ``sole`` producer lives,
    the broker refuses its name to other processes. ``known`` is the latest record that the client knows of.
    """

    protocol: Literal[3] = 3
    greeting: Number
    producer: Name
    epochs: tuple[tuple[Number, Number], ...]
    life: Number
    place: Name
    sole: bool
    known: tuple[Number, Number] | None = None


class Subscribe(Message):
    """A subscription to open, with ``credit`` bytes; ``held`` of them are unconsumed, delivered under an earlier id."""

    id: Annotated[int, Field(ge=0, lt=1 << 32)]
    types: frozenset[Name] | None
    after: Number | None
    credit: Annotated[int, Field(gt=0)]
    held: Number = 0


class Bury(Message):
    """Record a dead letter; its body is the request's last part."""

    position: Number
    producer: str
    reporter: Name
    error: str

    @classmethod
    def of(cls, dead: DeadLetter) -> Self:
        """Return the request for a dead letter, without its body."""
        return cls(position=dead.position, producer=dead.producer, reporter=dead.reporter, error=dead.error)

    def dead_letter(self, body: bytes) -> DeadLetter:
        """Return the dead letter with its body."""
        return DeadLetter(self.position, self.producer, self.reporter, self.error, body)


class Discard(Message):
    """Remove a dead letter, by its number in the journal."""

    number: Annotated[int, Field(ge=0, lt=1 << 63)]


class AskSnapshot(Message):
    """Return the latest snapshot at or before a position. The answer has the rows of ``kinds`` only."""

    upto: Number
    kinds: frozenset[Name]


def pack_snapshot(snapshot: Snapshot | None, kinds: Collection[str]) -> bytes:
    """Return a snapshot's rows of some kinds as an answer's body. The body is empty without a snapshot."""
    if snapshot is None:
        return b""
    rows = [(kind, name, value) for (kind, name), value in snapshot.rows.items() if kind in kinds]
    return msgpack.encode((snapshot.position, rows))


def read_snapshot(body: bytes) -> Snapshot | None:
    """Return the snapshot of ``pack_snapshot``'s body, None if it is empty. Raises ``MsgspecError``."""
    if not body:
        return None
    position, rows = msgpack.decode(body, type=tuple[int, list[tuple[str, str, bytes]]])
    return Snapshot(position, {(kind, name): value for kind, name, value in rows})


def ack(epoch: int, runs: Sequence[Run]) -> list[bytes]:
    """Return the parts of an ACK for runs of an epoch."""
    numbers = [number for run in runs for number in run]
    return [pack("<cQ" + RUN_FORM * len(runs), ACK, epoch, *numbers)]


def read_ack(head: bytes) -> tuple[int, list[Run]]:
    """Parse an ACK into its epoch and runs."""
    count = (len(head) - ACK_FORM.size) // 20
    _, epoch, *numbers = unpack_from("<cQ" + RUN_FORM * count, head)
    return epoch, [Run(*numbers[i : i + 3]) for i in range(0, 3 * count, 3)]
