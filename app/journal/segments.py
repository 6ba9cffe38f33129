"""Segments: closed, immutable files of archived records (ADR-006).

A segment is a SQLite file. A row of its table ``blocks`` holds up to 256 records, headers and bodies compressed apart,
so that a selection by type decompresses headers only. The file's name has its positions and its SHA-256. The journal's
table ``segments`` names the files that belong to it, so a missing, changed or foreign file is recognised.
"""

import shutil
import sqlite3
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache, partial
from hashlib import file_digest
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import NamedTuple

from flyball.app.core import FlyballError
from flyball.app.core.sizes import size_text
from flyball.app.events.frames import Record, damaged
from flyball.app.journal.database import (
    PAGE_BYTES,
    DamagedDatabase,
    Format,
    StorageError,
    StorageFull,
    open_read_only,
    storage_errors,
)
from flyball.app.journal.kept_files import sync
from flyball.app.journal.queries import check_continues, open_header, open_record, rows_of, split, verified_rows

BLOCK_RECORDS = 256
COMPRESSION = 6
"""Level of zlib. Levels above save 3% for twice the time; LZMA saves 25% and reads five times slower."""

BLOCKS = "CREATE TABLE blocks (first INTEGER PRIMARY KEY, heads BLOB NOT NULL, bodies BLOB NOT NULL)"
FORMAT = Format(0x464C4731, (BLOCKS,))  # "FLG1"
FOLDER = "archive"
PARTIAL = "segment.partial"
COUNT = struct.Struct("<I")
"""Number of a block's records."""

ENTRY = struct.Struct("<III")
"""Entry of a block's index: number of events, lengths of header and bodies."""

MOST_POSITIONS = 1 << 62
ROOM_BYTES = 64 << 20
"""Space that archiving leaves free, because a full disk stops the broker."""


class MissingEvents(StorageError):
    """The events are archived, and their segment is missing or was deleted."""


class SegmentRow(NamedTuple):
    """A segment of the journal, with the events ``first`` to ``last``.

    ``recorded_us`` is the time of its last record, in microseconds since 1970 UTC. ``digest`` is the SHA-256 of its
    file. ``deleted`` is 1 if the segment was deleted.
    """

    first: int
    last: int
    recorded_us: int
    digest: str
    deleted: int = 0

    @property
    def name(self) -> str:
        """The name of its file."""
        return f"{self.first:012}-{self.last:012}-{self.digest[:16]}.segment"


class Segment:
    """Reads one segment, up to the position ``last``. Raises what ``open_read_only`` raises."""

    def __init__(self, path: Path, last: int = MOST_POSITIONS) -> None:
        self.path, self.last = path, last
        self._connection = open_read_only(path, FORMAT, immutable=True)
        self._heads = lru_cache(8)(self._load_heads)
        self._bodies = lru_cache(8)(self._load_bodies)

    def rows(self, after: int) -> Iterator[tuple[int, bytes, Callable[[], bytes]]]:
        """Iterate over (first position, header, loader of bodies) after a position."""
        for block in self._blocks("first >= coalesce((SELECT max(first) FROM blocks WHERE first <= ?), 0)", after + 1):
            heads = self._heads(block)
            for index, (first, head, _) in enumerate(heads):
                following = heads[index + 1][0] if index + 1 < len(heads) else None
                if following is None or following > after + 1:
                    yield first, head, partial(self._body, block, index)

    def headers_back(self, upto: int) -> Iterator[Record]:
        """Iterate backwards over the records up to a position, without bodies."""
        for block in self._blocks("first <= ?", upto, order="DESC"):
            for first, head, _ in reversed(self._heads(block)):
                if first <= upto:
                    yield open_header(first, head)

    def _body(self, block: int, index: int) -> bytes:
        return self._bodies(block)[index]

    def close(self) -> None:
        """Close. Idempotent."""
        self._connection.close()

    def _blocks(self, where: str, position: int, order: str = "ASC") -> Iterator[int]:
        query = f"SELECT first FROM blocks WHERE {where} ORDER BY first {order}"  # noqa: S608 - constants
        with storage_errors(self.path), closing(self._connection.execute(query, (position,))) as rows:
            yield from (first for (first,) in rows)

    def _load(self, column: str, block: int) -> bytes:
        query = f"SELECT {column} FROM blocks WHERE first = ?"  # noqa: S608 - constants
        with storage_errors(self.path):
            (packed,) = self._connection.execute(query, (block,)).fetchone()
        try:
            return zlib.decompress(packed)
        except (zlib.error, TypeError) as error:
            raise damaged(block, f"its block in {self.path} can't be read ({error})") from error

    def _load_heads(self, block: int) -> list[tuple[int, bytes, int]]:
        """Return each record's first position, header and length of bodies."""
        raw = self._load("heads", block)
        try:
            (count,) = COUNT.unpack_from(raw)
            at, first, records = COUNT.size + count * ENTRY.size, block, list[tuple[int, bytes, int]]()
            for events, head, bodies in ENTRY.iter_unpack(raw[COUNT.size : at]):
                records.append((first, raw[at : at + head], bodies))
                at, first = at + head, first + events
        except struct.error as error:
            raise damaged(block, f"its block in {self.path} can't be read ({error})") from error
        return records

    def _load_bodies(self, block: int) -> list[bytes]:
        raw = self._load("bodies", block)
        sizes = (length for _, _, length in self._heads(block))
        return [raw[a:b] for a, b in pairwise(accumulate(sizes, initial=0))]


