"""Frames and records: binary units of sending, storing and delivering events.

A frame holds events of one producer; their bodies stay bytes until they are decoded. Little-endian layout::

    magic  "FBF1"
    u32    CRC-32 of the header, from the next field to its end
    u32    CRC-32 of the bodies
    u64    epoch, u64 base: the frame holds the events base, base + 1, … of this epoch of its producer
    u32    count of events, u32 length of the header, u16 types, u16 subjects, u16 length of the producer's name
    count x u64 id hashes, u32 body lengths, u16 type references, u16 subject references
    (types + subjects) x u16 lengths of names
    producer, types, subjects: UTF-8
    bodies

The header has its own checksum, because the broker and filtering readers need only the header.

A record is a frame with the broker's stamp, the form in which it is stored and delivered::

    magic  "FBR1"
    u32    CRC-32 of the rest of the stamp and the frame's header checksum, which covers that of the bodies
    u64    position of the first event
    u64    time of recording, microseconds since 1970 UTC
    u16    length of the source's name
    source: UTF-8
    frame
"""

import struct
from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, pairwise
from struct import pack
from typing import NamedTuple, NoReturn
from zlib import crc32

from msgspec import Struct

from flyball.app.core import FlyballError
from flyball.app.events.codec import MalformedEvent, decode
from flyball.app.events.envelope import Envelope, Event, encode
from flyball.app.events.payload import Payload

MAGIC = b"FBF1"
FIXED = struct.Struct("<4sIIQQIIHHH")
AFTER_CRC = 8
MAX_EVENTS = 4096
EVENT_BYTES = 16
"""Size of an event's entry in the header: hash, length, two references."""

SHORT_BYTES = 256
PREFIX = "Damaged frame: "


class DamagedFrame(FlyballError):
    """A frame with a wrong, missing or superfluous byte."""


def _damaged_frame(what: str) -> DamagedFrame:
    return DamagedFrame(f"{PREFIX}{what}.", hint="Send or fetch it again; nothing of it was used.")


class Frame(Struct, frozen=True):
    """A verified header, and the bytes it was read from."""

    buffer: bytes  # holds the frame from ``start`` on; in a record, a stamp precedes it
    start: int
    producer: str
    epoch: int  # identifies one run of the producer
    base: int  # number of the first event within the epoch, from 0
    ids: tuple[int, ...]  # 64-bit hash of each event's id
    types: tuple[str, ...]  # distinct, in order of appearance, as are the subjects
    subjects: tuple[str, ...]
    type_refs: tuple[int, ...]  # for each event the index into ``types``
    subject_refs: tuple[int, ...]
    lengths: tuple[int, ...]  # bytes of each body
    bodies_at: int  # where the bodies begin in ``buffer``
    header_crc: int  # covers the checksum of the bodies

    @classmethod
    def parse(cls, buffer: bytes, start: int = 0, *, bodies: bool = True) -> "Frame":
        """Parse and verify the frame that fills ``buffer`` from ``start`` on.

        Pass ``bodies=False`` if ``buffer`` ends with the header. Raises ``DamagedFrame``.
        """
        try:
            fixed = FIXED.unpack_from(buffer, start)
            magic, crc, bodies_crc, epoch, base, count, length, types, subjects, producer = fixed
            if magic != MAGIC:
                raise _damaged_frame("it does not begin like one")
            end = start + length
            if length < FIXED.size or end > len(buffer) or crc32(buffer[start + AFTER_CRC : end]) != crc:
                raise _damaged_frame("the checksum of its header is wrong")
            at = start + FIXED.size
            columns = _columns(count).unpack_from(buffer, at)
            table = buffer[at + EVENT_BYTES * count : end]
            names = (_short_names if len(table) <= SHORT_BYTES else _names)(table, types + subjects, producer)
        except (struct.error, UnicodeDecodeError) as error:
            raise _damaged_frame(f"its header cannot be read ({error})") from error
        frame = cls(
            buffer=buffer,
            start=start,
            producer=names[0],
            epoch=epoch,
            base=base,
            ids=columns[:count],
            types=names[1 : 1 + types],
            subjects=names[1 + types :],
            lengths=columns[count : 2 * count],
            type_refs=columns[2 * count : 3 * count],
            subject_refs=columns[3 * count :],
            bodies_at=end,
            header_crc=crc,
        )
        if not 0 < count <= MAX_EVENTS or max(frame.type_refs) >= types or max(frame.subject_refs) >= subjects:
            raise _damaged_frame("its header contradicts itself")
        if bodies and len(buffer) - end != sum(frame.lengths):
            raise _damaged_frame("its length is wrong")
        if bodies and crc32(buffer[end:]) != bodies_crc:
            raise _damaged_frame("the checksum of its bodies is wrong")
        return frame

    @property
    def count(self) -> int:
        """Number of events, at least 1."""
        return len(self.ids)

    @property
    def raw(self) -> bytes:
        """The frame as it was sent, without a record's stamp."""
        return self.buffer[self.start :]

    def bodies(self) -> list[bytes]:
        """Return the bodies in order."""
        buffer = self.buffer
        if len(self.lengths) == 1:
            return [buffer[self.bodies_at :]]
        return [buffer[a:b] for a, b in pairwise(accumulate(self.lengths, initial=self.bodies_at))]


