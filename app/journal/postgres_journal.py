"""The journal in a PostgreSQL database (ADR-040). A row holds a frame, a transaction a group of frames."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

from psycopg.errors import Diagnostic

from flyball.app.core import FlyballError
from flyball.app.events.frames import DeadLetter, Record, ids_of
from flyball.app.journal import postgres, queries
from flyball.app.journal.database import OutOfOrder, StorageError
from flyball.app.journal.marks import Key, Marks
from flyball.app.journal.ports import DatabaseState, Fenced, JournalSize, Mark
from flyball.app.journal.postgres import journal_row, server_errors
from flyball.app.journal.postgres_tables import HEADERS, PostgresTables

CHECKED_EVENTS = 20_000
"""Number of latest events whose records are checked on opening.

They are fewer than in a file, because a second head has to open the journal quickly.
"""

FORGOTTEN_RECORDS = 2000
"""Most records that are deleted at once, in some ten milliseconds."""

LIVE_EVENTS = 250_000
"""Latest events that are never deleted, because the broker recognises repeated events among so many."""

FENCE = """
WITH fence AS (
    UPDATE journal SET head = %(head)s WHERE epoch = %(epoch)s AND head = %(before)s RETURNING 1
)"""
"""The beginning of an append. It finds the row if this writer is the latest one, and the journal ends as it knows."""

RECORDS = """, added AS (
    SELECT * FROM unnest(%(firsts)b::bigint[], %(heads)b::bytea[], %(bodies)b::bytea[]) AS r (first, head, bodies)
), frame_rows AS (
    INSERT INTO frames SELECT added.* FROM fence, added
)"""
LANDMARKS = """, landmark_rows AS (
    INSERT INTO landmarks SELECT added.* FROM fence, added WHERE added.first = ANY(%(landmarks)b::bigint[])
)"""
MARKS = """, mark_rows AS (
    INSERT INTO marks SELECT r.* FROM fence, unnest(%(producers)b::bytea[], %(epochs)b::bigint[], %(nexts)b::bigint[],
            %(useds)b::bigint[], %(mark_checksums)b::bigint[]) AS r
        ON CONFLICT (producer, epoch) DO UPDATE
            SET next = excluded.next, used = excluded.used, checksum = excluded.checksum
)"""
OLD_MARKS = """, old_marks AS (
    DELETE FROM marks USING fence, unnest(%(old_producers)b::bytea[], %(old_epochs)b::bigint[]) AS old (producer, epoch)
        WHERE (marks.producer, marks.epoch) = (old.producer, old.epoch)
)"""
DEAD_LETTERS = """, old_letters AS (
    DELETE FROM dead_letters USING fence WHERE number <= %(kept_after)s
), new_letters AS (
    INSERT INTO dead_letters SELECT r.* FROM fence, unnest(%(numbers)b::bigint[], %(positions)b::bigint[],
            %(senders)b::bytea[], %(reporters)b::bytea[], %(errors)b::bytea[], %(letters)b::bytea[],
            %(letter_checksums)b::bigint[]) AS r
)"""
PARTS: Mapping[str, str] = {
    "firsts": RECORDS,
    "landmarks": LANDMARKS,
    "producers": MARKS,
    "old_producers": OLD_MARKS,
    "numbers": DEAD_LETTERS,
}
"""Parts of an append, by the parameter that is empty when a part is left out. All parts together take twice as long."""

CONFIRM = " SELECT 1 FROM fence"
"""The end of an append: it returns a row if the fence let it through."""

REMOVE = """
WITH fence AS (
    UPDATE journal SET head = head WHERE epoch = %(epoch)s RETURNING 1
), gone AS (
    DELETE FROM dead_letters USING fence WHERE number = %(number)s RETURNING 1
) SELECT EXISTS (SELECT FROM gone) FROM fence"""
FORGET = """
WITH fence AS (
    UPDATE journal SET first = %(first)s WHERE epoch = %(epoch)s RETURNING 1
), gone AS (
    DELETE FROM frames USING fence WHERE frames.first < %(first)s
) SELECT 1 FROM fence"""
BEGIN = """
WITH fence AS (
    UPDATE journal SET first = %(first)s, head = %(head)s WHERE epoch = %(epoch)s AND head = 0 RETURNING 1
), landmark_rows AS (
    INSERT INTO landmarks
        SELECT r.* FROM fence, unnest(%(firsts)b::bigint[], %(heads)b::bytea[], %(bodies)b::bytea[]) AS r
) SELECT 1 FROM fence"""
ALIVE = "SELECT 1 FROM journal WHERE epoch = %(epoch)s"


class Deleted(NamedTuple):
    """Positions of the first and the last event that were deleted at once."""

    first: int
    last: int


class PostgresJournal(PostgresTables):
    """The one writer of a journal in a PostgreSQL database.

    Opening creates missing tables, or migrates those of an older format. It checks the latest records, and all rows of
    the other tables. Once ``append`` returns, its records survive what the server survives.

    The writer holds a lock, which the server passes on when the writer ends, or is silent for
    ``postgres.IDLE_SECONDS``. Each opening begins an epoch, and every change checks that it is the latest one. So a
    writer that was silent and goes on changes nothing any more: it raises ``Fenced``.

    The lock's session only writes, and a second one reads, because the server can't end a session whose client stops
    in the middle of a long answer. Both are of one server, whichever hosts the URL names.

    Args:
        url: of the database.
        wait: wait until an earlier writer ends, instead of raising ``StorageInUse``.
        give_up: polled while waiting; once True, ``StorageInUse`` is raised.

    Raises what ``postgres.open_for_writing`` raises, ``DamagedRecord`` or ``DamagedDatabase``.
    """

    def __init__(self, url: str, *, wait: bool = False, give_up: Callable[[], bool] = lambda: False) -> None:
        with ExitStack() as on_error:
            self._writer, row = postgres.open_for_writing(url, wait=wait, give_up=give_up)
            on_error.callback(self._writer.close)
            self._epoch, self._head, self._first, self.run = row.epoch, row.head, row.first, row.run
            self._alive_at, self._serves = time.monotonic(), False
            self._warnings: list[str] = []
            self._sound_snapshot = 0
            self._writer.add_notice_handler(self._note)
            same_server = postgres.url_of_server(self._writer, url)
            super().__init__(postgres.open_for_reading(same_server, "writer's reader", primary=True))
            on_error.callback(self._connection.close)
            last = next(self.headers_back(self._head), None)
            self.recorded_us = last.recorded_us if last else 0
            for damage in self.damage_after(max(0, self._head - CHECKED_EVENTS)):
                raise damage
            self._marks = Marks((producer, epoch, following) for producer, epoch, following, _ in self.marks())
            self._letters = {dead.number: (dead.position, dead.reporter) for dead in self.dead_letters()}
            on_error.pop_all()

    @property
    def head(self) -> int:
        """Position of the last event; 0 in an empty journal."""
        return self._head

    @property
    def first(self) -> int:
        """See ``JournalReader.first``."""
        return self._first

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """See ``Journal.append``. After any error, it is unknown what was written; open the journal again."""
        queries.check_order(self._head, records)
        head = records[-1].last if records else self._head
        after = self._marks.changed(marks or {})
        letters = self._new_letters(dead_letters)
        set_marks = [
            Mark(*key, following, head) for key, following in (marks or {}).items() if after.get(*key) is not None
        ]
        old = self._marks.forgotten(after, {producer for producer, _ in marks or {}})
        values = _record_values(records) | _mark_values(set_marks, old) | _letter_values(letters)
        self._append(head, values)
        self._head, self._marks = head, after
        for number, dead in letters.items():
            self._letters[number] = dead.position, dead.reporter
            self._letters.pop(number - queries.MAX_DEAD_LETTERS, None)
        if records:
            self.recorded_us = records[-1].recorded_us

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """See ``Journal.ids``."""
        position = max(after, self.first - 1)
        while rows := self.header_rows(position, HEADERS):
            for first, head in rows:
                ids = ids_of(head, first)
                if first + len(ids) - 1 > position:
                    yield first, ids
            if (last := first + len(ids) - 1) <= position:
                return
            position = last

    def mark(self, producer: str, epoch: int) -> int | None:
        """See ``Journal.mark``."""
        return self._marks.get(producer, epoch)

    def remove_dead_letter(self, number: int) -> bool:
        """See ``Journal.remove_dead_letter``."""
        (removed,) = self._change(REMOVE, number=number)
        self._letters.pop(number, None)
        return bool(removed)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all changes within the context at once, or none after an error."""
        with server_errors(), self._writer.transaction():
            yield

    def begin(self, first: int, landmarks: Iterable[Record]) -> None:
        """See ``StoredJournal.begin``."""
        rows = [(record.first, *queries.split(record)) for record in landmarks]
        self._change(BEGIN, first=first, head=first - 1, **_columns(("firsts", "heads", "bodies"), rows))
        self._first, self._head = first, first - 1

    def restore_marks(self, marks: Iterable[Mark]) -> None:
        """See ``StoredJournal.restore_marks``."""
        rows = list(marks)
        self._append(self._head, _mark_values(rows))
        self._marks = Marks((producer, epoch, following) for producer, epoch, following, _ in rows)

    def adopt(self, *, most: int = 0) -> int:  # noqa: ARG002 - there are no segments
        """See ``StoredJournal.adopt``."""
        return self.archived

    def shrink(self) -> None:
        """Do nothing: the server uses the room of deleted records again."""

    def forget(self, before_us: int) -> list[Deleted]:
        """See ``StoredJournal.forget``. At most ``FORGOTTEN_RECORDS`` records are deleted at once."""
        query = "SELECT first, head FROM frames WHERE first <= %s ORDER BY first LIMIT %s"
        covered, old = self._covered(self._head - LIVE_EVENTS), list[Record]()
        for limit in (1, FORGOTTEN_RECORDS):  # first one record, because mostly none is old enough
            records = [queries.open_header(*row) for row in self.rows(query, covered, limit)]
            old = [record for record in records if record.recorded_us < before_us]
            if not old:
                return []
        before, last = self._first, old[-1].last
        self._change(FORGET, first=last + 1)
        self._first = last + 1
        return [Deleted(before, last)]

    def _covered(self, upto: int) -> int:
        """Return the position of the latest sound snapshot up to a position; 0 without one.

        A snapshot is read once, because it may be large and the broker waits meanwhile.
        """
        latest = next((position for position in self.snapshot_positions() if position <= upto), 0)
        if latest != self._sound_snapshot:
            snapshot = self.snapshot(upto)
            self._sound_snapshot = snapshot.position if snapshot else 0
        return self._sound_snapshot

    def maintain(self, *, idle: bool = True) -> None:  # noqa: ARG002 - the server tidies by itself
        """Show the server that this writer lives, and check that it is still the latest one.

        From the first time on, the server soon notices if it does not.
        """
        if not self._serves:
            with postgres.server_errors():
                postgres.expect_life(self._writer)
            self._serves = True
        self._show_life()

    def _show_life(self) -> None:
        if time.monotonic() - self._alive_at >= postgres.ALIVE_SECONDS:
            self._change(ALIVE)

    def close(self) -> None:
        """Close. Idempotent."""
        self._connection.close()
        self._writer.close()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """See ``PostgresTables.rows``. The writer's session must not be idle while much is read."""
        self._show_life()
        return super().rows(query, *values)

    def _change(self, statement: str, **values: Any) -> tuple[Any, ...]:
        """Run a statement that returns one row if this writer is the latest.

        Raises:
            Fenced: another writer took over; nothing was written.
            OutOfOrder: another program changed the journal; nothing was written.
            StorageError: the statement failed; whether it was written is unknown if the connection is lost.
        """
        self._warnings.clear()
        with server_errors():
            row = self._writer.execute(statement, {"epoch": self._epoch, **values}, prepare=True).fetchone()
            self._alive_at = time.monotonic()
            if self._warnings:
                raise StorageError(
                    f"The server is not sure that events are safe: {' '.join(self._warnings)}.",
                    hint="Start again, and look at the server's log.",
                )
            if row is not None:
                return row
            latest = journal_row(self._writer)
        if latest.epoch != self._epoch:
            raise Fenced("Another broker writes this journal now.", hint="This one has to end; nothing was written.")
        raise OutOfOrder(f"The journal ends at {latest.head}, and not at {self._head}; another program changed it.")

    def _append(self, head: int, values: Mapping[str, Any]) -> None:
        """Run an append with the parts that its values need."""
        parts = [part for name, part in PARTS.items() if values.get(name)]
        self._change("".join((FENCE, *parts, CONFIRM)), before=self._head, head=head, **values)

    def _note(self, notice: Diagnostic) -> None:
        """Note a warning, such as that a commit did not wait for the server's copy on another machine."""
        if notice.severity_nonlocalized == "WARNING":
            self._warnings.append(notice.message_primary or "")

    def _new_letters(self, dead_letters: Sequence[DeadLetter]) -> dict[int, DeadLetter]:
        """Return the dead letters that are not recorded yet, by their new numbers."""
        about, new, number = set(self._letters.values()), dict[int, DeadLetter](), max(self._letters, default=0)
        for dead in dead_letters:
            if dead.position and (dead.position, dead.reporter) in about:
                continue
            about.add((dead.position, dead.reporter))
            number += 1
            new[number] = dead
        return new


