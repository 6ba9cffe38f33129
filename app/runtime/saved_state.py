"""A daemon's saved state: carried over from another version, or rebuilt beside the old rows (ADR-021)."""

from collections.abc import Mapping, Sequence
from typing import Any

import structlog

from app.events import Row
from app.journal import StateStore
from app.runtime.fold import RowKey
from app.runtime.row_schema import SCHEMAS_KEY, carried_over, readable, schemas_of

REBUILD = "rebuild "
"""What the kinds of rows begin with that belong to a rebuild."""

PROGRESS_KEY: RowKey = ("rebuild", "progress")


class Progress(Row, frozen=True):
    """How far a rebuild has come.

    Attributes:
        position: of the last event folded.
        dropped: decisions that were left out, since they were taken otherwise.
        schemas: of its rows; those of another version are not gone on with.
    """

    position: int
    dropped: int
    schemas: str


class SavedState:
    """The rows of a daemon's reducers, and the cursor they belong to.

    Rows of another version are carried over where they can be read. Where they can't, or where there are none, a
    rebuild is due: its rows are saved beside the old ones, which it replaces when it is complete.

    Args:
        store: where they are saved.
        reducers: the classes of the daemon's reducers.

    Attributes:
        cursor: where to go on.
        rows: rows to go on from.
        settled: the cursor of the rows that a rebuild replaces; 0 when there are none.
        dropped: decisions that the rebuild has left out so far.
        rebuilding: whether a rebuild is due or under way.

    Raises:
        DamagedDatabase: the store is damaged.
    """

    def __init__(self, store: StateStore, reducers: Sequence[Any]) -> None:
        self._store, self._log = store, structlog.get_logger("host")
        self._schemas = schemas_of(reducers)
        self._new: dict[RowKey, bytes | None] = {}
        self.cursor, saved = store.load()
        self.settled, self.dropped, self.rebuilding = self.cursor, 0, True
        progress = _progress(saved)
        old = {key: row for key, row in saved.items() if not _of_rebuild(key)}
        if progress and progress.schemas == self._schemas.decode():
            self.cursor, self.dropped, self.rows = progress.position, progress.dropped, _rebuilt(saved)
        elif self.cursor and (carried := old if readable(old, reducers) else carried_over(old, reducers)) is not None:
            self.rebuilding, self.rows = False, carried
            if carried is not old:
                self._log.warning("saved state is of another version: carried over", position=self.cursor)
                self._new |= carried
            self._new |= {**dict.fromkeys(saved.keys() - old.keys()), SCHEMAS_KEY: self._schemas}
        else:
            if self.cursor:
                self._log.warning("saved state of another version can't be read: rebuilding", position=self.cursor)
            self.cursor, self.rows = 0, {}
            self._new = dict.fromkeys(saved.keys() - old.keys())

    def start_over(self) -> None:
        """Have the rows rebuilt from the first event, without what a rebuild has saved so far."""
        self.settled, saved = self._store.load()
        self._new = {key: None for key in saved if _of_rebuild(key)}
        self.dropped, self.rebuilding = 0, True

    def save(self, cursor: int, changed: Mapping[RowKey, bytes | None]) -> None:
        """Save rows that changed, and the cursor, in one transaction."""
        if self.rebuilding:
            progress = Progress(position=cursor, dropped=self.dropped, schemas=self._schemas.decode())
            rows = {(REBUILD + kind, name): row for (kind, name), row in changed.items()}
            self._store.save(self.settled, {**self._new, **rows, PROGRESS_KEY: progress.model_dump_json().encode()})
        else:
            self._store.save(cursor, {**self._new, **changed})
        self._new = {}

    def complete(self, cursor: int, changed: Mapping[RowKey, bytes | None]) -> None:
        """Replace the old rows with those of the rebuild, in one transaction."""
        _, saved = self._store.load()
        rebuilt = _rebuilt(saved) if _progress(saved) and not self._new else {}
        self._new, self.rebuilding = {SCHEMAS_KEY: self._schemas}, False
        if saved or cursor:
            self.save(cursor, {**dict.fromkeys(saved), **rebuilt, **changed, **self._new})


def _of_rebuild(key: RowKey) -> bool:
    return key == PROGRESS_KEY or key[0].startswith(REBUILD)


def _progress(saved: Mapping[RowKey, bytes]) -> Progress | None:
    return Progress.model_validate_json(saved[PROGRESS_KEY]) if PROGRESS_KEY in saved else None


def _rebuilt(saved: Mapping[RowKey, bytes]) -> dict[RowKey, bytes]:
    return {(kind.removeprefix(REBUILD), name): row for (kind, name), row in saved.items() if kind.startswith(REBUILD)}
