"""Journal, daemons' state and clients' outboxes: ports and SQLite adapters."""

from app.journal.damage import rebuild
from app.journal.database import DamagedDatabase, NotAJournal, OtherFormat
from app.journal.history import history
from app.journal.outbox import SqliteOutbox
from app.journal.ports import Journal, JournalReader, KnownRecord, Outbox, Snapshot, StateStore
from app.journal.sqlite_journal import SqliteJournal, SqliteJournalReader
from app.journal.state import SqliteStateStore

__all__ = [
    "DamagedDatabase",
    "Journal",
    "JournalReader",
    "KnownRecord",
    "NotAJournal",
    "OtherFormat",
    "Outbox",
    "Snapshot",
    "SqliteJournal",
    "SqliteJournalReader",
    "SqliteOutbox",
    "SqliteStateStore",
    "StateStore",
    "history",
    "rebuild",
]