def _mark_values(rows: Sequence[Mark], old: Iterable[Key] = ()) -> dict[str, Any]:
    """Return the parameters that set some marks, and delete old ones."""
    stored = [
        (producer.encode(), queries.signed_epoch(epoch), following, used) for producer, epoch, following, used in rows
    ]
    keys = [(producer.encode(), queries.signed_epoch(epoch)) for producer, epoch in old]
    return {
        "mark_checksums": [queries.checksum_of("marks", *row) for row in stored],
        **_columns(("producers", "epochs", "nexts", "useds"), stored),
        **_columns(("old_producers", "old_epochs"), keys),
    }


def _record_values(records: Sequence[Record]) -> dict[str, Any]:
    """Return the parameters that add records."""
    rows = [(record.first, *queries.split(record)) for record in records]
    landmarks = [record.first for record in records if queries.has_landmark(record)]
    return {"landmarks": landmarks, **_columns(("firsts", "heads", "bodies"), rows)}


def _letter_values(letters: Mapping[int, DeadLetter]) -> dict[str, Any]:
    """Return the parameters that add dead letters; none without dead letters."""
    if not letters:
        return {}
    rows = [
        (number, dead.position, dead.producer.encode(), dead.reporter.encode(), dead.error.encode(), dead.body)
        for number, dead in letters.items()
    ]
    return {
        "kept_after": max(letters) - queries.MAX_DEAD_LETTERS,
        "letter_checksums": [queries.checksum_of("dead_letters", *row) for row in rows],
        **_columns(("numbers", "positions", "senders", "reporters", "errors", "letters"), rows),
    }


