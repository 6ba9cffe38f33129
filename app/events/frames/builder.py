"""Writing frames."""

from hashlib import blake2b
from itertools import chain
from struct import pack
from zlib import crc32

from app.events.frames.frame import AFTER_CRC, FIXED, MAGIC, MAX_EVENTS, Frame


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
        self.size = 0

    def __len__(self) -> int:
        return len(self._ids)

    def fits(self, body: bytes, max_bytes: int) -> bool:
        """Whether one more event keeps the frame within its bounds; an empty frame takes any event."""
        return not self._ids or (len(self._ids) < MAX_EVENTS and self.size + len(body) <= max_bytes)

    def add(self, id_hash: int, event_type: str, subject: str, body: bytes) -> int:
        """Add an event and return its index in the frame. ``subject`` is empty for events about the whole system."""
        self._ids.append(id_hash)
        self._type_refs.append(self._types.setdefault(event_type, len(self._types)))
        self._subject_refs.append(self._subjects.setdefault(subject, len(self._subjects)))
        self._bodies.append(body)
        self.size += len(body)
        return len(self._ids) - 1

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


def without(frame: Frame, dropped: set[int]) -> bytes:
    """Pack a frame again without the events whose indices are in ``dropped``."""
    builder = FrameBuilder(frame.producer)
    for i, body in enumerate(frame.bodies()):
        if i not in dropped:
            event_type, subject = frame.types[frame.type_refs[i]], frame.subjects[frame.subject_refs[i]]
            builder.add(frame.ids[i], event_type, subject, body)
    return builder.build(frame.epoch, frame.base)