def peek(buffer: bytes) -> tuple[int, int, int] | None:
    """Return a frame's (epoch, base, count) unverified; None if ``buffer`` does not begin like a frame."""
    if len(buffer) < FIXED.size or not buffer.startswith(MAGIC):
        return None
    _, _, _, epoch, base, count, _, _, _, _ = FIXED.unpack_from(buffer)
    return epoch, base, count


@lru_cache(maxsize=64)
def _columns(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}Q{count}I{count}H{count}H")


def _names(table: bytes, count: int, producer: int) -> tuple[str, ...]:
    lengths = struct.unpack_from(f"<{count}H", table)
    ends = list(accumulate((producer, *lengths), initial=2 * count))
    if ends[-1] != len(table):
        raise _damaged_frame("its header contradicts itself")
    return tuple(str(table[a:b], "utf-8") for a, b in pairwise(ends))


_short_names = lru_cache(maxsize=4096)(_names)
"""Cached, because producers repeat a few names, and most frames hold one event."""


class Draft(NamedTuple):
    """An event to put into a frame. ``subject`` is empty for events about the whole system."""

    id_hash: int
    type: str
    subject: str
    body: bytes


def hash_id(event_id: str) -> int:
    """Return the 64-bit hash by which the broker remembers an event id.

    A new id's hash equals one of 250,000 remembered hashes once in 7 x 10^13 events.
    """
    return int.from_bytes(blake2b(event_id.encode(), digest_size=8).digest(), "little")


class FrameBuilder:
    """Collects events and packs them into one frame."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._drafts: list[Draft] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._drafts)

    def take(self, drafts: Sequence[Draft], max_bytes: int) -> int:
        """Add the first drafts that fit and return their number. One draft always fits an empty frame."""
        sizes = [len(draft.body) for draft in drafts[: MAX_EVENTS - len(self)]]
        if self._size + sum(sizes) > max_bytes:
            fitting = bisect_right(list(accumulate(sizes)), max_bytes - self._size)
            sizes = sizes[: fitting if self._drafts else max(1, fitting)]
        self.add(drafts[: len(sizes)])
        self._size += sum(sizes)
        return len(sizes)

    def add(self, drafts: Iterable[Draft]) -> None:
        """Add drafts without checking the frame's size."""
        self._drafts += drafts

    def build(self, epoch: int, base: int) -> bytes:
        """Pack the collected events into a frame, as the events ``base``, ``base + 1``, … of ``epoch``."""
        ids, of_types, of_subjects, of_bodies = zip(*self._drafts, strict=True)
        types, subjects, bodies = _numbers(of_types), _numbers(of_subjects), b"".join(of_bodies)
        refs = (*map(types.__getitem__, of_types), *map(subjects.__getitem__, of_subjects))
        columns = _columns(len(ids)).pack(*ids, *map(len, of_bodies), *refs)
        producer, *names = (name.encode() for name in (self._producer, *types, *subjects))
        tail = b"".join((columns, pack(f"<{len(names)}H", *map(len, names)), producer, *names))
        fixed = FIXED.pack(
            MAGIC, 0, crc32(bodies), epoch, base, len(ids), FIXED.size + len(tail),
            len(types), len(subjects), len(producer),
        )  # fmt: skip
        crc = crc32(tail, crc32(fixed[AFTER_CRC:]))
        return b"".join((MAGIC, crc.to_bytes(4, "little"), fixed[AFTER_CRC:], tail, bodies))


