"""The frame: events of one producer that travel, are recorded and are handed out together.

Little-endian layout::

    magic  "FBF1"
    u32    CRC-32 of the header, from the next field to its end
    u32    CRC-32 of the bodies
    u64    epoch, u64 base: this frame holds the events base, base + 1, … of that epoch of the producer
    u32    count of events, u32 length of the header, u16 types, u16 subjects, u16 length of the producer's name
    count x u64 id hashes, u32 body lengths, u16 type references, u16 subject references
    (types + subjects) x u16 lengths of names
    producer, types, subjects: UTF-8
    bodies

The broker and readers that filter need the header alone; it carries its own checksum for that reason.
"""

import struct
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, chain, pairwise
from struct import pack
from typing import NamedTuple
from zlib import crc32

from msgspec import Struct

from app.core import FlyballError

MAGIC = b"FBF1"
FIXED = struct.Struct("<4sIIQQIIHHH")
AFTER_CRC = 8
MAX_EVENTS = 4096
EVENT_BYTES = 16
"""Header entry of an event: hash, length, two references."""

SHORT_BYTES = 256
PREFIX = "Damaged frame: "


class DamagedFrame(FlyballError):
    """These bytes are not the frame that was once written."""


def damaged(what: str) -> DamagedFrame:
    """Refuse a frame, saying ``what`` is wrong with it."""
    return DamagedFrame(f"{PREFIX}{what}.", hint="Send or fetch it again; nothing of it was used.")


class Frame(Struct, frozen=True):
    """A verified header, and the bytes it was read from.

    Attributes:
        buffer: bytes that hold the frame (a record holds a stamp before it).
        start: where the frame begins in ``buffer``.
        producer: who wrote it.
        epoch: names one life of the producer.
        base: number of the first event within the epoch, from 0.
        ids: 64-bit hash of each event's id.
        types: the distinct event types, in order of appearance.
        subjects: the distinct subjects, in order of appearance.
        type_refs: index into ``types`` for each event.
        subject_refs: index into ``subjects`` for each event.
        lengths: bytes of each body.
        bodies_at: where the bodies begin in ``buffer``.
        header_crc: checksum of the header, which covers that of the bodies.
    """

    buffer: bytes
    start: int
    producer: str
    epoch: int
    base: int
    ids: tuple[int, ...]
    types: tuple[str, ...]
    subjects: tuple[str, ...]
    type_refs: tuple[int, ...]
    subject_refs: tuple[int, ...]
    lengths: tuple[int, ...]
    bodies_at: int
    header_crc: int
    bodies_crc: int

    @classmethod
    def parse(cls, buffer: bytes, start: int = 0, *, bodies: bool = True) -> "Frame":
        """Read and verify the frame that fills ``buffer`` from ``start`` on.

        Args:
            buffer: the bytes.
            start: where the frame begins.
            bodies: False when ``buffer`` ends with the header.

        Raises:
            DamagedFrame: a byte is wrong, missing or too many.
        """
        try:
            frame = _parse_header(buffer, start)
        except (struct.error, UnicodeDecodeError) as error:
            raise damaged(f"its header cannot be read ({error})") from error
        if bodies:
            frame.verify_bodies()
        return frame

    @property
    def count(self) -> int:
        """Number of events, at least 1."""
        return len(self.ids)

    @property
    def raw(self) -> bytes:
        """The frame alone, as it travels."""
        return self.buffer[self.start :]

    def offsets(self) -> list[int]:
        """Return where each body begins in ``buffer``, and where the last one ends."""
        return list(accumulate(self.lengths, initial=self.bodies_at))

    def bodies(self) -> list[bytes]:
        """Return the bodies in order."""
        buffer = self.buffer
        if len(self.lengths) == 1:
            return [buffer[self.bodies_at :]]
        return [buffer[a:b] for a, b in pairwise(self.offsets())]

    def verify_bodies(self) -> None:
        """Check length and checksum of the bodies.

        Raises:
            DamagedFrame: they are not what was written.
        """
        bodies = self.buffer[self.bodies_at :]
        if len(bodies) != sum(self.lengths):
            raise damaged("its length is wrong")
        if crc32(bodies) != self.bodies_crc:
            raise damaged("the checksum of its bodies is wrong")


def read_ids(buffer: bytes, start: int, end: int) -> tuple[int, ...]:
    """Return the id hashes of the frame whose header fills ``buffer`` from ``start`` to ``end``, and nothing else.

    A broker that starts reads a million of them.

    Raises:
        DamagedFrame: the header is not what was written.
    """
    magic, crc, _, _, _, count, length, _, _, _ = FIXED.unpack_from(buffer, start)
    if magic != MAGIC or start + length != end or crc32(memoryview(buffer)[start + AFTER_CRC : end]) != crc:
        raise damaged("the checksum of its header is wrong")
    return struct.unpack_from(f"<{count}Q", buffer, start + FIXED.size)


def peek(buffer: bytes) -> tuple[int, int, int] | None:
    """Return (epoch, base, count) of what looks like a frame, unverified; None when it doesn't look like one."""
    if len(buffer) < FIXED.size or not buffer.startswith(MAGIC):
        return None
    _, _, _, epoch, base, count, _, _, _, _ = FIXED.unpack_from(buffer)
    return epoch, base, count