@contextmanager
def new_immutable_database(path: Path, form: Format) -> Iterator[sqlite3.Connection]:
    """Create an immutable database that the caller fills.

    The file is durable on leaving, and is removed on an error. Raises ``StorageFull`` if the disk is full, and
    ``StorageError`` if the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        with storage_errors(path), closing(sqlite3.connect(path, isolation_level=None)) as db:
            for pragma in (f"page_size = {PAGE_BYTES}", "journal_mode = OFF", "synchronous = OFF"):
                db.execute(f"PRAGMA {pragma}").fetchall()
            marks = (f"PRAGMA application_id = {form.kind}", f"PRAGMA user_version = {form.version}")
            for statement in ("BEGIN", *marks, *form.schema):
                db.execute(statement)
            yield db
            db.execute("COMMIT")
        sync(path)
    except OSError as error:
        path.unlink(missing_ok=True)
        raise StorageError(
            f"{path.parent} cannot be written: {error}.", hint="Look at the folder's owner, mode and disk."
        ) from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def write_segment(folder: Path, records: Iterable[Record], raw_bytes: int) -> SegmentRow:
    """Write records into a new segment, durably, and read it back.

    The file gets its name once it is complete; a crash before leaves a partial file, which the next call replaces.

    Args:
        folder: the archive's; created when missing.
        records: without gaps.
        raw_bytes: at least the size of the records. The disk needs this space and ``ROOM_BYTES`` more.

    Raises:
        StorageFull: there is not enough space.
        StorageError: the folder cannot be written.
    """
    unfinished = folder / PARTIAL
    folder.mkdir(parents=True, exist_ok=True)
    if shutil.disk_usage(folder).free < raw_bytes + ROOM_BYTES:
        raise StorageFull(
            f"No room in {folder}: archiving needs {size_text(raw_bytes + ROOM_BYTES)} of free space.",
            hint="Free some disk space, then archive again.",
        )
    with new_immutable_database(unfinished, FORMAT) as db:
        rest = iter(records)
        while block := list(islice(rest, BLOCK_RECORDS)):
            db.execute("INSERT INTO blocks VALUES (?, ?, ?)", _pack(block))
    row = describe_segment(unfinished)
    unfinished.rename(folder / row.name)
    sync(folder)
    return row


def _pack(block: Sequence[Record]) -> tuple[int, bytes, bytes]:
    heads, bodies = zip(*map(split, block), strict=True)
    entries = (
        ENTRY.pack(record.frame.count, len(head), len(body))
        for record, head, body in zip(block, heads, bodies, strict=True)
    )
    table = b"".join((COUNT.pack(len(block)), *entries))
    return block[0].first, *(zlib.compress(b"".join(parts), COMPRESSION) for parts in ((table, *heads), bodies))  # type: ignore[return-value]


def describe_segment(path: Path) -> SegmentRow:
    """Read a whole segment and return its description. Raises ``DamagedRecord`` or ``DamagedDatabase``."""
    first = last = recorded_us = 0
    with closing(Segment(path)) as segment:
        for start, head, bodies in segment.rows(0):
            record = open_record(start, head, bodies())
            first = first or record.first
            last, recorded_us = check_continues(record, last or start - 1, begun=False), record.recorded_us
    return SegmentRow(first, last, recorded_us, digest_of(path))


def digest_of(path: Path) -> str:
    """Return a file's SHA-256 in hexadecimal."""
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


