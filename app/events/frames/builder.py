"""Writing frames."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from itertools import accumulate, chain
from struct import pack
from typing import NamedTuple
from zlib import crc32

from app.events.frames.frame import AFTER_CRC, FIXED, MAGIC, MAX_EVENTS, Frame


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