def _numbers(names: Iterable[str]) -> dict[str, int]:
    """Number distinct names in order of appearance."""
    return {name: number for number, name in enumerate(dict.fromkeys(names))}


def without_events(frame: Frame, dropped: set[int]) -> bytes:
    """Repack a frame without the events whose indices are in ``dropped``."""
    types = (frame.types[i] for i in frame.type_refs)
    subjects = (frame.subjects[i] for i in frame.subject_refs)
    drafts = map(Draft, frame.ids, types, subjects, frame.bodies())
    builder = FrameBuilder(frame.producer)
    builder.add([draft for i, draft in enumerate(drafts) if i not in dropped])
    return builder.build(frame.epoch, frame.base)


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """An event or frame that could not be read, recorded or folded."""

    position: int  # of the event in the journal; 0 when it was refused before being recorded
    producer: str  # name of the sender
    reporter: str  # the broker, or the name of the subscriber that failed
    error: str  # the reason, in a sentence
    body: bytes  # the event, or the whole frame when that could not be read
    number: int = 0  # in the journal; 0 before the dead letter is stored


RECORD_MAGIC = b"FBR1"
STAMP = struct.Struct("<4sIQQH")


class DamagedRecord(FlyballError):
    """A journal's record that is damaged, unreadable or at a wrong position."""


def damaged(position: int | None, what: str) -> DamagedRecord:
    """Return the error for a damaged record that was expected to begin at ``position``."""
    where = "a record" if position is None else f"the record at position {position}"
    return DamagedRecord(
        f"Damaged journal: {what} in {where}.",
        hint="Restore the journal from a copy; `flyball journal verify` lists all damage.",
    )


class Record(Struct, frozen=True):
    """A stamped frame."""

    raw: bytes  # all bytes, or those before the bodies when only the header was read
    first: int  # position of the first event
    recorded_us: int  # time of recording, microseconds since 1970 UTC
    source: str  # the sender, as authenticated by the broker
    frame: Frame

    @property
    def last(self) -> int:
        """Position of the last event."""
        return self.first + len(self.frame.ids) - 1

    @property
    def checksum(self) -> int:
        """CRC-32 that covers position, time, source and content."""
        return checksum_of(self.raw)

    @classmethod
    def open(cls, raw: bytes, *, expected: int | None = None, bodies: bool = True) -> "Record":
        """Parse and verify a record.

        Pass ``bodies=False`` if ``raw`` ends with the frame's header. Raises ``DamagedRecord`` if a byte is wrong,
        missing or superfluous, or if the position is not ``expected``.
        """
        try:
            magic, crc, first, recorded_us, length = STAMP.unpack_from(raw)
            start = STAMP.size + length
            frame = Frame.parse(raw, start, bodies=bodies)
            source = str(raw[STAMP.size : start], "utf-8")
        except (DamagedFrame, struct.error, UnicodeDecodeError) as error:
            raise damaged(expected, str(error).removeprefix(PREFIX).partition(".")[0]) from error
        if magic != RECORD_MAGIC or crc32(raw[AFTER_CRC:start], frame.header_crc) != crc:
            raise damaged(expected, "wrong checksum of the stamp")
        if expected is not None and first != expected:
            raise damaged(expected, f"position {first}")
        return cls(raw, first, recorded_us, source, frame)


def checksum_of(raw: bytes) -> int:
    """Return a record's checksum from its first bytes; see ``Record.checksum``."""
    return int.from_bytes(raw[4:AFTER_CRC], "little")