class Archive:
    """The segments of a journal, in the folder ``archive`` beside it.

    Args:
        journal: the journal's path.
        connection: to the journal, which names its segments.
    """

    def __init__(self, journal: Path, connection: sqlite3.Connection) -> None:
        self.folder = journal.with_name(FOLDER)
        self._journal, self._connection = journal, connection
        self._open: dict[str, Segment] = {}

    def segments(self) -> list[SegmentRow]:
        """Return all segments of the journal, in order. Raises ``DamagedRow``."""
        with storage_errors(self._journal):
            return [SegmentRow(*row) for row in rows_of(self._connection, "segments", "TRUE ORDER BY first")]

    @property
    def end(self) -> int:
        """Position of the last archived event; 0 without an archive."""
        with storage_errors(self._journal):
            return int(self._connection.execute("SELECT coalesce(max(last), 0) FROM segments").fetchone()[0])

    @property
    def first(self) -> int:
        """Position of the oldest event that is kept."""
        with storage_errors(self._journal):
            query = "SELECT coalesce(max(last), 0) FROM segments WHERE deleted"
            return int(self._connection.execute(query).fetchone()[0]) + 1

    def segment_at(self, position: int) -> Segment | None:
        """Return the open segment that holds a position.

        Returns None if the position is not archived.

        Raises:
            MissingEvents: the segment is missing or was deleted.
        """
        with storage_errors(self._journal):
            where = "first = (SELECT max(first) FROM segments WHERE first <= ?) AND last >= ?"
            rows = list(rows_of(self._connection, "segments", where, position, position))
        return self.open_segment(SegmentRow(*rows[0])) if rows else None

    def open_segment(self, row: SegmentRow) -> Segment:
        """Open a segment; see ``segment_at``."""
        path = self.folder / row.name
        if row.deleted:
            raise MissingEvents(
                f"The events {row.first} to {row.last} were deleted for good; the oldest that is kept is {self.first}.",
                hint="Only newer events can be read.",
            )
        if row.name not in self._open:
            if not path.is_file():
                raise MissingEvents(
                    f"The events {row.first} to {row.last} are archived in {path}, which is missing.",
                    hint="Put the file back from a copy. Newer events can be read without it.",
                )
            self._open[row.name] = Segment(path, row.last)
            while len(self._open) > 4:
                self._open.pop(next(iter(self._open))).close()
        return self._open[row.name]

    def headers_back(self, upto: int) -> Iterator[Record]:
        """Iterate backwards over the archived records up to a position."""
        while upto >= self.first and (segment := self.segment_at(upto)):
            for record in segment.headers_back(upto):
                yield record
                upto = record.first - 1

    def damage(self) -> Iterator[FlyballError]:
        """Iterate over missing and changed segments. Each file is read as a whole. Damaged rows are left out."""
        yield from self.missing()
        for row in self._undeleted():
            path = self.folder / row.name
            if path.is_file() and digest_of(path) != row.digest:
                yield damaged_segment(path)

    def missing(self) -> Iterator[FlyballError]:
        """Iterate over missing segments. Damaged rows are left out."""
        for row in self._undeleted():
            path = self.folder / row.name
            if not path.is_file():
                yield MissingEvents(f"The events {row.first} to {row.last} are archived in {path}, which is missing.")

    def _undeleted(self) -> list[SegmentRow]:
        """Return the segments that were not deleted."""
        checked = verified_rows(self._connection, "segments", "TRUE ORDER BY first")
        rows = [SegmentRow(*row) for row in checked if isinstance(row, tuple)]
        return [row for row in rows if not row.deleted]

    def next_file(self, after: int) -> tuple[SegmentRow, Record] | None:
        """Return the next complete file, with its last header, or None. Raises ``DamagedDatabase`` if it changed."""
        first = after + 1
        for path in sorted(self.folder.glob(f"{first:012}-*.segment")):
            with closing(Segment(path)) as segment:
                last = next(segment.headers_back(MOST_POSITIONS))
            row = SegmentRow(first, last.last, last.recorded_us, digest_of(path))
            if row.name != path.name:
                raise damaged_segment(path)
            return row, last
        return None

    def copy(self, segments: Iterable[SegmentRow], folder: Path) -> None:
        """Copy the segments that a folder lacks into it."""
        for row in segments:
            path, target = self.folder / row.name, folder / row.name
            if row.deleted or target.exists():
                continue
            folder.mkdir(parents=True, exist_ok=True)
            self.open_segment(row)  # because its error for a missing file says what to do
            unfinished = target.with_name(target.name + ".partial")
            shutil.copyfile(path, unfinished)
            if digest_of(unfinished) != row.digest:
                raise damaged_segment(path)
            sync(unfinished)
            unfinished.rename(target)

    def close(self) -> None:
        """Close all segments. Idempotent."""
        for segment in self._open.values():
            segment.close()
        self._open.clear()


def foreign_segment(path: Path, hint: str = "Move the file away.") -> DamagedDatabase:
    """Return the error for a segment of another journal or history."""
    return DamagedDatabase(f"{path} is not of this journal: its last record is not the journal's.", hint=hint)


def damaged_segment(path: Path) -> DamagedDatabase:
    """Return the error for a segment with another content than was archived."""
    return DamagedDatabase(
        f"{path} is damaged: its SHA-256 is not the one in its name.", hint="Put the file back from a copy."
    )
