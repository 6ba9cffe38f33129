"""Restoring a journal from what was shipped (ADR-042)."""

import sqlite3
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from shlex import quote

from flyball.app.core.named_objects import NamedObjects
from flyball.app.events.frames import DamagedRecord, Record
from flyball.app.journal.damage import write_landmarks, write_records
from flyball.app.journal.database import DamagedDatabase, Database, StorageError, remove_database, storage_errors
from flyball.app.journal.kept_files import sync
from flyball.app.journal.ports import KnownRecord
from flyball.app.journal.queries import FORMAT, save_row, split
from flyball.app.journal.segments import FOLDER as ARCHIVE
from flyball.app.journal.segments import MOST_POSITIONS, Segment, SegmentRow, describe_segment
from flyball.app.journal.shipped_parts import (
    DIGITS,
    FOLDER,
    Batch,
    DamagedPart,
    Part,
    Tables,
    parse_parts,
    read_batch,
    read_part,
    read_snapshot_file,
    read_tables,
    runs_in,
)
from flyball.app.journal.snapshots import snapshot_path
from flyball.app.journal.sqlite_journal import SqliteJournal


class NothingShipped(StorageError, code="unknown"):
    """There is nothing to restore, or it is unclear what."""


class MixedHistories(StorageError):
    """Parts contradict each other."""


@dataclass(slots=True)
class Restored:
    """The outcome of a restoration.

    Attributes:
        run: the name of the run.
        head: position of the last event, recorded at ``recorded_us``.
        archived: position of the last archived event; ``deleted``: of the last one that had been deleted for good.
        shipped_us: when the last batch was shipped; 0 if the last records are a segment's.
        interval_ms: time between two shipments then, in milliseconds.
        problems: descriptions of what is damaged or missing.
    """

    run: str
    head: int = 0
    recorded_us: int = 0
    archived: int = 0
    deleted: int = 0
    shipped_us: int = 0
    interval_ms: int = 0
    problems: list[str] = field(default_factory=list)


def restore(
    path: Path, objects: NamedObjects, run: str | None = None, *, say: Callable[[str], None] = lambda _: None
) -> Restored:
    """Make a journal of what was shipped, up to where it is sound.

    The journal appears once it is complete. Marks are derived from the records; see ``rebuild``. A segment that is
    missing or damaged is missing in the restored archive, too, and newer events can be read without it.

    Args:
        path: the journal; must not exist.
        objects: where it was shipped to.
        run: the name of the run; None if only one was shipped there.
        say: receives a line for each segment.

    Raises:
        NothingShipped: nothing was shipped, or several runs.
        MixedHistories: the parts are of several histories.
        StorageError: the journal or its WAL exists, or cannot be written.
    """
    if path.exists():
        raise StorageError(f"{path} is there already.", hint="Restore into a new run folder.")
    _refuse_wal(path)
    runs, unfinished = runs_in(objects), path.with_name(path.name + ".restore")
    if not runs or (run is not None and run not in runs):
        hint = f"There are: {', '.join(runs)}." if runs else "Is it the place that deployment.journal.ship names?"
        raise NothingShipped(
            f"No journal {run} was shipped there." if run else "No journal was shipped there.", hint=hint
        )
    if run is None and len(runs) > 1:
        hint = f"Choose one: --shipped-run {runs[-1]}"
        raise NothingShipped(f"The journals of {len(runs)} runs were shipped there: {', '.join(runs)}.", hint=hint)
    remove_database(unfinished)
    try:
        restoring = _Restoring(unfinished, objects, run or runs[0], say)
        restoring.write()
        with closing(SqliteJournal(unfinished)) as journal:  # checks it
            restoring.result.recorded_us = journal.recorded_us
        with storage_errors(unfinished), closing(sqlite3.connect(unfinished)) as db:
            db.execute("PRAGMA journal_mode = DELETE")  # leaves no file beside it
        _refuse_wal(path)  # again, because a restoration may take hours
        unfinished.rename(path)
        sync(path.parent)
    except OSError as error:
        raise StorageError(f"{path} cannot be written: {error}.", hint="Look at the folder's mode and disk.") from error
    finally:
        remove_database(unfinished)
    return restoring.result


