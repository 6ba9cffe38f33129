"""Parts of a journal in another place, from which it can be restored: their names and contents (ADR-042).

A part is an object ``journal/RUN/KIND/FIRST-LAST-CHECKSUM-LEVEL-DIGEST``. Its kinds are

- batches: records that came together, or that were merged from smaller batches, of a lower ``LEVEL``
- segments: files of the archive as they are
- snapshots: those of the archive, compressed; FIRST and LAST are their position
- tables: what does not follow from records; FIRST and LAST are numbers, of which the latest counts

CHECKSUM is that of the last record, by which another history of the journal is recognised. DIGEST is the beginning of
the SHA-256 of the content. RUN names the first record's time and checksum.
"""

import re
import struct
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from typing import Literal, NamedTuple, cast

import msgspec

from flyball.app.core.named_objects import NamedObjects
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import DamagedRecord, DeadLetter, Record
from flyball.app.journal.database import StorageError
from flyball.app.journal.queries import check_continues
from flyball.app.journal.segments import SegmentRow

FOLDER = "journal"
COMPRESSION = 6
DIGITS = 16
"""Hexadecimal digits of a digest in a name."""

Kind = Literal["batches", "segments", "snapshots", "tables"]
NAME = re.compile(
    rf"{FOLDER}/(?P<run>[^/]+)/(?P<kind>batches|segments|snapshots|tables)"
    r"/(?P<first>\d{12,})-(?P<last>\d{12,})-(?P<checksum>[0-9a-f]{8})-(?P<level>\d+)-(?P<digest>[0-9a-f]{16})"
)
MAGIC = b"FBB1"
HEAD = struct.Struct("<IQII")
"""Head of a batch: checksum of the record before it, time of shipping, interval in milliseconds, number of records."""


class DamagedPart(StorageError):
    """A shipped object is missing, or its content has changed."""


class Part(NamedTuple):
    """The name of a part, as the module describes it."""

    run: str
    kind: Kind
    first: int
    last: int
    checksum: int
    level: int
    digest: str

    @property
    def name(self) -> str:
        """The object's name."""
        positions = f"{self.first:012}-{self.last:012}"
        return f"{FOLDER}/{self.run}/{self.kind}/{positions}-{self.checksum:08x}-{self.level}-{self.digest}"


def part_of(
    run: str, kind: Kind, data: bytes, first: int, last: int | None = None, *, checksum: int = 0, level: int = 0
) -> Part:
    """Return the name of a content."""
    return Part(run, kind, first, first if last is None else last, checksum, level, _short_digest(data))


def _short_digest(data: bytes) -> str:
    """Return a content's digest, as names have it."""
    return sha256(data).hexdigest()[:DIGITS]


def parse_parts(names: Iterable[str]) -> list[Part]:
    """Return the parts among names, in order of position; other names are left out."""
    parts = []
    for name in names:
        if match := NAME.fullmatch(name):
            run, kind, first, last, checksum, level, digest = match.groups()
            numbers = int(first), int(last), int(checksum, 16), int(level)
            parts.append(Part(run, cast("Kind", kind), *numbers, digest))
    return sorted(parts, key=lambda part: (part.first, part.last))


def runs_in(objects: NamedObjects) -> list[str]:
    """Return the names of the runs that have parts, the oldest first."""
    return sorted({part.run for part in parse_parts(objects.names(FOLDER))})


def run_name(first: Record) -> str:
    """Return the name of the run that begins with a record."""
    began = EPOCH + timedelta(microseconds=first.recorded_us)
    return f"{began:%Y%m%dT%H%M%SZ}-{first.checksum:08x}"


def read_part(objects: NamedObjects, part: Part) -> bytes:
    """Return a part's content. Raises ``DamagedPart``, or what the objects raise."""
    data = objects.get(part.name)
    if data is None:
        raise DamagedPart(f"{part.name} is missing.")
    if _short_digest(data) != part.digest:
        raise DamagedPart(f"{part.name} is damaged: its content has another SHA-256.")
    return data


@dataclass(frozen=True, slots=True)
class Batch:
    """A content of kind batches.

    Attributes:
        records: without gaps.
        previous: checksum of the record before them; 0 without one, or if it is unknown.
        shipped_us: when the batch was shipped, microseconds since 1970 UTC.
        interval_ms: time between two shipments, in milliseconds.
    """

    records: Sequence[Record]
    previous: int
    shipped_us: int
    interval_ms: int


def pack_batch(batch: Batch) -> bytes:
    """Return a batch as an object."""
    raws = [record.raw for record in batch.records]
    head = HEAD.pack(batch.previous, batch.shipped_us, batch.interval_ms, len(raws))
    lengths = struct.pack(f"<{len(raws)}I", *map(len, raws))
    return MAGIC + zlib.compress(b"".join((head, lengths, *raws)), COMPRESSION)


def read_batch(objects: NamedObjects, part: Part) -> Batch:
    """Read a batch, and verify its records and their order. Raises ``DamagedPart``, or what the objects raise."""
    data = read_part(objects, part)
    if not data.startswith(MAGIC):
        raise DamagedPart(f"{part.name} is of another format.", hint="Use a later version of Flyball.")
    try:
        content = zlib.decompress(data[len(MAGIC) :])
        previous, shipped_us, interval_ms, count = HEAD.unpack_from(content)
        records, at, last = list[Record](), HEAD.size + 4 * count, part.first - 1
        for length in struct.unpack_from(f"<{count}I", content, HEAD.size):
            record = Record.open(content[at : at + length], expected=last + 1)
            at, last = at + length, check_continues(record, last, begun=False)
            records.append(record)
    except (zlib.error, struct.error, DamagedRecord) as error:
        raise DamagedPart(f"{part.name} is damaged: {error}") from error
    if not records or (last, records[-1].checksum) != (part.last, part.checksum):
        raise DamagedPart(f"{part.name} is damaged: it has other records than its name says.")
    return Batch(records, previous, shipped_us, interval_ms)


class Tables(msgspec.Struct, frozen=True):
    """A content of kind tables: what follows neither from batches nor from segments that are there.

    Attributes:
        segments: all segments, also those that were deleted for good.
        landmarks: archived records with landmarks, because those of deleted segments are nowhere else.
        dead_letters: all dead letters.
    """

    segments: list[SegmentRow]
    landmarks: list[bytes]
    dead_letters: list[DeadLetter]

    def pack(self) -> bytes:
        """Return the tables as an object."""
        return zlib.compress(msgspec.msgpack.encode(self), COMPRESSION)


def read_tables(objects: NamedObjects, part: Part) -> Tables:
    """Read tables. Raises ``DamagedPart``, or what the objects raise."""
    try:
        return msgspec.msgpack.decode(zlib.decompress(read_part(objects, part)), type=Tables)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise DamagedPart(f"{part.name} is damaged: {error}.") from error


def read_snapshot_file(objects: NamedObjects, part: Part) -> bytes:
    """Read the file of a snapshot. Raises ``DamagedPart``, or what the objects raise."""
    try:
        return zlib.decompress(read_part(objects, part))
    except zlib.error as error:
        raise DamagedPart(f"{part.name} is damaged: {error}.") from error
