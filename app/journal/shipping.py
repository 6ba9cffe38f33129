"""Shipping: what is recorded is copied to another place every few seconds (ADR-042).

A shipper reads the journal beside its broker, in another process. It keeps no state: what is there tells where to go
on. New parts are written before the parts that they replace are deleted, so what has been shipped can be restored at
any moment.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from flyball.app.events.frames import DamagedRecord, Record
from flyball.app.journal.database import StorageError
from flyball.app.journal.ports import JournalReader, KnownRecord
from flyball.app.journal.segments import SegmentRow, damaged_segment, digest_of
from flyball.app.journal.shipped_parts import (
    COMPRESSION,
    DIGITS,
    FOLDER,
    Batch,
    Kind,
    Objects,
    Part,
    Tables,
    pack_batch,
    parse_parts,
    part_of,
    run_name,
)
from flyball.app.journal.snapshots import positions, snapshot_path
from flyball.app.journal.sqlite_journal import SqliteJournalReader

BATCH_BYTES = 4 << 20
"""Size of records at which a batch is full."""

FULL = 9
"""Level of full batches, which are never merged."""

FAN = 32
"""Consecutive batches of one level that are merged. Otherwise a day would leave 43,200 batches of two seconds each."""

LOOK_SECONDS = 60.0
"""Time between two looks at the parts, the archive and the dead letters."""


class OtherHistoryShipped(StorageError):
    """The shipped parts belong to another history of the journal."""


class Shipper:
    """Ships one journal to one place.

    Args:
        journal: the journal's file.
        objects: the place.
        interval_seconds: time between two shipments, which is recorded with them.
        now_us: returns the time of day, microseconds since 1970 UTC.
        monotonic: returns seconds that never go back.

    Attributes:
        shipped: the last record up to which everything is there. Its checksum is 0 where nothing is known of it.
        problem: why a segment is not there; empty if all are.
    """

    def __init__(
        self,
        journal: Path,
        objects: Objects,
        *,
        interval_seconds: float,
        now_us: Callable[[], int],
        monotonic: Callable[[], float],
    ) -> None:
        self._journal, self._objects = journal, objects
        self._interval_ms = round(interval_seconds * 1000)
        self._now_us, self._monotonic = now_us, monotonic
        self._run, self._parts = "", set[Part]()
        self._look_due: float | None = None
        self.shipped = KnownRecord(0, 0)
        self.problem = ""

    def ship(self) -> None:
        """Ship what is new. After an error, the next call begins with a look at what is there.

        Raises:
            OtherHistoryShipped: what is there belongs to another history.
            FlyballError: the journal cannot be read, or the place cannot be used.
        """
        due, self._look_due = self._look_due, None
        with closing(SqliteJournalReader(self._journal)) as reader:
            if not (head := reader.head):
                return
            if due is None or self._monotonic() >= due:
                self._look(reader)
                due = self._monotonic() + LOOK_SECONDS
            else:
                self._check_history(reader, self.shipped)
            while self.shipped.position < head:
                self._ship_records(reader)
            while self._merge(reader):
                pass
        self._look_due = due

    def _look(self, reader: SqliteJournalReader) -> None:
        """List the parts, ship what is new beside the records, and delete what was replaced."""
        self._run = run_name(_first_record(reader))
        self._parts = set(parse_parts(self._objects.names(f"{FOLDER}/{self._run}")))
        if ends := [KnownRecord(part.last, part.checksum) for part in self._of("segments", "batches")]:
            self._check_history(reader, max(ends))
        rows, snapshots = reader.archive.segments(), positions(reader.archive.folder)
        archived = self._ship_segments(reader, rows)
        self._ship_tables(reader, rows)
        self._ship_snapshots(reader, snapshots)
        for part in [*self._replaced(rows, archived), *self._outdated(snapshots)]:
            self._delete(part)
        end = reader.archive.end
        for part in self._of("segments", "batches"):
            if part.first > end + 1:
                break
            end = max(end, part.last)
        self.shipped = KnownRecord(end, _checksum_at(reader, end) or 0)

    @staticmethod
    def _check_history(reader: SqliteJournalReader, known: KnownRecord) -> None:
        """Check that the journal has a record. Raises ``OtherHistoryShipped``."""
        if not known.checksum or _checksum_at(reader, known.position) == known.checksum:
            return
        lacks = "has another record there" if known.position <= reader.head else f"ends at {reader.head}"
        raise OtherHistoryShipped(
            f"What was shipped goes on to position {known.position}, and this journal {lacks}: it is another history, "
            "as after a backup was restored.",
            hint="Nothing is shipped now, and nothing is deleted there. To ship this journal, name a new folder or "
            "prefix in deployment.journal.ship. To go on from what was shipped instead, restore it into a new run "
            "folder: flyball journal restore",
        )

    def _ship_segments(self, reader: SqliteJournalReader, rows: Iterable[SegmentRow]) -> int:
        """Ship the segments that are not there yet. Returns the position up to which all are there, without a gap."""
        there = {(part.first, part.last, part.digest) for part in self._of("segments")}
        end, self.problem = 0, ""
        for row in rows:
            if not row.deleted and (row.first, row.last, row.digest[:DIGITS]) not in there:
                try:
                    self._ship_segment(reader, row)
                except (StorageError, DamagedRecord, OSError) as error:
                    self.problem = self.problem or f"Events {row.first} to {row.last} cannot be shipped: {error}"
                    continue
            if row.first == end + 1:
                end = row.last
        return end

    def _ship_segment(self, reader: SqliteJournalReader, row: SegmentRow) -> None:
        path, checksum = reader.archive.folder / row.name, _checksum_at(reader, row.last) or 0
        if digest_of(path) != row.digest:
            raise damaged_segment(path)
        data = path.read_bytes()
        self._put(part_of(self._run, "segments", data, row.first, row.last, checksum=checksum), data)

    def _ship_tables(self, reader: SqliteJournalReader, rows: list[SegmentRow]) -> None:
        """Ship the tables, if they have changed."""
        archived = reader.archive.end
        landmarks = [record.raw for record in reader.landmarks() if record.last <= archived]
        data = Tables(rows, landmarks, reader.dead_letters()).pack()
        latest = max(self._of("tables"), default=None)
        part = part_of(self._run, "tables", data, latest.first + 1 if latest else 1)
        if latest is None or latest.digest != part.digest:
            self._put(part, data)

    def _ship_snapshots(self, reader: SqliteJournalReader, snapshots: Iterable[int]) -> None:
        there = {part.first for part in self._of("snapshots")}
        for position in snapshots:
            if position <= reader.head and position not in there:
                with suppress(FileNotFoundError):  # a newer one has just replaced it
                    data = zlib.compress(snapshot_path(reader.archive.folder, position).read_bytes(), COMPRESSION)
                    self._put(part_of(self._run, "snapshots", data, position), data)

    def _replaced(self, rows: Iterable[SegmentRow], archived: int) -> Iterator[Part]:
        """Iterate over parts with records that are also in other parts, or were deleted for good."""
        wanted = {(row.first, row.last, row.digest[:DIGITS]) for row in rows if not row.deleted}
        for part in self._of("segments"):
            if part.last <= archived and (part.first, part.last, part.digest) not in wanted:
                yield part
        covered = archived
        for part in sorted(self._of("batches"), key=lambda part: (part.first, -part.last)):
            if part.last <= covered:
                yield part
            covered = max(covered, part.last)

    def _outdated(self, snapshots: list[int]) -> Iterator[Part]:
        """Iterate over earlier tables, and snapshots that the archive has replaced."""
        *earlier, _ = self._of("tables")
        yield from earlier
        yield from (part for part in self._of("snapshots") if snapshots and part.first not in snapshots)

    def _ship_records(self, reader: SqliteJournalReader) -> None:
        """Ship one batch of the records that follow."""
        records, size = list[Record](), 0
        for record in _records_after(reader, self.shipped.position):
            records.append(record)
            size += len(record.raw)
            if size >= BATCH_BYTES:
                break
        self._put_batch(records, self.shipped.checksum, 0, size)
        self.shipped = KnownRecord(records[-1].last, records[-1].checksum)

    def _merge(self, reader: SqliteJournalReader) -> bool:
        """Merge the latest batches if enough of them have the same level. Returns whether they were merged."""
        latest = self._of("batches")[-FAN:]
        if len(latest) < FAN or latest[0].level == FULL or any(part.level != latest[0].level for part in latest):
            return False
        level, after, end = latest[0].level, latest[0].first - 1, latest[-1].last
        previous, records, size = _checksum_at(reader, after) or 0, list[Record](), 0
        for record in _records_after(reader, after):
            records.append(record)
            size += len(record.raw)
            if size >= BATCH_BYTES or record.last == end:
                self._put_batch(records, previous, level + 1, size)
                previous, records, size = record.checksum, [], 0
            if record.last == end:
                break
        for part in latest:
            self._delete(part)
        return True

    def _put_batch(self, records: list[Record], previous: int, level: int, size: int) -> None:
        first, last = records[0].first, records[-1]
        data = pack_batch(Batch(records, previous, self._now_us(), self._interval_ms))
        level = FULL if size >= BATCH_BYTES else level
        self._put(part_of(self._run, "batches", data, first, last.last, checksum=last.checksum, level=level), data)

    def _put(self, part: Part, data: bytes) -> None:
        self._objects.put(part.name, data)
        self._parts.add(part)

    def _delete(self, part: Part) -> None:
        self._objects.delete(part.name)
        self._parts.discard(part)

    def _of(self, *kinds: Kind) -> list[Part]:
        """Return the parts of some kinds, in order of position."""
        return sorted((part for part in self._parts if part.kind in kinds), key=lambda part: (part.first, part.last))


def _first_record(reader: JournalReader) -> Record:
    """Return a journal's first record, which is kept as a landmark when the events around it are deleted."""
    for record in reader.landmarks():
        if record.first == 1:
            return record
    return reader.read(0, limit=1).records[0]


def _checksum_at(reader: JournalReader, position: int) -> int | None:
    """Return the checksum of the record that ends at a position; None without one."""
    record = next(reader.headers_back(position), None)
    return record.checksum if record and record.last == position else None


def _records_after(reader: JournalReader, position: int) -> Iterator[Record]:
    while (chunk := reader.read(position, max_bytes=BATCH_BYTES)).position > position:
        yield from chunk.records
        position = chunk.position
