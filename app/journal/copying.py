"""Copying a journal from one place to another: to a database, out of it, or into a backup (ADR-040)."""

from contextlib import closing

from flyball.app.journal.database import DamagedDatabase
from flyball.app.journal.ports import JournalLocation, StoredJournal, StoredReader


def copy_journal(source: JournalLocation, target: JournalLocation) -> int:
    """Copy a journal as it is now into a new one, and check the copy; return its last position.

    Records keep their positions and ids, marks and landmarks their content, dead letters their order. Archived records
    are copied, too. Snapshots are not: they are made again.

    Raises:
        StorageError: the target holds events, or cannot be written. Nothing of the copy is left.
        FlyballError: the source is damaged.
    """
    with closing(source.reader()) as reader, target.filling() as journal:
        head = _copy(reader, journal)
    with closing(target.reader()) as copied:
        for damage in copied.damage():
            raise damage
        if copied.head != head:
            raise DamagedDatabase(f"The copy ends at position {copied.head}, and its original at {head}.")
    return head


def _copy(source: StoredReader, target: StoredJournal) -> int:
    with source.frozen():  # only what changes: a database slows down while it is read at one moment
        first, head = source.first, source.head
        landmarks, marks, dead_letters = list(source.landmarks()), list(source.marks()), source.dead_letters()
    target.begin(first, reversed([record for record in landmarks if record.last < first]))
    position = first - 1
    while position < head:
        chunk = source.read(position)
        target.append([record for record in chunk.records if record.last <= head])
        target.maintain(idle=False)
        position = chunk.position
    target.restore_marks(marks)
    target.append(dead_letters=dead_letters)
    return head
