"""Reading and checking the tables of a journal in a PostgreSQL database (ADR-040)."""

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any

import msgspec

from flyball.app.core import FlyballError
from flyball.app.events.frames import DamagedRecord, DeadLetter, Record, damaged
from flyball.app.journal import postgres, queries
from flyball.app.journal.damage import Derived, damaged_landmark
from flyball.app.journal.database import DamagedDatabase, DamagedRow
from flyball.app.journal.ports import Chunk, Mark, Snapshot, StateKey
from flyball.app.journal.postgres import JournalRow, journal_row, server_errors
from flyball.app.journal.segments import MissingEvents
from flyball.app.journal.snapshots import RECORD_KEY, superseded

HEADERS = 1000
"""Headers that are read at once."""

CHECKED_RECORDS = 256
"""Records that are checked at once."""

COLUMNS = {table: queries.COLUMNS[table] for table in ("marks", "dead_letters")} | {"snapshots": "position, content"}
"""Columns that a row's checksum covers, for each table without records."""

Verified = tuple[Any, ...] | DamagedRow
"""A row whose checksum is right, or an error in its place."""

_snapshot_rows = msgspec.msgpack.Decoder(list[tuple[str, str, bytes]])


class PostgresTables:
    """Reading methods shared by the writer and the reader; see ``JournalReader``."""

    def __init__(self, connection: postgres.Connection) -> None:
        self._connection = connection

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        """See ``JournalReader.read``."""
        names = None if types is None else frozenset(types)
        chosen, size, position, checksum = list[Record](), 0, after, 0
        for record in self._headers(after, limit):
            position, checksum = queries.check_continues(record, position, begun=position == after), record.checksum
            if names is not None and names.isdisjoint(record.frame.types):
                continue
            chosen.append(record)
            size += len(record.raw) + sum(record.frame.lengths)
            if size > max_bytes:
                break
        return Chunk(tuple(self._with_bodies(chosen)), position, checksum)

    def headers(self, after: int, upto: int) -> Iterator[Record]:
        """Iterate over headers from after a position to the record with ``upto``."""
        begun = True
        while part := self._headers(after, HEADERS):
            for record in part:
                if record.first > upto:
                    return
                after, begun = queries.check_continues(record, after, begun=begun), False
                yield record

    def headers_back(self, upto: int) -> Iterator[Record]:
        """See ``JournalReader.headers_back``."""
        query, limit, following = "SELECT first, head FROM frames WHERE first <= %s ORDER BY first DESC LIMIT %s", 1, 0
        while rows := self.rows(query, upto, limit):  # most callers take the first one only
            for row in rows:
                record = queries.open_header(*row)
                if following and record.last != following - 1:
                    raise damaged(record.last + 1, f"position {following} of the next record")
                following = record.first
                yield record
            upto, limit = following - 1, HEADERS

    @property
    def head(self) -> int:
        """Position of the last event; 0 in an empty journal."""
        return self.row().head

    @property
    def first(self) -> int:
        """See ``JournalReader.first``."""
        return self.row().first

    def row(self) -> JournalRow:
        """Read the row of the table ``journal``."""
        with server_errors():
            return journal_row(self._connection)

    def landmark(self, event_type: str) -> int:
        """See ``JournalReader.landmark``."""
        return queries.landmark_in(self.landmarks(), event_type)

    def landmarks(self) -> Iterator[Record]:
        """See ``JournalReader.landmarks``."""
        for row in self.rows("SELECT first, head, bodies FROM landmarks ORDER BY first DESC"):
            try:
                yield queries.open_record(*row)
            except DamagedRecord as error:
                raise damaged_landmark(row[0]) from error

    def snapshot(self, upto: int) -> Snapshot | None:
        """See ``JournalReader.snapshot``. A snapshot that is damaged or of another journal is skipped."""
        for position in self.snapshot_positions():
            if position > min(upto, self.head):
                continue
            for row in self.verified_rows("snapshots", "position = %s", position):
                if isinstance(row, tuple):
                    rows = {(kind, name): value for kind, name, value in _snapshot_rows.decode(row[1])}
                    if rows.pop(RECORD_KEY, None) == self.head_at(position):
                        return Snapshot(position, rows)
        return None

    def snapshot_positions(self) -> list[int]:
        """Return the positions of the snapshots, the latest first."""
        return [position for (position,) in self.rows("SELECT position FROM snapshots ORDER BY position DESC")]

    def head_at(self, position: int) -> bytes | None:
        """Return the header of the record that ends at a position. Returns None if no record ends there."""
        record = next(self.headers_back(position), None)
        return record.raw if record and record.last == position else None

    @property
    def archived(self) -> int:
        """See ``StoredJournal.archived``. Nothing is archived: an index finds each record, however many there are."""
        return 0

    def marks(self) -> Iterator[Mark]:
        """See ``StoredReader.marks``."""
        for row in self.verified_rows("marks", "TRUE ORDER BY used"):
            if isinstance(row, DamagedRow):
                raise row
            producer, epoch, following, used = row
            yield Mark(producer.decode(), queries.unsigned_epoch(epoch), following, used)

    def dead_letters(self) -> list[DeadLetter]:
        """See ``JournalReader.dead_letters``; the newest 10,000 are kept."""
        letters = list[DeadLetter]()
        for row in self.verified_rows("dead_letters"):
            if isinstance(row, DamagedRow):
                raise row
            number, position, producer, reporter, error, body = row
            letters.append(DeadLetter(position, producer.decode(), reporter.decode(), error.decode(), body, number))
        return letters

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        with server_errors():
            return self._connection.execute(query, values, binary=True).fetchall()

    def verified_rows(self, table: str, where: str = "TRUE ORDER BY 1", *values: Any) -> Iterator[Verified]:
        """Iterate over rows of a table that has checksums."""
        query = f"SELECT {COLUMNS[table]}, checksum FROM {table} WHERE {where}"  # noqa: S608 - constants
        for *row, checksum in self.rows(query, *values):
            yield tuple(row) if checksum == queries.checksum_of(table, *row) else DamagedRow(table, row[0])

    def header_rows(self, after: int, limit: int) -> list[tuple[int, bytes]]:
        """Return positions and headers, not verified, from the record on that holds the next event after a position.

        If there is no next event, the last record is returned.
        """
        query = """SELECT first, head FROM frames
            WHERE first >= coalesce((SELECT max(first) FROM frames WHERE first <= %s), 0) ORDER BY first LIMIT %s"""
        return [(first, head) for first, head in self.rows(query, after + 1, limit)]

    def _headers(self, after: int, limit: int) -> list[Record]:
        """Return the headers of the next records with events after a position.

        Raises ``MissingEvents`` if events were deleted there, or ``DamagedRecord`` if there are only later ones.
        """
        rows = self.header_rows(after, limit + 1)
        records = [queries.open_header(*row) for row in rows[:1]]
        records = [record for record in records if record.last > after]
        records += [queries.open_header(*row) for row in rows[1 : limit + 1 - len(records)]]
        if not records or records[0].first > after + 1:
            self._check_kept(after)
        if not records and self.head > after:  # recorded since, or hidden by a damaged index
            if self.header_rows(after, limit + 1) == rows:
                raise damaged(after + 1, f"events up to position {self.head} missing")
            return self._headers(after, limit)
        return records

    def _check_kept(self, after: int) -> None:
        if after + 1 < (first := self.first):
            raise MissingEvents(
                f"The events {after + 1} to {first - 1} were deleted for good; the oldest that is kept is {first}.",
                hint="Only newer events can be read.",
            )

    def _with_bodies(self, headers: Sequence[Record]) -> Iterator[Record]:
        query, firsts = "SELECT first, bodies FROM frames WHERE first = ANY(%s)", [record.first for record in headers]
        bodies = dict(self.rows(query, firsts)) if firsts else {}
        for record in headers:
            if record.first not in bodies:  # deleted since
                self._check_kept(record.first - 1)
            yield queries.open_record(record.first, record.raw, bodies.get(record.first))

    def latest_damage(self, events: int) -> Iterator[FlyballError]:
        """See ``StoredReader.latest_damage``."""
        yield from self.damage_after(max(0, self.head - events))

    def damage(self) -> Iterator[FlyballError]:
        """Iterate over all damage of all tables."""
        yield from self.damage_after(0)
        for position in self.snapshot_positions():
            rows = self.verified_rows("snapshots", "position = %s", position)
            yield from (row for row in rows if isinstance(row, DamagedRow))

    def damage_after(self, after: int) -> Iterator[FlyballError]:
        """Iterate over damage of later records, and of all rows of the other tables.

        A broker may write meanwhile. So the records are read first, and what is derived from them later.
        """
        before, derived, landmarks, sound = self.row(), Derived(), dict[int, bytes](), True
        for found in self._checked_records(after):
            if isinstance(found, Record):
                derived.add(found)
                if queries.has_landmark(found):
                    landmarks[found.first] = found.raw
            else:
                sound = False
                yield found
        head = self.row().head
        if sound and not (before.head <= max(derived.head, after) and derived.head <= head):
            yield DamagedDatabase(f"Damaged journal: its records end at {derived.head}, its table journal at {head}.")
        yield from self._damaged_side_rows(derived if sound else None, head)
        yield from self._damaged_landmarks(landmarks)

    def _damaged_side_rows(self, derived: Derived | None, head: int) -> Iterator[DamagedDatabase]:
        """Iterate over damaged rows, and, unless records are damaged, over those that contradict ``derived``."""
        for table in ("marks", "dead_letters"):
            for row in self.verified_rows(table):
                if isinstance(row, DamagedRow):
                    yield row
                elif derived and not _fits(table, row, derived, head):
                    yield DamagedDatabase(f"Damaged journal: {row[0]!r} in its table {table} contradicts its records.")

    def _checked_records(self, after: int) -> Iterator[Record | DamagedRecord]:
        """Iterate over the records that begin after a position, with an error in place of each damaged one."""
        query = """SELECT frames.first, frames.head, bodies, journal.first FROM frames, journal
            WHERE frames.first > %s ORDER BY frames.first LIMIT %s"""
        position = 0  # of the previous record's end; 0: unknown
        while rows := self.rows(query, after, CHECKED_RECORDS):
            for first, head, bodies, kept in rows:
                if after < kept:
                    position = kept - 1
                after = first
                try:
                    record = queries.open_record(first, head, bodies)
                    position = queries.check_continues(record, position or first - 1, begun=False)
                    yield record
                except DamagedRecord as error:
                    position = 0
                    yield error

    def _damaged_landmarks(self, expected: dict[int, bytes]) -> Iterator[DamagedDatabase]:
        """Iterate over damaged or foreign records of the table ``landmarks``, and over ``expected`` ones it lacks."""
        query = """SELECT kept.first, kept.head, kept.bodies, kept.first < journal.first
                OR (frames.head = kept.head AND frames.bodies = kept.bodies)
            FROM journal, landmarks AS kept LEFT JOIN frames USING (first) ORDER BY kept.first"""
        found = set[int]()
        for first, head, bodies, fits in self.rows(query):
            found.add(first)
            try:
                if not queries.has_landmark(queries.open_record(first, head, bodies)) or not fits:
                    yield DamagedDatabase(f"Damaged journal: the record at {first} in its table landmarks is another.")
            except DamagedRecord:
                yield damaged_landmark(first)
        for first in sorted(expected.keys() - found):
            yield DamagedDatabase(f"Damaged journal: its table landmarks lacks the record at {first}.")


