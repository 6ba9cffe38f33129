"""The record: a frame with the broker's stamp. It is stored and handed out in this form.

Little-endian layout: magic ``FBR1``, u32 CRC-32 of the rest of the stamp and the frame's header checksum, u64
position of the first event, u64 time of recording in microseconds since 1970 UTC, u16 length of the source's
name, the name, and the frame. The checksum covers every byte: the frame's header checksum covers that of its bodies.
"""

import struct
from dataclasses import dataclass
from zlib import crc32

from msgspec import Struct

from app.core import FlyballError
from app.events.frames.frame import PREFIX, DamagedFrame, Frame, read_ids


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Bytes that could not be used.

    Attributes:
        position: where they lie in the journal; 0 when they were refused before being recorded.
        producer: who sent them.
        reporter: who could not use them: the broker, or a subscriber's name.
        error: why, in a sentence.
        body: the event, or the whole frame when that could not be read.
        number: the letter's number in its journal; 0 before it is kept.
    """

    position: int
    producer: str
    reporter: str
    error: str
    body: bytes
    number: int = 0


MAGIC = b"FBR1"
STAMP = struct.Struct("<4sIQQH")
AFTER_CRC = 8


class DamagedRecord(FlyballError):
    """A record of the journal is not what was once written."""


def damaged(position: int | None, what: str) -> DamagedRecord:
    """Refuse a record, naming the ``position`` where it was expected to begin."""
    where = "a record" if position is None else f"the record at position {position}"
    return DamagedRecord(
        f"Damaged journal: {what} in {where}.",
        hint="Restore the journal from a copy; `flyball journal verify` lists all damage.",
    )


def _what(error: Exception) -> str:
    return str(error).removeprefix(PREFIX).partition(".")[0]


class Record(Struct, frozen=True):
    """A stamped frame.

    Attributes:
        raw: all bytes (when only the header was read: up to the bodies).
        first: position of the first event.
        recorded_us: time of recording, microseconds since 1970 UTC.
        source: who sent it, as the broker knows them.
        frame: the frame.
    """

    raw: bytes
    first: int
    recorded_us: int
    source: str
    frame: Frame

    @property
    def last(self) -> int:
        """Position of the last event."""
        return self.first + len(self.frame.ids) - 1

    @classmethod
    def open(cls, raw: bytes, *, expected: int | None = None, bodies: bool = True) -> "Record":
        """Read and verify a record.

        Args:
            raw: its bytes.
            expected: the position it should begin at, if known.
            bodies: False when ``raw`` ends with the frame's header.

        Raises:
            DamagedRecord: a byte is wrong, missing or too many, or it begins elsewhere.
        """
        try:
            magic, crc, first, recorded_us, length = STAMP.unpack_from(raw)
            start = STAMP.size + length
            frame = Frame.parse(raw, start, bodies=bodies)
            source = str(raw[STAMP.size : start], "utf-8")
        except (DamagedFrame, struct.error, UnicodeDecodeError) as error:
            raise damaged(expected, _what(error)) from error
        if magic != MAGIC or crc32(raw[AFTER_CRC:start], frame.header_crc) != crc:
            raise damaged(expected, "wrong checksum of the stamp")
        if expected is not None and first != expected:
            raise damaged(expected, f"position {first}")
        return cls(raw, first, recorded_us, source, frame)


def ids_of(head: bytes, first: int) -> tuple[int, ...]:
    """Return the id hashes of the record at position ``first``, whose header is ``head``, and nothing else.

    Raises:
        DamagedRecord: the frame's header is not what was written.
    """
    try:
        return read_ids(head, STAMP.size + STAMP.unpack_from(head)[4], len(head))
    except (DamagedFrame, struct.error) as error:
        raise damaged(first, _what(error)) from error


def seal(frame: Frame, *, first: int, recorded_us: int, source: str) -> Record:
    """Stamp a frame."""
    name = source.encode()
    rest = STAMP.pack(MAGIC, 0, first, recorded_us, len(name))[AFTER_CRC:] + name
    crc = crc32(rest, frame.header_crc).to_bytes(4, "little")
    raw = b"".join((MAGIC, crc, rest, memoryview(frame.buffer)[frame.start :]))
    return Record(raw, first, recorded_us, source, frame)
