"""The journal, daemons' state and clients' outboxes: ports, and their adapters to SQLite."""

from app.journal.damage import rebuild
from app.journal.database import (
    DamagedDatabase,
    DamagedState,
    NotAJournal,
    OtherFormat,
    OutOfOrder,
    StorageError,
    StorageFull,
    StorageInUse,
)
from app.journal.history import history
from app.journal.outbox import SqliteOutbox
from app.journal.ports import Chunk, Journal, JournalReader, Outbox, StateKey, StateStore
from app.journal.sqlite_journal import SqliteJournal, SqliteJournalReader
from app.journal.state import SqliteStateStore

__all__ = [
    "Chunk",
    "DamagedDatabase",
    "DamagedState",
    "Journal",
    "JournalReader",
    "NotAJournal",
    "OtherFormat",
    "OutOfOrder",
    "Outbox",
    "SqliteJournal",
    "SqliteJournalReader",
    "SqliteOutbox",
    "SqliteStateStore",
    "StateKey",
    "StateStore",
    "StorageError",
    "StorageFull",
    "StorageInUse",
    "history",
    "rebuild",
]
