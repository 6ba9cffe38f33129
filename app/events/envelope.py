"""CloudEvents 1.0 envelopes, which producers write, and recorded events.

A producer writes an ``Envelope`` once, and the broker never opens it. The broker stamps position, time and producer on
the *frame* that carries the envelope. An ``Event`` is an envelope with these stamps.

Source: CloudEvents 1.0.2 (attributes, JSON format, distributed tracing, sequence and recordedtime extensions).
"""

import json
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Generic, Literal, Self, TypeVar

from msgspec import Meta, Raw, Struct
from msgspec.json import Encoder
from pydantic import AwareDatetime, BaseModel, ConfigDict, Field, model_validator

from flyball.app.core import NAME_LENGTH, EventId, Name
from flyball.app.events.payload import Payload, Scope
from flyball.app.events.rows import Row

P_co = TypeVar("P_co", bound=Payload, covariant=True)
_NAME = Meta(min_length=1, max_length=NAME_LENGTH)
TRACEPARENT = r"^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$"
TRACEPARENT_LENGTH = 55
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
LATEST = datetime(2200, 1, 1, tzinfo=UTC)
"""Upper bound of event times (lower: ``EPOCH``), so that no computation with them overflows."""

SEQUENCE_DIGITS = 19
"""Digits of the largest position, 2**63 - 1: sequences are padded to sort as text."""


def _optional(**constraints: Any) -> Any:
    """Return the field of an attribute that is omitted when ``None``. Inside ``data``, ``None`` is written."""
    return Field(default=None, exclude_if=lambda value: value is None, **constraints)


class Envelope(Struct, Generic[P_co], frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One event as its producer wrote it. An envelope is validated when read, not when built."""

    specversion: Literal["1.0"]
    id: Annotated[str, _NAME]
    type: str
    subject: Annotated[str, _NAME] | None = None
    time: Annotated[datetime, Meta(tz=True)]
    datacontenttype: Literal["application/json"]
    dataversion: int
    correlationid: Annotated[str, _NAME]
    causationid: Annotated[str, _NAME] | None = None
    traceparent: Annotated[str, Meta(pattern=TRACEPARENT, max_length=TRACEPARENT_LENGTH)] | None = None
    data: P_co

    def attributes(self) -> dict[str, Any]:
        """Return the written attributes as JSON values."""
        written: dict[str, Any] = json.loads(encode(self))
        return written


class EnvelopeModel(BaseModel, Generic[P_co]):
    """Pydantic model of an envelope, for its JSON Schema; attributes are those of ``Envelope``, in the same order."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    specversion: Literal["1.0"] = "1.0"
    id: Name
    type: Name
    subject: Name | None = _optional()
    time: AwareDatetime = Field(ge=EPOCH, lt=LATEST)
    datacontenttype: Literal["application/json"] = "application/json"
    dataversion: int
    correlationid: Name
    causationid: Name | None = _optional()
    traceparent: str | None = _optional(pattern=TRACEPARENT)
    data: P_co

    @model_validator(mode="after")
    def _subject_fits_scope(self) -> Self:
        if (self.subject is None) == (self.data.scope is Scope.CONFIG):
            rule = "needs a subject: its config_key" if self.subject is None else "takes no subject"
            raise ValueError(f"{self.data.event_name} {rule}")
        return self

    def envelope(self) -> Envelope[P_co]:
        """Return the validated envelope."""
        return Envelope(**dict(self))


_write = Encoder(enc_hook=lambda payload: Raw(payload.__pydantic_serializer__.to_json(payload))).encode


def encode(envelope: Envelope[Payload]) -> bytes:
    """Write an envelope as CloudEvents structured JSON. The attributes that the broker stamps are left out."""
    return _write(envelope)


class Cause(Row, frozen=True):
    """Reference to an event, copied into the events that it causes."""

    id: EventId
    subject: str | None
    correlationid: str
    traceparent: str | None
    sequence: int
    recorded_us: int

    @property
    def recordedtime(self) -> datetime:
        """Time at which the broker recorded the cause."""
        return EPOCH + timedelta(microseconds=self.recorded_us)


class Event(Struct, Generic[P_co], frozen=True):
    """One recorded event."""

    envelope: Envelope[P_co]
    sequence: int  # position in the journal, from 1, without gaps
    recorded_us: int  # when the broker recorded it, microseconds since 1970 UTC, never decreasing
    source: str  # the producer, ``daemon@node``

    @property
    def id(self) -> EventId:
        """The event's id."""
        return EventId(self.envelope.id)

    @property
    def data(self) -> P_co:
        """The payload."""
        return self.envelope.data

    @property
    def subject(self) -> str:
        """The configuration key; empty for events about the whole system."""
        return self.envelope.subject or ""

    @property
    def recordedtime(self) -> datetime:
        """Time at which the broker recorded the event. Reducers know no other time."""
        return EPOCH + timedelta(microseconds=self.recorded_us)

    @property
    def cause(self) -> Cause:
        """This event as the cause of others."""
        envelope = self.envelope
        return Cause(
            id=EventId(envelope.id),
            subject=envelope.subject,
            correlationid=envelope.correlationid,
            traceparent=envelope.traceparent,
            sequence=self.sequence,
            recorded_us=self.recorded_us,
        )

    def to_cloudevent(self) -> dict[str, Any]:
        """Return the event in CloudEvents' structured JSON form, stamps included."""
        return self.envelope.attributes() | {
            "source": self.source,
            "sequence": str(self.sequence).zfill(SEQUENCE_DIGITS),
            "recordedtime": self.recordedtime.isoformat(),
        }