def _parse_header(buffer: bytes, start: int) -> Frame:
    magic, crc, bodies_crc, epoch, base, count, length, types, subjects, producer = FIXED.unpack_from(buffer, start)
    if magic != MAGIC:
        raise damaged("it does not begin like one")
    end = start + length
    if length < FIXED.size or end > len(buffer) or crc32(buffer[start + AFTER_CRC : end]) != crc:
        raise damaged("the checksum of its header is wrong")
    at = start + FIXED.size
    columns = _columns(count).unpack_from(buffer, at)
    names = _names(buffer[at + EVENT_BYTES * count : end], types + subjects, producer)
    frame = Frame(
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
        bodies_crc=bodies_crc,
    )
    if not 0 < count <= MAX_EVENTS or max(frame.type_refs) >= types or max(frame.subject_refs) >= subjects:
        raise damaged("its header contradicts itself")
    return frame


@lru_cache(maxsize=64)
def _columns(count: int) -> struct.Struct:
    return struct.Struct(f"<{count}Q{count}I{count}H{count}H")


def _names(table: bytes, count: int, producer: int) -> tuple[str, ...]:
    """Return the names in the last part of a header."""
    return (_short_names if len(table) <= SHORT_BYTES else _split_names)(table, count, producer)


def _split_names(table: bytes, count: int, producer: int) -> tuple[str, ...]:
    lengths = struct.unpack_from(f"<{count}H", table)
    ends = list(accumulate((producer, *lengths), initial=2 * count))
    if ends[-1] != len(table):
        raise damaged("its header contradicts itself")
    return tuple(str(table[a:b], "utf-8") for a, b in pairwise(ends))


_short_names = lru_cache(maxsize=4096)(_split_names)
"""Producers say much the same again and again, mostly one event a frame: what was split once is kept."""


class Draft(NamedTuple):
    """An event as a frame takes it: ``subject`` is empty for events about the whole system."""

    id_hash: int
    type: str
    subject: str
    body: bytes


def hash_id(event_id: str) -> int:
    """Return 64 bits that stand for an event id: what the broker remembers of it.

    Two different ids among a million remembered ones agree once in 10^13 events.
    """
    return int.from_bytes(blake2b(event_id.encode(), digest_size=8).digest(), "little")


class FrameBuilder:
    """Collects events and packs them. A builder makes one frame."""

    def __init__(self, producer: str) -> None:
        self._producer = producer
        self._ids: list[int] = []
        self._bodies: list[bytes] = []
        self._type_refs: list[int] = []
        self._subject_refs: list[int] = []
        self._types: dict[str, int] = {}
        self._subjects: dict[str, int] = {}
        self._size = 0

    def __len__(self) -> int:
        return len(self._ids)

    def take(self, drafts: Sequence[Draft], max_bytes: int) -> int:
        """Add as many events from the start of ``drafts`` as fit, and return their number.

        An empty frame takes one event of any size.
        """
        sizes = [len(draft.body) for draft in drafts[: MAX_EVENTS - len(self._ids)]]
        if self._size + sum(sizes) > max_bytes:
            fitting = bisect_right(list(accumulate(sizes)), max_bytes - self._size)
            sizes = sizes[: fitting if self._ids else max(1, fitting)]
        if sizes:
            self.add(drafts[: len(sizes)])
            self._size += sum(sizes)
        return len(sizes)

    def add(self, drafts: Sequence[Draft]) -> None:
        """Add events without looking at any bound."""
        ids, types, subjects, bodies = zip(*drafts, strict=True)
        self._ids += ids
        self._bodies += bodies
        self._type_refs += _refer(self._types, types)
        self._subject_refs += _refer(self._subjects, subjects)

    def build(self, epoch: int, base: int) -> bytes:
        """Pack the frame that holds the events ``base``, ``base + 1``, … of ``epoch``."""
        names = [self._producer.encode(), *(name.encode() for name in chain(self._types, self._subjects))]
        bodies = b"".join(self._bodies)
        n, lengths = len(self._ids), map(len, self._bodies)
        columns = pack(f"<{n}Q{n}I{n}H{n}H", *self._ids, *lengths, *self._type_refs, *self._subject_refs)
        tail = b"".join((columns, pack(f"<{len(names) - 1}H", *map(len, names[1:])), *names))
        fixed = FIXED.pack(
            MAGIC, 0, crc32(bodies), epoch, base, n, FIXED.size + len(tail),
            len(self._types), len(self._subjects), len(names[0]),
        )  # fmt: skip
        crc = crc32(tail, crc32(fixed[AFTER_CRC:]))
        return b"".join((MAGIC, crc.to_bytes(4, "little"), fixed[AFTER_CRC:], tail, bodies))


def _refer(table: dict[str, int], names: Sequence[str]) -> Iterable[int]:
    for name in dict.fromkeys(names):
        table.setdefault(name, len(table))
    return map(table.__getitem__, names)


def without(frame: Frame, dropped: set[int]) -> bytes:
    """Pack a frame again without the events whose indices are in ``dropped``."""
    types = (frame.types[i] for i in frame.type_refs)
    subjects = (frame.subjects[i] for i in frame.subject_refs)
    drafts = map(Draft, frame.ids, types, subjects, frame.bodies())
    builder = FrameBuilder(frame.producer)
    builder.add([draft for i, draft in enumerate(drafts) if i not in dropped])
    return builder.build(frame.epoch, frame.base)