def _fits(table: str, row: tuple[Any, ...], derived: Derived, head: int) -> bool:
    """Return whether a row can follow from the records."""
    if table == "marks":
        producer, epoch, following, used = row
        return bool(used <= head and following >= derived.marks[producer.decode(), epoch])
    return bool(row[1] <= head)


@contextmanager
def taking_snapshots(url: str) -> Iterator[Callable[[Snapshot, bytes], None]]:
    """See ``JournalLocation.taking_snapshots``.

    There is no fence: a snapshot counts only if the journal has the record at its position.
    """
    with closing(postgres.open_for_reading(url, "snapshots", primary=True)) as connection, server_errors():
        connection.execute("SET default_transaction_read_only = off")
        with postgres.locked_for_snapshots(connection):
            yield partial(write_snapshot, connection)


def write_snapshot(connection: postgres.Connection, snapshot: Snapshot, head: bytes) -> None:
    """Write a snapshot, and remove superseded ones; see ``snapshots.write_snapshot``."""
    rows: dict[StateKey, bytes] = {**snapshot.rows, RECORD_KEY: head}
    content = msgspec.msgpack.encode([(*key, value) for key, value in rows.items()])
    row = snapshot.position, content
    with server_errors(), connection.transaction():
        connection.execute("DELETE FROM snapshots WHERE position = %s", row[:1])
        connection.execute("INSERT INTO snapshots VALUES (%b, %b, %b)", (*row, queries.checksum_of("snapshots", *row)))
        positions = connection.execute("SELECT position FROM snapshots ORDER BY position DESC").fetchall()
        old = superseded([position for (position,) in positions], snapshot.position)
        connection.execute("DELETE FROM snapshots WHERE position = ANY(%s)", (old,))
