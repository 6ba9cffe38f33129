"""Between typed events and frames: the two edges where JSON is written and read."""

from collections.abc import Callable, Iterable
from collections.abc import Set as AbstractSet

from app.core import FlyballError
from app.events.codec import MalformedEvent, decode, encode
from app.events.envelope import Envelope, Event
from app.events.frames.builder import FrameBuilder, hash_id
from app.events.frames.letter import DeadLetter
from app.events.frames.record import Record
from app.events.payload import Payload


def frame_of(envelopes: Iterable[Envelope[Payload]], *, producer: str, epoch: int, base: int) -> bytes:
    """Write one or more envelopes as one frame."""
    builder = FrameBuilder(producer)
    for envelope in envelopes:
        builder.add(hash_id(envelope.id), envelope.type, envelope.subject or "", encode(envelope))
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
    frame, first = record.frame, record.first
    wanted = None if types is None else {i for i, name in enumerate(frame.types) if name in types}
    if wanted is not None and not wanted:
        return []
    ends, buffer, refs = frame.offsets(), frame.buffer, frame.type_refs
    events = []
    for i in range(max(0, after + 1 - first), frame.count):
        if wanted is not None and refs[i] not in wanted:
            continue
        body = buffer[ends[i] : ends[i + 1]]
        try:
            envelope = decode(body)
            _check_header(envelope, frame.types[refs[i]], frame.subjects[frame.subject_refs[i]])
        except FlyballError as error:
            on_dead(DeadLetter(first + i, record.source, reporter, str(error), body))
        else:
            events.append(Event(envelope, first + i, record.recorded_us, record.source))
    return events


def _check_header(envelope: Envelope[Payload], event_type: str, subject: str) -> None:
    if envelope.type != event_type or (envelope.subject or "") != subject:
        raise MalformedEvent(
            f"Malformed event: its frame says {event_type!r} about {subject!r}, the event itself "
            f"{envelope.type!r} about {envelope.subject!r}.",
            hint="Look at the program that sent it: rights and filters go by the frame.",
        )