def _columns(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, list[Any]]:
    """Return rows as lists of columns, which the server unnests."""
    return {name: [row[index] for row in rows] for index, name in enumerate(names)}


class PostgresJournalReader(PostgresTables):
    """Reads a journal in a PostgreSQL database, also while a broker writes it.

    Raises what ``postgres.open_for_reading`` raises.
    """

    def __init__(self, url: str) -> None:
        super().__init__(postgres.open_for_reading(url))

    def deletable(self, upto: int) -> tuple[int, int, int] | None:
        """See ``StoredReader.deletable``."""
        row = self.row()
        last = next(self.headers_back(min(upto, row.head - LIVE_EVENTS)), None)
        return (row.first, last.last, last.recorded_us) if last else None

    def size(self) -> JournalSize:
        """See ``StoredReader.size``."""
        tables = "journal", "frames", "landmarks", "marks", "dead_letters", "snapshots"
        ((size,),) = self.rows(
            "SELECT sum(pg_total_relation_size(name::regclass))::bigint FROM unnest(%s::text[]) AS name", [*tables]
        )
        return JournalSize(size)

    def missing(self) -> Iterator[FlyballError]:
        """See ``StoredReader.missing``. Nothing is archived."""
        return iter(())

    def concerns(self) -> Iterator[FlyballError]:
        """See ``StoredReader.concerns``."""
        with server_errors():
            yield from postgres.concerns(self._connection)

    def database_state(self) -> DatabaseState | None:
        """See ``StoredReader.database_state``."""
        with server_errors():
            return postgres.database_state(self._connection)

    @contextmanager
    def frozen(self) -> Iterator[None]:
        """See ``StoredReader.frozen``."""
        with server_errors(), self._connection.transaction():
            self._connection.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
            yield

    def close(self) -> None:
        """Close. Idempotent."""
        self._connection.close()
