"""The journal, daemons' state and clients' outboxes: ports, and adapters to SQLite and memory."""

from app.journal.damage import LANDMARKS, Rebuilt, rebuild
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
from app.journal.memory_journal import MemoryJournal
from app.journal.outbox import MemoryOutbox, SqliteOutbox
from app.journal.ports import Chunk, Journal, JournalReader, Outbox, StateKey, StateStore
from app.journal.sqlite_journal import SqliteJournal, SqliteJournalReader
from app.journal.state import MemoryStateStore, SqliteStateStore

__all__ = [
    "LANDMARKS",
    "Chunk",
    "DamagedDatabase",
    "DamagedState",
    "Journal",
    "JournalReader",
    "MemoryJournal",
    "MemoryOutbox",
    "MemoryStateStore",
    "NotAJournal",
    "OtherFormat",
    "OutOfOrder",
    "Outbox",
    "Rebuilt",
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
