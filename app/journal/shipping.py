"""Shipping: what is recorded is copied to another place every few seconds (ADR-042).

A shipper reads the journal beside its broker, in another process. It keeps no state: what is there tells where to go
on. New parts are written before the parts that they replace are deleted, so what has been shipped can be restored at
any moment.
"""

import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, suppress
from pathlib import Path

from flyball.app.core.named_objects import NamedObjects
from flyball.app.events.frames import DamagedRecord, Record
from flyball.app.journal.archiving import records_between
from flyball.app.journal.database import DamagedDatabase, StorageError
from flyball.app.journal.ports import JournalReader, KnownRecord
from flyball.app.journal.segments import MissingEvents, SegmentRow, damaged_segment
from flyball.app.journal.shipped_parts import (
    COMPRESSION,
    DIGITS,
    FOLDER,
    Batch,
    Kind,
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

LOST = (MissingEvents, DamagedDatabase, DamagedRecord)
"""Errors of a segment that is missing or damaged."""

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
        problem: why a segment or snapshot is not there; empty if all are.
    """

    def __init__(
        self,
        journal: Path,
        objects: NamedObjects,
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
            self._ship_records(reader, head)
            while self._merge(reader):
                pass
        self._look_due = due

    def _look(self, reader: SqliteJournalReader) -> None:
        """List the parts, ship what is new beside the records, and delete what was replaced."""
        self._run = run_name(_first_record(reader))
        self._parts = set(parse_parts(self._objects.names(f"{FOLDER}/{self._run}")))
        rows, snapshots = reader.archive.segments(), positions(reader.archive.folder)
        self._check_parts(reader, rows)
        archived = self._ship_segments(reader, rows)
        self._ship_tables(reader, rows)
        self._ship_snapshots(reader, snapshots)
        for part in [*self._replaced(rows, archived), *self._outdated(snapshots)]:
            self._delete(part)
        end = _end_of(rows)
        for part in self._of("segments", "batches"):
            if part.first > end + 1:
                break
            end = max(end, part.last)
        self.shipped = KnownRecord(end, _known_checksum(reader, end))

    def _check_parts(self, reader: SqliteJournalReader, rows: Iterable[SegmentRow]) -> None:
        """Check that the journal has the last record of each part. Raises ``OtherHistoryShipped``.

        All of them are checked, because copies of a run that ship to one place go on after the same parts.
        """
        named = {_identity(row) for row in rows}
        for part in reversed(self._of("segments", "batches")):
            if _identity(part) not in named:
                with suppress(*LOST):  # without its segment, nothing replaces the part
                    self._check_history(reader, KnownRecord(part.last, part.checksum))

    @staticmethod
    def _check_history(reader: SqliteJournalReader, known: KnownRecord) -> None:
        """Check that the journal has a record, unless it was deleted for good. Raises ``OtherHistoryShipped``."""
        if not known.checksum or known.position < reader.first:
            return
        if _checksum_at(reader, known.position) == known.checksum:
            return
        lacks = "has another record there" if known.position <= reader.head else f"ends at {reader.head}"
        raise OtherHistoryShipped(
            f"What was shipped goes on to position {known.position}, and this journal {lacks}: it is another history, "
            "as after a backup was restored, or while a copy of this run ships there.",
            hint="Nothing is shipped now, and nothing is deleted there. To ship this journal, name a new folder or "
            "prefix in deployment.journal.ship. To go on from what was shipped instead, restore it into a new run "
            "folder: flyball journal restore",
        )

    def _ship_segments(self, reader: SqliteJournalReader, rows: Iterable[SegmentRow]) -> int:
        """Ship the segments that are not there yet. Returns the position up to which all are there, without a gap."""
        there = {_identity(part) for part in self._of("segments")}
        end, self.problem = 0, ""
        for row in rows:
            if not row.deleted and _identity(row) not in there:
                try:
                    self._ship_segment(reader, row)
                except (StorageError, DamagedRecord, OSError) as error:
                    why = str(error).rstrip(".")
                    self.problem = self.problem or f"Events {row.first} to {row.last} cannot be shipped: {why}."
                    continue
            if row.first == end + 1:
                end = row.last
        return end

    def _ship_segment(self, reader: SqliteJournalReader, row: SegmentRow) -> None:
        path, checksum = reader.archive.folder / row.name, _checksum_at(reader, row.last) or 0
        data = path.read_bytes()
        part = part_of(self._run, "segments", data, row.first, row.last, checksum=checksum)
        if _identity(part) != _identity(row):
            raise damaged_segment(path)
        self._put(part, data)

    def _ship_tables(self, reader: SqliteJournalReader, rows: list[SegmentRow]) -> None:
        """Ship the tables, if they have changed."""
        archived = _end_of(rows)
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
                try:
                    content = snapshot_path(reader.archive.folder, position).read_bytes()
                except FileNotFoundError:  # a newer one has just replaced it
                    continue
                except OSError as error:
                    self.problem = self.problem or f"The snapshot at {position} cannot be shipped: {error}."
                    continue
                data = zlib.compress(content, COMPRESSION)
                self._put(part_of(self._run, "snapshots", data, position), data)

    def _replaced(self, rows: Iterable[SegmentRow], archived: int) -> Iterator[Part]:
        """Iterate over parts with records that are also in other parts, or were deleted for good."""
        wanted = {_identity(row) for row in rows if not row.deleted}
        for part in self._of("segments"):
            if part.last <= archived and _identity(part) not in wanted:
                yield part
        covered = archived
        for part in sorted(self._of("batches"), key=lambda part: (part.first, -part.last)):
            if part.last <= covered:
                yield part
            covered = max(covered, part.last)

    def _outdated(self, snapshots: list[int]) -> Iterator[Part]:
        """Iterate over snapshots that the archive has replaced, and earlier tables.

        The two latest tables are kept, because a restoration that has listed the parts may be about to read the former.
        """
        yield from self._of("tables")[:-2]
        yield from (part for part in self._of("snapshots") if snapshots and part.first not in snapshots)

    def _ship_records(self, reader: SqliteJournalReader, end: int) -> None:
        """Ship batches of the records that follow, to the one with ``end``."""
        for records in _filled(records_between(reader, self.shipped.position, end)):
            self._put_batch(records, self.shipped.checksum, level=0)
            self.shipped = KnownRecord(records[-1].last, records[-1].checksum)

    def _merge(self, reader: SqliteJournalReader) -> bool:
        """Merge the latest batches if enough of them have the same level. Returns whether they were merged.

        Batches of lost records stay as they are.
        """
        latest = self._of("batches")[-FAN:]
        if len(latest) < FAN or latest[0].level == FULL or any(part.level != latest[0].level for part in latest):
            return False
        level, after, end = latest[0].level + 1, latest[0].first - 1, max(part.last for part in latest)
        previous = _known_checksum(reader, after)
        try:
            for records in _filled(records_between(reader, after, end)):
                self._put_batch(records, previous, level)
                previous = records[-1].checksum
        except LOST as error:  # the batches may be the only copy of these events
            why = str(error).rstrip(".")
            self.problem = self.problem or f"Shipped events {after + 1} to {end} cannot be read again: {why}."
            return False
        for part in latest:
            self._delete(part)
        return True

    def _put_batch(self, records: list[Record], previous: int, level: int) -> None:
        first, last = records[0].first, records[-1]
        data = pack_batch(Batch(records, previous, self._now_us(), self._interval_ms))
        level = FULL if sum(len(record.raw) for record in records) >= BATCH_BYTES else level
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
    """Return the checksum of the record that ends at a position; None without one. Raises one of ``LOST``."""
    record = next(reader.headers_back(position), None)
    return record.checksum if record and record.last == position else None


def _known_checksum(reader: JournalReader, position: int) -> int:
    """Return the checksum of the record that ends at a position; 0 without one, or if its segment is lost."""
    with suppress(*LOST):
        return _checksum_at(reader, position) or 0
    return 0


def _filled(records: Iterable[Record]) -> Iterator[list[Record]]:
    """Iterate over the records of full batches, and the rest."""
    batch, size = list[Record](), 0
    for record in records:
        batch.append(record)
        size += len(record.raw)
        if size >= BATCH_BYTES:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _identity(segment: SegmentRow | Part) -> tuple[int, int, str]:
    """Return what a segment has in common with its part."""
    return segment.first, segment.last, segment.digest[:DIGITS]


def _end_of(rows: list[SegmentRow]) -> int:
    """Return the last archived position; 0 without segments. The archive may have grown since they were read."""
    return rows[-1].last if rows else 0
