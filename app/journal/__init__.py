"""Journal, daemons' state and clients' outboxes: ports and SQLite adapters."""

from flyball.app.journal.damage import rebuild
from flyball.app.journal.database import DamagedDatabase, NotAJournal, OtherFormat
from flyball.app.journal.history import history
from flyball.app.journal.outbox import SqliteOutbox
from flyball.app.journal.ports import Fenced, Journal, JournalReader, KnownRecord, Outbox, Snapshot, StateStore
from flyball.app.journal.sqlite_journal import SqliteJournal, SqliteJournalReader
from flyball.app.journal.state import SqliteStateStore

__all__ = [
    "DamagedDatabase",
    "Fenced",
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
