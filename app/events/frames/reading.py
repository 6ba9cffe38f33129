"""Between typed events and frames: the two edges where JSON is written and read."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from app.core import FlyballError
from app.events.codec import MalformedEvent, decode, encode
from app.events.envelope import Envelope, Event
from app.events.frames.builder import Draft, FrameBuilder, hash_id
from app.events.frames.letter import DeadLetter
from app.events.frames.record import Record
from app.events.payload import Payload


def draft_of(envelope: Envelope[Payload]) -> Draft:
    """Write an envelope as a frame takes it."""
    return Draft(hash_id(envelope.id), envelope.type, envelope.subject or "", encode(envelope))


def frame_of(envelopes: Iterable[Envelope[Payload]], *, producer: str, epoch: int, base: int) -> bytes:
    """Write one or more envelopes as one frame."""
    builder = FrameBuilder(producer)
    builder.add([draft_of(envelope) for envelope in envelopes])
    return builder.build(epoch, base)


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
        reporter: who reads, for the dead letters.
        on_dead: is told of every event that can't be read, or is not what the frame's header says.
    """
    frame, recorded_us, source = record.frame, record.recorded_us, record.source
    events: list[Event[Payload]] = []
    if types is not None and types.isdisjoint(frame.types):
        return events
    rows = zip(frame.bodies(), frame.type_refs, frame.subject_refs, strict=True)
    for sequence, (body, type_ref, subject_ref) in enumerate(rows, record.first):
        kind, subject = frame.types[type_ref], frame.subjects[subject_ref]
        if sequence <= after or (types is not None and kind not in types):
            continue
        try:
            envelope = decode(body)
            if envelope.type != kind or (envelope.subject or "") != subject:
                raise _differs(envelope, kind, subject)
        except FlyballError as error:
            on_dead(DeadLetter(sequence, source, reporter, str(error), body))
        else:
            events.append(Event(envelope, sequence, recorded_us, source))
    return events


def _differs(envelope: Envelope[Payload], event_type: str, subject: str) -> MalformedEvent:
    return MalformedEvent(
        f"Malformed event: its frame says {event_type!r} about {subject!r}, the event itself "
        f"{envelope.type!r} about {envelope.subject!r}.",
        hint="Look at the program that sent it: rights and filters go by the frame.",
    )