def ids_of(head: bytes, first: int) -> tuple[int, ...]:
    """Return the id hashes from the header of a record.

    ``first`` is the record's position. Nothing else is parsed, because a broker reads a million hashes when it starts.
    Raises ``DamagedRecord``.
    """
    try:
        start = STAMP.size + STAMP.unpack_from(head)[4]
        magic, crc, _, _, _, count, length, _, _, _ = FIXED.unpack_from(head, start)
        if magic != MAGIC or start + length != len(head) or crc32(memoryview(head)[start + AFTER_CRC :]) != crc:
            raise damaged(first, "the checksum of its header is wrong")
        return struct.unpack_from(f"<{count}Q", head, start + FIXED.size)
    except struct.error as error:
        raise damaged(first, str(error)) from error


def seal(frame: Frame, *, first: int, recorded_us: int, source: str) -> Record:
    """Stamp a frame as a record."""
    name = source.encode()
    rest = STAMP.pack(RECORD_MAGIC, 0, first, recorded_us, len(name))[AFTER_CRC:] + name
    crc = crc32(rest, frame.header_crc).to_bytes(4, "little")
    raw = b"".join((RECORD_MAGIC, crc, rest, memoryview(frame.buffer)[frame.start :]))
    return Record(raw, first, recorded_us, source, frame)


def draft_of(envelope: Envelope[Payload]) -> Draft:
    """Return an envelope as a frame's draft."""
    return Draft(hash_id(envelope.id), envelope.type, envelope.subject or "", encode(envelope))


def frame_of(envelopes: Iterable[Envelope[Payload]], *, producer: str, epoch: int, base: int) -> bytes:
    """Pack one or more envelopes into one frame."""
    builder = FrameBuilder(producer)
    builder.add([draft_of(envelope) for envelope in envelopes])
    return builder.build(epoch, base)


class Stored(Struct, frozen=True):
    """A recorded event whose body is not decoded yet."""

    sequence: int
    recorded_us: int
    source: str
    type: str
    subject: str
    body: bytes

    def open(self, reporter: str, on_dead: Callable[[DeadLetter], None]) -> Event[Payload] | None:
        """Decode the event; return ``None`` if that fails.

        Decoding also fails if the frame's header contradicts the event. After a failure, ``on_dead`` is called with a
        dead letter from ``reporter``.
        """
        try:
            envelope = decode(self.body)
            if envelope.type != self.type or (envelope.subject or "") != self.subject:
                raise MalformedEvent(
                    f"Malformed event: its frame says {self.type!r} about {self.subject!r}, the event itself "
                    f"{envelope.type!r} about {envelope.subject!r}.",
                    hint="Look at the program that sent it: rights and filters go by the frame.",
                )
        except FlyballError as error:
            on_dead(DeadLetter(self.sequence, self.source, reporter, str(error), self.body))
            return None
        return Event(envelope, self.sequence, self.recorded_us, self.source)


def stored_in(record: Record, *, after: int = 0, types: AbstractSet[str] | None = None) -> list[Stored]:
    """Return a record's events as ``read_events`` does, but not decoded."""
    frame, recorded_us, source = record.frame, record.recorded_us, record.source
    if types is not None and types.isdisjoint(frame.types):
        return []
    events, end = list[Stored](), frame.bodies_at
    columns = zip(frame.lengths, frame.type_refs, frame.subject_refs, strict=True)
    for sequence, (length, type_ref, subject_ref) in enumerate(columns, record.first):
        begin, end = end, end + length
        kind = frame.types[type_ref]
        if sequence > after and (types is None or kind in types):
            body = frame.buffer[begin:end]
            events.append(Stored(sequence, recorded_us, source, kind, frame.subjects[subject_ref], body))
    return events


def read_events(
    record: Record,
    *,
    after: int = 0,
    types: AbstractSet[str] | None = None,
    reporter: str,
    on_dead: Callable[[DeadLetter], None],
) -> list[Event[Payload]]:
    """Decode a record's readable events of ``types`` (None: all) after a position; see ``Stored.open``."""
    return [
        event
        for stored in stored_in(record, after=after, types=types)
        if (event := stored.open(reporter, on_dead)) is not None
    ]


def refuse(dead: DeadLetter) -> NoReturn:
    """Raise ``DamagedRecord`` for an unreadable event; as ``on_dead``, it stops at the first one."""
    raise DamagedRecord(
        f"The event at position {dead.position} can't be read: {dead.error}",
        hint="Was it written by a newer Flyball?",
    )