def _refuse_wal(path: Path) -> None:
    """Refuse a WAL beside a file that is to be restored, because SQLite would write it into the file."""
    if (wal := Path(f"{path}-wal")).exists():
        raise StorageError(
            f"{wal} was left by another file.", hint=f"If it is not needed: rm {quote(str(wal))} {quote(f'{path}-shm')}"
        )


class _Restoring:
    """One restoration, into a new file beside the archive's folder."""

    def __init__(self, path: Path, objects: NamedObjects, run: str, say: Callable[[str], None]) -> None:
        self._path, self._objects, self._say = path, objects, say
        self._archive = path.with_name(ARCHIVE)
        self._parts = parse_parts(objects.names(f"{FOLDER}/{run}"))
        self.result = Restored(run)

    def write(self) -> None:
        """Write the journal and its archive."""
        self._archive.mkdir(parents=True, exist_ok=True)
        tables = self._read_tables()
        rows = self._fetch_segments(tables)
        records = self._records(self._end_of(rows))
        first = next(records, None)
        while first is None:  # the last record of a journal is always live
            if not rows or rows[-1].deleted:
                raise NothingShipped("Nothing that was shipped can be restored.", hint=" ".join(self.result.problems))
            records = self._take_back(rows.pop())
            first = next(records, None)
        with closing(Database(self._path, FORMAT)) as database, database.transaction() as db:
            self._write_archived(db, rows, tables)
            self.result.head = write_records(db, self.result.archived, chain((first,), records))
            for dead in tables.dead_letters:
                if dead.position <= self.result.head:
                    content = (dead.position, dead.producer, dead.reporter, dead.error, dead.body)
                    save_row(db, "dead_letters", dead.number, *content)
        self._fetch_snapshots()
        sync(self._archive)

    def _read_tables(self) -> Tables:
        """Return the latest tables that can be read."""
        for part in reversed([part for part in self._parts if part.kind == "tables"]):
            try:
                return read_tables(self._objects, part)
            except DamagedPart as error:
                self.result.problems.append(error.message)
        return Tables([], [], [])

    def _fetch_segments(self, tables: Tables) -> list[SegmentRow]:
        """Bring the segments into the archive; return the rows of all that continue each other."""
        known, rows, end = {row.first: row for row in tables.segments}, list[SegmentRow](), 0
        while True:
            row = known.get(end + 1)
            if row is None or not row.deleted:
                row = self._fetch_segment(end + 1, row) or row
            if row is None:
                return rows
            rows.append(row)
            end = row.last

    def _fetch_segment(self, first: int, known: SegmentRow | None) -> SegmentRow | None:
        """Bring the segment that begins at a position; return None if it is missing or damaged."""
        parts = [part for part in self._parts if part.kind == "segments" and part.first == first]
        if known:
            parts = [part for part in parts if (part.last, part.digest) == (known.last, known.digest[:DIGITS])]
        unfinished = self._archive / "segment.restore"
        for part in parts:
            try:
                row = self._read_segment(part, unfinished)
            except (DamagedPart, DamagedRecord, DamagedDatabase) as error:
                self.result.problems.append(error.message)
                unfinished.unlink(missing_ok=True)
                continue
            unfinished.rename(self._archive / row.name)
            self._say(f"Events {row.first} to {row.last} are in the archive.")
            return row
        if known:
            self.result.problems.append(f"The archived events {known.first} to {known.last} are missing.")
        return None

    def _read_segment(self, part: Part, path: Path) -> SegmentRow:
        """Write a segment's file, and verify it. Raises ``DamagedPart``, ``DamagedRecord`` or ``DamagedDatabase``."""
        path.write_bytes(read_part(self._objects, part))
        sync(path)
        row = describe_segment(path)
        if (row.first, row.last) != (part.first, part.last):
            raise DamagedPart(f"{part.name} is damaged: it has other records than its name says.")
        return row

    def _end_of(self, rows: list[SegmentRow]) -> KnownRecord:
        """Return the last record of the last segment. Its checksum is 0 if the segment is missing."""
        if not rows:
            return KnownRecord(0, 0)
        path = self._archive / rows[-1].name
        if rows[-1].deleted or not path.exists():
            return KnownRecord(rows[-1].last, 0)
        with closing(Segment(path)) as segment:
            return KnownRecord(rows[-1].last, next(segment.headers_back(MOST_POSITIONS)).checksum)

    def _records(self, end: KnownRecord) -> Iterator[Record]:
        """Iterate over the records in batches after a record."""
        batches, archived = [part for part in self._parts if part.kind == "batches"], end.position
        ends = {end.position: end.checksum}
        while following := self._following(batches, end):
            batch, records = following
            self.result.shipped_us, self.result.interval_ms = batch.shipped_us, batch.interval_ms
            ends |= {record.last: record.checksum for record in records}
            end = KnownRecord(records[-1].last, records[-1].checksum)
            yield from records
        for part in batches:
            if archived < part.last <= end.position and ends.get(part.last) != part.checksum:
                raise _mixed(part)
        if batches and (last := max(part.last for part in batches)) > end.position:
            self.result.problems.append(
                f"Events up to {last} were shipped. Those after {end.position} cannot be restored, because the next "
                "ones are damaged or missing."
            )

    def _following(self, batches: Iterable[Part], end: KnownRecord) -> tuple[Batch, list[Record]] | None:
        """Return the longest sound batch that continues a record, with its records after that."""
        continuing = [part for part in batches if part.first <= end.position + 1 <= part.last]
        for part in sorted(continuing, key=lambda part: -part.last):
            try:
                batch = read_batch(self._objects, part)
            except DamagedPart as error:
                self.result.problems.append(error.message)
                continue
            before = batch.previous
            if part.first <= end.position:
                before = next((record.checksum for record in batch.records if record.last == end.position), -1)
            if end.checksum and before and before != end.checksum:
                raise _mixed(part)
            return batch, [record for record in batch.records if record.first > end.position]
        return None

    def _take_back(self, row: SegmentRow) -> Iterator[Record]:
        """Iterate over the records of a segment that is not to be archived, and remove its file."""
        path = self._archive / row.name
        if path.exists():
            with closing(Segment(path)) as segment:
                for first, head, bodies in segment.rows(0):
                    yield Record.open(head + bodies(), expected=first)
            path.unlink()

    def _write_archived(self, db: sqlite3.Connection, rows: list[SegmentRow], tables: Tables) -> None:
        """Write the list of segments, and the landmarks in them."""
        self.result.archived = rows[-1].last if rows else 0
        self.result.deleted = max((row.last for row in rows if row.deleted), default=0)
        for row in rows:
            save_row(db, "segments", *row)
        for raw in tables.landmarks:
            record = Record.open(raw)
            if record.last <= self.result.archived:
                db.execute("INSERT INTO landmarks VALUES (?, ?, ?)", (record.first, *split(record)))
        for row in rows:
            if (path := self._archive / row.name).exists():
                with closing(Segment(path)) as segment:
                    write_landmarks(db, segment)

    def _fetch_snapshots(self) -> None:
        """Bring the snapshots into the archive. One that is damaged is left out, because it can be taken again."""
        for part in self._parts:
            if part.kind == "snapshots" and part.last <= self.result.head:
                path = snapshot_path(self._archive, part.last)
                try:
                    path.write_bytes(read_snapshot_file(self._objects, part))
                except DamagedPart as error:
                    self.result.problems.append(error.message)
                    continue
                sync(path)


def _mixed(part: Part) -> MixedHistories:
    """Return the error for a part that contradicts the others."""
    return MixedHistories(
        f"What was shipped is of several histories of the journal: {part.name} does not continue or repeat the records "
        "of the other parts.",
        hint="Two brokers have shipped to one place. Move the parts of one of them away, then restore again.",
    )
