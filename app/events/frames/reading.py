"""Between typed events and frames: the two edges where JSON is written and read."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet
from typing import NoReturn

from msgspec import Struct

from app.core import FlyballError
from app.events.codec import MalformedEvent, decode
from app.events.envelope import Envelope, Event, encode
from app.events.frames.frame import Draft, FrameBuilder, hash_id
from app.events.frames.record import DamagedRecord, DeadLetter, Record
from app.events.payload import Payload


def draft_of(envelope: Envelope[Payload]) -> Draft:
    """Write an envelope as a frame takes it."""
    return Draft(hash_id(envelope.id), envelope.type, envelope.subject or "", encode(envelope))


def frame_of(envelopes: Iterable[Envelope[Payload]], *, producer: str, epoch: int, base: int) -> bytes:
    """Write one or more envelopes as one frame."""
    builder = FrameBuilder(producer)
    builder.add([draft_of(envelope) for envelope in envelopes])
    return builder.build(epoch, base)


class Stored(Struct, frozen=True):
    """An event of which only the frame's header was read."""

    sequence: int
    recorded_us: int
    source: str
    type: str
    subject: str
    body: bytes

    def open(self, reporter: str, on_dead: Callable[[DeadLetter], None]) -> Event[Payload] | None:
        """Read the event itself.

        Args:
            reporter: the reader's name, for dead letters.
            on_dead: called with an event that can't be read or contradicts its header; ``None`` is returned.
        """
        try:
            return _opened(self)
        except FlyballError as error:
            on_dead(_letter(self, reporter, error))
            return None


def stored_in(record: Record, *, after: int = 0, types: AbstractSet[str] | None = None) -> list[Stored]:
    """Return the events of a record, unread.

    Args:
        record: what was recorded.
        after: events up to this position are left out.
        types: event types wanted; None for all.
    """
    frame, recorded_us, source = record.frame, record.recorded_us, record.source
    if types is not None and types.isdisjoint(frame.types):
        return []
    found, end = list[Stored](), frame.bodies_at
    columns = zip(frame.lengths, frame.type_refs, frame.subject_refs, strict=True)
    for sequence, (length, type_ref, subject_ref) in enumerate(columns, record.first):
        begin, end = end, end + length
        kind = frame.types[type_ref]
        if sequence > after and (types is None or kind in types):
            body = frame.buffer[begin:end]
            found.append(Stored(sequence, recorded_us, source, kind, frame.subjects[subject_ref], body))
    return found


def read_events(
    record: Record,
    *,
    after: int = 0,
    types: AbstractSet[str] | None = None,
    reporter: str,
    on_dead: Callable[[DeadLetter], None],
) -> list[Event[Payload]]:
    """Read the events of a record.

    Args:
        record: what was recorded.
        after: events up to this position are left out.
        types: event types wanted; None for all.
        reporter: the reader's name, for dead letters.
        on_dead: called with every event that can't be read or contradicts the frame's header.
    """
    opened = (stored.open(reporter, on_dead) for stored in stored_in(record, after=after, types=types))
    return [event for event in opened if event is not None]


def refuse(letter: DeadLetter) -> NoReturn:
    """Give up reading a journal at an event that can't be read. Raises ``DamagedRecord``."""
    raise DamagedRecord(
        f"The event at position {letter.position} can't be read: {letter.error}",
        hint="Was it written by a newer Flyball?",
    )


def _opened(stored: Stored) -> Event[Payload]:
    envelope = decode(stored.body)
    if envelope.type != stored.type or (envelope.subject or "") != stored.subject:
        raise _differs(envelope, stored.type, stored.subject)
    return Event(envelope, stored.sequence, stored.recorded_us, stored.source)


def _letter(stored: Stored, reporter: str, error: FlyballError) -> DeadLetter:
    return DeadLetter(stored.sequence, stored.source, reporter, str(error), stored.body)


def _differs(envelope: Envelope[Payload], event_type: str, subject: str) -> MalformedEvent:
    return MalformedEvent(
        f"Malformed event: its frame says {event_type!r} about {subject!r}, the event itself "
        f"{envelope.type!r} about {envelope.subject!r}.",
        hint="Look at the program that sent it: rights and filters go by the frame.",
    )
