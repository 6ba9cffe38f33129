"""The journal in a PostgreSQL database (ADR-040). A row holds a frame, a transaction a group of frames."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from psycopg.errors import Diagnostic

from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal import postgres, queries
from flyball.app.journal.database import DamagedRow, OutOfOrder, StorageError
from flyball.app.journal.marks import Marks
from flyball.app.journal.ports import Fenced
from flyball.app.journal.postgres import journal_row, server_errors
from flyball.app.journal.postgres_tables import PostgresTables

CHECKED_EVENTS = 20_000
"""Number of latest events whose records are checked on opening.

They are fewer than in a file, because a second head has to open the journal quickly.
"""

FORGOTTEN_RECORDS = 2000
"""Most records that are deleted at once, in some ten milliseconds."""

LIVE_EVENTS = 250_000
"""Latest events that are never deleted, because the broker recognises repeated events among so many."""

APPEND = """
WITH fence AS (
    UPDATE journal SET head = %(head)s WHERE epoch = %(epoch)s AND head = %(before)s RETURNING 1
), added AS (
    SELECT * FROM unnest(%(firsts)b::bigint[], %(heads)b::bytea[], %(bodies)b::bytea[]) AS r (first, head, bodies)
), frame_rows AS (
    INSERT INTO frames SELECT added.* FROM fence, added
), landmark_rows AS (
    INSERT INTO landmarks SELECT added.* FROM fence, added WHERE added.first = ANY(%(landmarks)b::bigint[])
), forgotten_rows AS (
    DELETE FROM marks USING fence, unnest(%(old_producers)b::bytea[], %(old_epochs)b::bigint[]) AS old (producer, epoch)
        WHERE (marks.producer, marks.epoch) = (old.producer, old.epoch)
), mark_rows AS (
    INSERT INTO marks SELECT r.* FROM fence, unnest(%(producers)b::bytea[], %(epochs)b::bigint[], %(nexts)b::bigint[],
            %(useds)b::bigint[], %(mark_checksums)b::bigint[]) AS r
        ON CONFLICT (producer, epoch) DO UPDATE
            SET next = excluded.next, used = excluded.used, checksum = excluded.checksum
)"""
DEAD_LETTERS = """, old_letters AS (
    DELETE FROM dead_letters USING fence WHERE number <= %(kept_after)s
), new_letters AS (
    INSERT INTO dead_letters SELECT r.* FROM fence, unnest(%(numbers)b::bigint[], %(positions)b::bigint[],
            %(senders)b::bytea[], %(reporters)b::bytea[], %(errors)b::bytea[], %(letters)b::bytea[],
            %(letter_checksums)b::bigint[]) AS r
)"""
"""Further parts of ``APPEND``, which are left out where possible, because they take time."""

CONFIRM = " SELECT 1 FROM fence"
"""The end of ``APPEND``: it returns a row if the fence let it through."""

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
ALIVE = "SELECT 1 FROM journal WHERE epoch = %(epoch)s"


class PostgresJournal(PostgresTables):
    """The one writer of a journal in a PostgreSQL database.

    Opening creates missing tables, or migrates those of an older format. It checks the latest records, and all rows of
    the other tables. Once ``append`` returns, its records survive what the server survives.

    The writer holds a lock, which the server passes on when the writer ends, or is silent for
    ``postgres.IDLE_SECONDS``. Each opening begins an epoch, and every change checks that it is the latest one. So a
    writer that was silent and goes on changes nothing any more: it raises ``Fenced``.

    The lock's session only writes, and a second one reads, because the server can't end a session whose client stops
    in the middle of a long answer.

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
            self._epoch, self._head, self._first = row.epoch, row.head, row.first
            self._alive_at = time.monotonic()
            self._warnings: list[str] = []
            self._writer.add_notice_handler(self._note)
            super().__init__(postgres.open_for_reading(url, "writer's reader"))
            on_error.callback(self._connection.close)
            last = next(self.headers_back(self._head), None)
            self.recorded_us = last.recorded_us if last else 0
            for damage in self.damage_after(max(0, self._head - CHECKED_EVENTS)):
                raise damage
            self._marks = Marks(self._mark_rows())
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
        statement = APPEND + (DEAD_LETTERS if letters else "") + CONFIRM
        changed = self._mark_values(marks or {}, after, head) | _letter_values(letters)
        self._change(statement, before=self._head, head=head, **_record_values(records), **changed)
        self._head, self._marks = head, after
        for number, dead in letters.items():
            self._letters[number] = dead.position, dead.reporter
            self._letters.pop(number - queries.MAX_DEAD_LETTERS, None)
        if records:
            self.recorded_us = records[-1].recorded_us

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """See ``Journal.ids``."""
        for record in self.headers(max(after, self.first - 1), self.head):
            yield record.first, record.frame.ids

    def mark(self, producer: str, epoch: int) -> int | None:
        """See ``Journal.mark``."""
        return self._marks.get(producer, epoch)

    def remove_dead_letter(self, number: int) -> bool:
        """See ``Journal.remove_dead_letter``."""
        (removed,) = self._change(REMOVE, number=number)
        self._letters.pop(number, None)
        return bool(removed)

    def forget(self, before_us: int, *, keep: int = LIVE_EVENTS) -> list[tuple[int, int]]:
        """Delete old events for good; return the deleted ranges of positions.

        Events that no sound snapshot of this journal covers are kept, because daemons that lose their state need them,
        and so are the latest ones. At most ``FORGOTTEN_RECORDS`` records are deleted in a call.

        Args:
            before_us: delete records of before this time, in microseconds since 1970 UTC.
            keep: number of latest events to keep.
        """
        snapshot = self.snapshot(self._head - keep)
        query = "SELECT first, head FROM frames WHERE first <= %s ORDER BY first LIMIT %s"
        rows = self.rows(query, snapshot.position, FORGOTTEN_RECORDS) if snapshot else []
        old = [record for row in rows if (record := queries.open_header(*row)).recorded_us < before_us]
        if not old:
            return []
        before, last = self._first, old[-1].last
        self._change(FORGET, first=last + 1)
        self._first = last + 1
        return [(before, last)]

    def maintain(self, *, idle: bool = True) -> None:  # noqa: ARG002 - the server tidies by itself
        """Show the server that this writer lives, and check that it is still the latest one."""
        if time.monotonic() - self._alive_at >= postgres.ALIVE_SECONDS:
            self._change(ALIVE)

    def close(self) -> None:
        """Close. Idempotent."""
        self._connection.close()
        self._writer.close()

    def rows(self, query: str, *values: Any) -> list[tuple[Any, ...]]:
        """See ``PostgresTables.rows``. The writer's session must not be idle while much is read."""
        self.maintain()
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

    def _mark_rows(self) -> Iterator[tuple[str, int, int]]:
        """Iterate over (producer, epoch, next event number), the latest last."""
        for row in self.verified_rows("marks", "TRUE ORDER BY used"):
            if isinstance(row, DamagedRow):
                raise row
            producer, epoch, following, _ = row
            yield producer.decode(), queries.unsigned_epoch(epoch), following

    def _mark_values(self, marks: Mapping[tuple[str, int], int], after: Marks, used: int) -> dict[str, Any]:
        """Return the parameters of ``APPEND`` that change marks."""
        rows = [
            (producer.encode(), queries.signed_epoch(epoch), following, used)
            for (producer, epoch), following in marks.items()
            if after.get(producer, epoch) is not None
        ]
        old = list(self._marks.forgotten(after, {producer for producer, _ in marks}))
        return {
            "old_producers": [producer.encode() for producer, _ in old],
            "old_epochs": [queries.signed_epoch(epoch) for _, epoch in old],
            "mark_checksums": [queries.checksum_of("marks", *row) for row in rows],
            **_columns(("producers", "epochs", "nexts", "useds"), rows),
        }


def _record_values(records: Sequence[Record]) -> dict[str, Any]:
    """Return the parameters of ``APPEND`` that add records."""
    rows = [(record.first, *queries.split(record)) for record in records]
    landmarks = [record.first for record in records if queries.has_landmark(record)]
    return {"landmarks": landmarks, **_columns(("firsts", "heads", "bodies"), rows)}


def _letter_values(letters: Mapping[int, DeadLetter]) -> dict[str, Any]:
    """Return the parameters of ``DEAD_LETTERS``; none without dead letters."""
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

    def close(self) -> None:
        """Close. Idempotent."""
        self._connection.close()
