"""The messages between clients and the broker.

A message is a kind byte with packed numbers, then parts of bytes. What is rare is JSON, validated; what is frequent
is packed. All numbers are little-endian.

========  =====================  =========================================================================
to        kind                   parts
========  =====================  =========================================================================
broker    HELLO                  ``Hello``
broker    FRAME                  a frame
broker    SUBSCRIBE              ``Subscribe``
broker    CREDIT id position     none: the subscriber has consumed up to the position
broker    UNSUBSCRIBE id         none
broker    ASK token              name of the method, its arguments as JSON, a body (may be empty)
client    WELCOME greeting       none: frames may be sent; all that are not acknowledged must be
client    GREET milliseconds     text: say hello again after the time
client    ACK epoch runs         none: (base, size, first) for each run
client    REJECT epoch base n    text: the frame was refused
client    OPENED id position     none: deliveries of the subscription begin after the position
client    CLOSED id              text: the subscription cannot be served
client    EVENTS id from to head   records that cover the positions after ``from`` up to ``to``
client    ANSWER token           JSON
client    BEAT                   none: the broker lives
client    ERROR                  text: the broker does not understand this client
========  =====================  =========================================================================
"""

from collections.abc import Sequence
from struct import Struct, pack, unpack_from
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from app.bus.sequencer import Run
from app.core import FlyballError
from app.events.frames import DeadLetter

PROTOCOL = 1

HELLO, FRAME, SUBSCRIBE, CREDIT, UNSUBSCRIBE, ASK = b"H", b"F", b"S", b"C", b"U", b"Q"
WELCOME, GREET, ACK, REJECT, OPENED, CLOSED, EVENTS, ANSWER, BEAT, ERROR = (
    b"W", b"G", b"A", b"R", b"O", b"L", b"E", b"Z", b"B", b"X",
)  # fmt: skip

CREDIT_FORM = Struct("<cIQ")
ID_FORM = Struct("<cI")
TOKEN_FORM = Struct("<cQ")
WELCOME_FORM = Struct("<cQ")
ACK_FORM = Struct("<cQ")
RUN_FORM = "QIQ"
GREET_FORM = Struct("<cI")
REJECT_FORM = Struct("<cQQI")
OPENED_FORM = Struct("<cIQ")
EVENTS_FORM = Struct("<cIQQQ")

Number = Annotated[int, Field(ge=0, lt=1 << 64)]
Name = Annotated[str, Field(min_length=1, max_length=255)]


class ProtocolError(FlyballError):
    """A message that makes no sense."""


class Message(BaseModel):
    """Base of the rare messages."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hello(Message):
    """A producer names itself, and where each of its epochs goes on. ``greeting`` comes back with the welcome."""

    protocol: Literal[1] = 1
    greeting: Number
    producer: Name
    epochs: tuple[tuple[Number, Number], ...]


class Subscribe(Message):
    """A subscriber says what it wants; see ``Bus.subscribe``.

    ``credit`` is the bound on unconsumed bytes; ``held`` of them are those of an earlier subscription, up to ``after``.
    """

    id: Annotated[int, Field(ge=0, lt=1 << 32)]
    types: frozenset[Name] | None
    after: Number | None
    durable: Name | None
    credit: Annotated[int, Field(gt=0)]
    held: Number = 0


class Commit(Message):
    """Set a durable cursor."""

    name: Name
    position: Number


class Letter(Message):
    """Keep a dead letter; its body is the message's last part."""

    position: Number
    producer: str
    reporter: Name
    error: str


def letter(kept: DeadLetter) -> Letter:
    """Write a dead letter without its body."""
    return Letter(position=kept.position, producer=kept.producer, reporter=kept.reporter, error=kept.error)


class Forget(Message):
    """Remove a dead letter."""

    number: Annotated[int, Field(ge=0, lt=1 << 63, description="as the journal counts them")]


def ack(epoch: int, runs: Sequence[Run]) -> list[bytes]:
    """Acknowledge runs of an epoch."""
    numbers = [number for run in runs for number in run]
    return [pack("<cQ" + RUN_FORM * len(runs), ACK, epoch, *numbers)]


def read_ack(head: bytes) -> tuple[int, list[Run]]:
    """Return the epoch and the runs of an acknowledgement."""
    count = (len(head) - ACK_FORM.size) // 20
    _, epoch, *numbers = unpack_from("<cQ" + RUN_FORM * count, head)
    return epoch, [Run(*numbers[i : i + 3]) for i in range(0, 3 * count, 3)]
