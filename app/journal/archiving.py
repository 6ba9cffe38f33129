"""Archiving: old records move from the journal into segments (ADR-006).

A process beside the broker writes the segments, because reading and compressing take seconds. The journal's writer
takes each complete segment over, and deletes the live records then. Until that moment the live records are the journal,
so a crash loses nothing, and a repetition begins where the last complete segment ends.
"""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

from flyball.app.events.frames import Record
from flyball.app.journal.database import locked
from flyball.app.journal.ports import JournalReader
from flyball.app.journal.segments import SegmentRow, write_segment
from flyball.app.journal.sqlite_journal import SqliteJournalReader

SEGMENT_EVENTS = 250_000
"""Most events of a segment."""


def archive(path: Path, until: int, *, say: Callable[[SegmentRow], None] = lambda _: None) -> list[SegmentRow]:
    """Write segments of a journal's records up to a position.

    The journal's writer takes the segments over.

    Args:
        path: the journal.
        until: position of the last event to archive. The journal's last record always stays live.
        say: receives each segment once it is complete.

    Raises:
        StorageInUse: another process archives this journal.
        StorageFull: there is no room for a segment.
        DamagedRecord: a record is damaged.
    """
    rows = list[SegmentRow]()
    with closing(SqliteJournalReader(path)) as reader:
        folder = reader.archive.folder
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder / "archiving"):
            end = reader.archive.end
            while complete := reader.archive.next_file(end):  # complete files that the writer has not adopted
                end = complete[0].last
            while segment := _next_segment(reader, end, until):
                last, size = segment
                rows.append(write_segment(folder, records_between(reader, end, last), size))
                end = last
                say(rows[-1])
    return rows


def _next_segment(reader: SqliteJournalReader, after: int, until: int) -> tuple[int, int] | None:
    """Return the next segment's last position and uncompressed size in bytes; None without records."""
    end, size, head = after, 0, reader.head
    for record in reader.headers(after, until):
        if record.last > until or record.last >= head or record.last - after > SEGMENT_EVENTS:
            break
        end, size = record.last, size + len(record.raw) + sum(record.frame.lengths)
    return (end, size) if end > after else None


def records_between(
    reader: JournalReader, after: int, end: int, *, limit: int = 256, types: frozenset[str] | None = None
) -> Iterator[Record]:
    """Iterate over records from after a position to the one with ``end``."""
    while after < end and (chunk := reader.read(after, limit=limit, types=types)).position > after:
        for record in chunk.records:
            if record.first > end:
                return
            yield record
        after = chunk.position
