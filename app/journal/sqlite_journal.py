"""The journal in a SQLite file. A row holds a frame, a transaction a group of frames."""

import sqlite3
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from functools import partial
from itertools import islice
from pathlib import Path
from stat import S_IMODE
from typing import Any

from flyball.app.core import FlyballError
from flyball.app.events.frames import DamagedRecord, DeadLetter, Record, damaged, ids_of
from flyball.app.journal import queries
from flyball.app.journal.damage import damage_after, damaged_landmark
from flyball.app.journal.database import (
    CHECKPOINT_PAGES,
    PAGE_BYTES,
    DamagedDatabase,
    Database,
    StorageError,
    open_read_only,
    storage_errors,
    structural_damage,
)
from flyball.app.journal.kept_files import set_aside
from flyball.app.journal.ports import Chunk, JournalSize, Mark, Snapshot
from flyball.app.journal.segments import FOLDER, Archive, SegmentRow, foreign_segment
from flyball.app.journal.snapshots import positions, read_snapshot

RESERVE_BYTES = 4 << 20
CHECKED_EVENTS = 200_000
"""Number of latest events whose records are checked on opening; takes about a second."""

MOST_EVENTS = 1 << 62
TRIMMED_RECORDS = 200
"""Archived records that are deleted at once, in about a millisecond."""

MOST_SEGMENTS = 1 << 30
PAGES_PER_COMMIT = 3
"""Estimated pages of each commit: a leaf of frames, a leaf of marks, sometimes an inner page."""


Row = tuple[int, Any, Callable[[], Any]]
"""A record's position, its header, and a function that returns its bodies; not verified yet."""


class _JournalTables:
    """Reading methods shared by the writer and the read-only reader; see ``JournalReader``."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self._path, self._connection = path, connection
        self.archive = Archive(path, connection)

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """See ``JournalReader.read``."""
        names = None if types is None else frozenset(types)
        records, size, position, checksum = list[Record](), 0, after, 0
        with storage_errors(self._path), closing(self._rows(after, limit, bodies=names is None)) as rows:
            for first, head, bodies in rows:
                record = (
                    queries.open_record(first, head, bodies()) if names is None else queries.open_header(first, head)
                )
                position, checksum = queries.check_continues(record, position, begun=position == after), record.checksum
                if names is not None:
                    if names.isdisjoint(record.frame.types):
                        continue
                    record = queries.open_record(first, head, bodies())
                records.append(record)
                size += len(record.raw)
                if size > max_bytes:
                    break
            if position == after:
                self._check_end(after)
        return Chunk(tuple(records), position, checksum)

    def headers(self, after: int, upto: int) -> Iterator[Record]:
        """Iterate over headers from after a position to the record with ``upto``."""
        with storage_errors(self._path), closing(self._rows(after, -1, bodies=False)) as rows:
            for first, head, _ in rows:
                record = queries.open_header(first, head)
                if record.first > upto:
                    return
                after = queries.check_continues(record, after, begun=True)
                yield record

    def headers_back(self, upto: int) -> Iterator[Record]:
        """See ``JournalReader.headers_back``."""
        query, following = "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC", None
        with storage_errors(self._path), closing(self._connection.execute(query, (upto,))) as rows:
            for row in rows:
                record = queries.open_header(*row)
                if following is not None and record.last != following - 1:
                    raise damaged(record.last + 1, f"position {following} of the next record")
                following = record.first
                yield record
        yield from self.archive.headers_back(min(upto, self.head) if following is None else following - 1)

    @property
    def head(self) -> int:
        """Position of the last event; 0 in an empty journal."""
        with storage_errors(self._path):
            last = queries.last_record(self._connection)
        return last.last if last else 0

    @property
    def first(self) -> int:
        """See ``JournalReader.first``."""
        return self.archive.first

    def landmark(self, event_type: str) -> int:
        """See ``JournalReader.landmark``."""
        return queries.landmark_in(self.landmarks(), event_type)

    def landmarks(self) -> Iterator[Record]:
        """See ``JournalReader.landmarks``."""
        query = "SELECT first, head, bodies FROM landmarks ORDER BY first DESC"
        with storage_errors(self._path), closing(self._connection.execute(query)) as rows:
            for row in rows:
                try:
                    yield queries.open_record(*row)
                except DamagedRecord as error:
                    raise damaged_landmark(row[0]) from error

    def snapshot(self, upto: int) -> Snapshot | None:
        """See ``JournalReader.snapshot``."""
        return read_snapshot(self.archive.folder, min(upto, self.head), self.head_at)

    def head_at(self, position: int) -> bytes | None:
        """Return the header of the record that ends at a position. Returns None if no record ends there."""
        record = next(self.headers_back(position), None)
        return record.raw if record and record.last == position else None

    @property
    def archived(self) -> int:
        """See ``StoredJournal.archived``."""
        return self.archive.end

    def snapshot_positions(self) -> list[int]:
        """See ``StoredReader.snapshot_positions``."""
        return positions(self.archive.folder)

    def dead_letters(self) -> list[DeadLetter]:
        """See ``JournalReader.dead_letters``; the newest 10,000 are kept."""
        with storage_errors(self._path):
            rows = queries.rows_of(self._connection, "dead_letters", "TRUE ORDER BY number")
            return [
                DeadLetter(position, producer, reporter, error, body, number)
                for number, position, producer, reporter, error, body in rows
            ]

    def _rows(self, after: int, limit: int, *, bodies: bool) -> Generator[Row]:
        """Iterate over the records that hold events after a position.

        At most ``limit`` records are read; -1 reads all. Live records come first, because the writer deletes them only
        after it has named their segment.
        """
        while limit:
            start = after + 1
            query = "SELECT first, head FROM frames WHERE first <= ? ORDER BY first DESC LIMIT 1"
            before = self._connection.execute(query, (start,)).fetchone()
            if before is not None and queries.open_header(*before).last > after:
                start = before[0]
            columns = "first, head, bodies" if bodies else "first, head"
            query = f"SELECT {columns} FROM frames WHERE first >= ? ORDER BY first LIMIT ?"  # noqa: S608 - constants
            with closing(self._connection.execute(query, (start, limit))) as rows:
                row = rows.fetchone()
                archived = self.archive.segment_at(start) if row is None or row[0] > start else None
                while row is not None and archived is None:
                    yield row[0], row[1], partial(row.__getitem__, 2) if bodies else partial(self._bodies, row[0])
                    row = rows.fetchone()
            if archived is None:
                return
            number = 0
            for number, archived_row in enumerate(islice(archived.rows(after), limit if limit >= 0 else None), 1):  # noqa: B007
                yield archived_row
            after, limit = archived.last, max(0, limit - number) if limit >= 0 else limit

    def _bodies(self, first: int) -> bytes | None:
        row = self._connection.execute("SELECT bodies FROM frames WHERE first = ?", (first,)).fetchone()
        if row is None and (segment := self.archive.segment_at(first)):  # the writer has deleted it since
            _, _, bodies = next(segment.rows(first - 1))
            return bodies()
        return row[0] if row else None

    def _check_end(self, after: int) -> None:
        """Refuse a damaged index that hides later records. Otherwise readers would miss these records."""
        query = "SELECT max(first), EXISTS (SELECT 1 FROM frames WHERE first > ?) FROM frames"
        last, has_later = self._connection.execute(query, (after,)).fetchone()
        if last is not None and last > after and not has_later:
            raise damaged(after + 1, f"events up to position {last} missing")


class SqliteJournal(_JournalTables):
    """The one writer of a journal file.

    Opening creates a missing file and migrates an older format. It checks the structure of the file, the latest
    records, and all rows of the other tables (ADR-005). Opening raises ``DamagedRecord``, or what ``Database`` raises.

    Once ``append`` returns, its records survive kill -9 and a loss of power. Every row has a checksum, and a damaged
    row is refused.
    """

    def __init__(self, path: Path) -> None:
        self._db = Database(path, queries.FORMAT, reserve_bytes=RESERVE_BYTES, rescued=True)
        super().__init__(path, self._db.connection)
        with ExitStack() as on_error, storage_errors(path):
            on_error.callback(self._db.close)
            last = queries.last_record(self._connection)
            self._head, self.recorded_us = (last.last, last.recorded_us) if last else (0, 0)
            for damage in damage_after(self._connection, max(0, self.head - CHECKED_EVENTS)):
                raise damage
            on_error.pop_all()
        self._dead_letters = max((dead.number for dead in self.dead_letters()), default=0)
        self._wal_pages = CHECKPOINT_PAGES
        self._archived = self.archive.end
        self._trimmed = False

    @property
    def head(self) -> int:
        """Position of the last event; 0 in an empty journal."""
        return self._head

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """See ``Journal.append``."""
        queries.check_order(self.head, records)
        with self._db.transaction() as db:
            for record in records:
                row = (record.first, *queries.split(record))
                db.execute("INSERT INTO frames VALUES (?, ?, ?)", row)
                if queries.has_landmark(record):
                    db.execute("INSERT INTO landmarks VALUES (?, ?, ?)", row)
            used = records[-1].last if records else self.head
            for (producer, epoch), sequence in (marks or {}).items():
                queries.save_row(db, "marks", producer, queries.signed_epoch(epoch), sequence, used)
            number = self._dead_letters
            for dead in dead_letters:
                query = "SELECT 1 FROM dead_letters WHERE position = ? AND reporter = ?"
                if dead.position and db.execute(query, (dead.position, dead.reporter)).fetchone():
                    continue
                number += 1
                content = (dead.position, dead.producer, dead.reporter, dead.error, dead.body)
                queries.save_row(db, "dead_letters", number, *content)
                db.execute("DELETE FROM dead_letters WHERE number <= ?", (number - queries.MAX_DEAD_LETTERS,))
        self._dead_letters = number
        if records:
            self._head, self.recorded_us = records[-1].last, records[-1].recorded_us
        self._wal_pages += PAGES_PER_COMMIT + sum(len(record.raw) for record in records) // PAGE_BYTES

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """See ``Journal.ids``."""
        start = max(after, self.first - 1)
        with storage_errors(self._path), closing(self._rows(start, -1, bodies=False)) as rows:
            for first, head, _ in rows:
                yield first, ids_of(head, first)

    def mark(self, producer: str, epoch: int) -> int | None:
        """See ``Journal.mark``."""
        with storage_errors(self._path):
            where, key = "producer = ? AND epoch = ?", (producer, queries.signed_epoch(epoch))
            return next((row[2] for row in queries.rows_of(self._connection, "marks", where, *key)), None)

    def remove_dead_letter(self, number: int) -> bool:
        """See ``Journal.remove_dead_letter``."""
        with self._db.transaction() as db:
            return db.execute("DELETE FROM dead_letters WHERE number = ?", (number,)).rowcount == 1

    def begin(self, first: int, landmarks: Iterable[Record]) -> None:
        """See ``StoredJournal.begin``. The deleted events count as a deleted segment."""
        with self._db.transaction() as db:
            if first > 1:
                queries.save_row(db, "segments", *SegmentRow(1, first - 1, 0, "", deleted=1))
            for record in landmarks:
                db.execute("INSERT INTO landmarks VALUES (?, ?, ?)", (record.first, *queries.split(record)))
        self._head = self._archived = first - 1

    def restore_marks(self, marks: Iterable[Mark]) -> None:
        """See ``StoredJournal.restore_marks``."""
        with self._db.transaction() as db:
            for producer, epoch, following, used in marks:
                queries.save_row(db, "marks", producer, queries.signed_epoch(epoch), following, used)

    def adopt(self, *, most: int = MOST_SEGMENTS) -> int:
        """Take over complete segments that continue the archive; return its end.

        At most ``most`` segments are taken over. From then on their records are read from the segments. ``maintain``
        deletes the live ones. A segment of another history is set aside, because archiving would go on after its end.

        Raises:
            DamagedDatabase: a segment has changed since it was written, or was set aside.
        """
        for _ in range(most):
            if (complete := self.archive.next_file(self._archived)) is None:
                break
            row, last = complete
            if row.last >= self.head or next(self.headers_back(row.last)).raw != last.raw:
                path = self.archive.folder / row.name
                raise foreign_segment(path, f"It is kept as {set_aside(path)}.")
            with self._db.transaction() as db:
                queries.save_row(db, "segments", *row)
            self._archived, self._trimmed = row.last, False
        return self._archived

    def forget(self, before_us: int) -> list[SegmentRow]:
        """Delete the segments that end before a time, for good; return them.

        Segments that no sound snapshot of this journal covers are kept, because daemons that lose their state need
        them. The others are marked first, so that a crash leaves no segment that is missing without a reason.

        Raises:
            StorageError: a file cannot be removed; the next call tries again.
        """
        rows = self.archive.segments()
        old = [row for row in rows if row.recorded_us < before_us and not row.deleted]
        snapshot = self.snapshot(self.head) if old else None
        doomed = [row for row in old if snapshot and row.last <= snapshot.position]
        with self._db.transaction() as db:
            for row in doomed:
                queries.save_row(db, "segments", *row._replace(deleted=1))
        for row in (*(row for row in rows if row.deleted), *doomed):
            path = self.archive.folder / row.name
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise StorageError(f"{path} cannot be removed: {error}.", hint="Look at the folder's owner.") from error
        return doomed

    def maintain(self, *, idle: bool = True) -> None:
        """Checkpoint a long WAL; if ``idle``, also a short one.

        If ``idle``, some archived live records are deleted, too. A checkpoint between transactions delays no commit. A
        checkpoint during commits would set their 99th-percentile latency.
        """
        if idle and not self._trimmed:
            self._trim()
        if self._wal_pages >= CHECKPOINT_PAGES or (idle and self._wal_pages):
            self._db.checkpoint()
            self._wal_pages = 0

    def _trim(self) -> None:
        query = "SELECT first FROM frames WHERE first <= ? ORDER BY first LIMIT ?"
        with self._db.transaction() as db:
            archived = db.execute(query, (self._archived, TRIMMED_RECORDS)).fetchall()
            db.executemany("DELETE FROM frames WHERE first = ?", archived)
        self._trimmed = len(archived) < TRIMMED_RECORDS
        self._wal_pages += len(archived) and PAGES_PER_COMMIT + len(archived) // 4

    def shrink(self) -> None:
        """Delete all archived live records, and shrink the file. This takes seconds per gigabyte that is left."""
        while not self._trimmed:
            self.maintain()
        self._db.shrink()

    def close(self) -> None:
        """Close. Idempotent."""
        self.archive.close()
        self._db.close()


class SqliteJournalReader(_JournalTables):
    """Reads a journal file, also while a broker writes it. Raises what ``open_read_only`` raises."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, open_read_only(path, queries.FORMAT))

    def damage(self) -> Iterator[FlyballError]:
        """Iterate over all damage in pages, records, other tables, and archived segments."""
        yield from self.live_damage()
        yield from self.archive.damage()

    def marks(self) -> Iterator[Mark]:
        """See ``StoredReader.marks``."""
        for producer, epoch, following, used in queries.rows_of(self._connection, "marks", "TRUE ORDER BY used"):
            yield Mark(producer, queries.unsigned_epoch(epoch), following, used)

    def deletable(self, upto: int) -> tuple[int, int, int] | None:
        """See ``StoredReader.deletable``. Only whole segments are deleted."""
        old = [row for row in self.archive.segments() if row.last <= upto and not row.deleted]
        return (old[0].first, old[-1].last, old[-1].recorded_us) if old else None

    def size(self) -> JournalSize:
        """See ``StoredReader.size``."""
        live = [self._path.with_name(self._path.name + rest) for rest in ("", "-wal")]
        archived = list(self.archive.folder.glob("*"))
        live_bytes, archive_bytes = (sum(f.stat().st_size for f in files if f.is_file()) for files in (live, archived))
        return JournalSize(live_bytes + archive_bytes, archive_bytes, self.archive.end, is_local=True)

    def missing(self) -> Iterator[FlyballError]:
        """See ``StoredReader.missing``."""
        return self.archive.missing()

    def concerns(self) -> Iterator[FlyballError]:
        """See ``StoredReader.concerns``. A file that can be read has none."""
        return iter(())

    def database_state(self) -> None:
        """See ``StoredReader.database_state``."""

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """See ``StoredReader.frozen``."""
        self._connection.execute("BEGIN")
        try:
            yield
        finally:
            self._connection.execute("ROLLBACK")

    def live_damage(self) -> Iterator[FlyballError]:
        """Iterate over the damage of the journal's file alone."""
        with storage_errors(self._path):
            for problem in structural_damage(self._connection):
                yield DamagedDatabase(f"{self._path} is damaged: {problem}.")
        yield from self.latest_damage(MOST_EVENTS)

    def latest_damage(self, events: int = CHECKED_EVENTS) -> Iterator[FlyballError]:
        """Iterate over damage of the latest live records and other tables, as each start of the broker does."""
        # All tables are read at one moment, because otherwise rows that a broker writes meanwhile look like damage.
        with storage_errors(self._path), self.frozen():
            (last,) = self._connection.execute("SELECT max(first) FROM frames").fetchone()
            yield from damage_after(self._connection, max(0, (last or 0) - events))

    def backup(self, path: Path) -> int:
        """Copy the journal as it is now into a new file.

        A broker may write the journal meanwhile. Segments that the folder ``archive`` beside the file lacks are copied,
        too. The file gets its name once it is complete, and its records are checked.

        Returns:
            Position of the copy's last event.

        Raises:
            StorageError: the file exists or cannot be written; ``StorageFull`` if the disk is full.
            FlyballError: the journal is damaged; see ``damage``.
        """
        if path.exists():
            raise StorageError(f"{path} is there already.", hint="Name a new file, or move that one away.")
        unfinished = path.with_name(path.name + ".partial")
        try:
            unfinished.unlink(missing_ok=True)
            with storage_errors(unfinished), closing(sqlite3.connect(unfinished)) as copy:
                unfinished.touch()
                unfinished.chmod(S_IMODE(self._path.stat().st_mode))  # the copy has the journal's permissions
                self._connection.backup(copy)  # in one step, so it is one snapshot
                copy.execute("PRAGMA journal_mode = DELETE")  # leaves no file beside the copy
            with closing(SqliteJournalReader(unfinished)) as reader:
                for damage in reader.live_damage():
                    raise damage
                head, segments = reader.head, reader.archive.segments()
            self.archive.copy(segments, path.with_name(FOLDER))
            unfinished.replace(path)
        except OSError as error:
            raise StorageError(f"{path} cannot be written: {error}.", hint="Name a file in another folder.") from error
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
        return head

    def close(self) -> None:
        """Close. Idempotent."""
        self.archive.close()
        self._connection.close()
