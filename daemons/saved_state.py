"""A daemon's saved state: carried over from another version, or rebuilt beside the old rows (ADR-021)."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import structlog
from msgspec import MsgspecError
from pydantic import ValidationError

from app.config import RunSettings
from app.controllers.fold import HOST, SETTINGS_KEY, RowKey
from app.events import Row
from app.events.schemas import shape
from app.journal import StateStore

# Saved rows of another version: recognised by their schemas, carried over where readable.
#
# A reducer that changes the meaning of a field must rename the field.

SCHEMAS_KEY: RowKey = (HOST, "schemas")


def schemas_of(reducers: Iterable[Any]) -> bytes:
    """Return the schemas to save: a hash of each reducer's row type, and of the settings.

    Descriptions don't count.
    """
    hosted = {HOST: _digest(RunSettings)}
    return json.dumps(hosted | {reducer.name: _digest(reducer.row) for reducer in reducers}).encode()


def readable(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> bool:
    """Return whether all saved rows of these reducers, or of these classes, were saved under the present schemas."""
    then = json.loads(saved.get(SCHEMAS_KEY, b"{}"))
    now = json.loads(schemas_of(reducers))
    return all(then.get(owner) == now[owner] for owner in {owner for owner, _ in saved} & now.keys())


def program_of(reducers: Iterable[Any]) -> str:
    """Return the version of a daemon's program; other versions may decide differently."""
    return f"{version('flyball')}+rows.{sha256(schemas_of(reducers)).hexdigest()[:8]}"


def carried_over(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> dict[RowKey, bytes] | None:
    """Return saved rows under the current schemas; ``None`` if one is unreadable.

    Fields that are gone are left out, and new ones get their defaults.
    """
    kinds = {reducer.name: reducer.row for reducer in reducers}
    carried = dict(saved)
    try:
        for (owner, name), row in saved.items():
            kind = RunSettings if (owner, name) == SETTINGS_KEY else kinds.get(owner)
            if kind is not None:
                carried[owner, name] = _carried(kind, row)
    except (MsgspecError, ValidationError, json.JSONDecodeError):
        return None
    return carried


def _fitted(value: Any, schema: Mapping[str, Any], definitions: Mapping[str, Any]) -> Any:
    """Return a JSON value without the fields of objects that a schema does not know."""
    while "$ref" in schema:
        schema = definitions[schema["$ref"].rpartition("/")[2]]
    if "anyOf" in schema:
        return _fitted(value, _likeliest(value, schema["anyOf"], definitions), definitions)
    if isinstance(value, dict):
        fields, others = schema.get("properties"), schema.get("additionalProperties")
        if fields is not None:
            return {name: _fitted(value[name], fields[name], definitions) for name in value if name in fields}
        if isinstance(others, dict):
            return {name: _fitted(one, others, definitions) for name, one in value.items()}
    if isinstance(value, list):
        first = schema.get("prefixItems", [])
        rest = schema.get("items") or {}
        kinds = [*first, *[rest] * (len(value) - len(first))]
        return [_fitted(one, kind, definitions) for one, kind in zip(value, kinds, strict=False)]
    return value


def _likeliest(value: Any, options: Sequence[Mapping[str, Any]], definitions: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the option that knows most fields of a value."""

    def known(option: Mapping[str, Any]) -> int:
        while "$ref" in option:
            option = definitions[option["$ref"].rpartition("/")[2]]
        if isinstance(value, dict) and option.get("type") == "object":
            return 1 + len(option.get("properties", {}).keys() & value)
        return int(isinstance(value, list) and option.get("type") == "array")

    return max(options, key=known)


def _carried(kind: type[Row | RunSettings], row: bytes) -> bytes:
    schema = _schema(kind)
    fitted = json.dumps(_fitted(json.loads(row), schema, schema.get("$defs", {})))
    if issubclass(kind, Row):
        return kind.from_json(fitted).to_json()
    return kind.model_validate_json(fitted).model_dump_json().encode()


@cache
def _digest(kind: type[Row | RunSettings]) -> str:
    return sha256(json.dumps(shape(_schema(kind))).encode()).hexdigest()


def _schema(kind: type[Row | RunSettings]) -> dict[str, Any]:
    return kind.json_schema() if issubclass(kind, Row) else kind.model_json_schema()


REBUILD = "rebuild "
"""Prefix of the kinds of a rebuild's rows."""

PROGRESS_KEY: RowKey = ("rebuild", "progress")


class Progress(Row, frozen=True):
    """Saved progress of a rebuild.

    Attributes:
        position: of the last event folded.
        dropped: steps dropped because their decisions differ from the recorded ones.
        schemas: of its rows; a rebuild by another version starts over.
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
        dropped: steps that the rebuild has dropped so far.
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
        """Restart the rebuild at the first event, without its saved progress."""
        self.settled, saved = self._store.load()
        self._new = {key: None for key in saved if _of_rebuild(key)}
        self.dropped, self.rebuilding = 0, True

    def save(self, cursor: int, changed: Mapping[RowKey, bytes | None]) -> None:
        """Save rows that changed, and the cursor, in one transaction."""
        if self.rebuilding:
            progress = Progress(position=cursor, dropped=self.dropped, schemas=self._schemas.decode())
            rows = {(REBUILD + kind, name): row for (kind, name), row in changed.items()}
            self._store.save(self.settled, {**self._new, **rows, PROGRESS_KEY: progress.to_json()})
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
    return Progress.from_json(saved[PROGRESS_KEY]) if PROGRESS_KEY in saved else None


def _rebuilt(saved: Mapping[RowKey, bytes]) -> dict[RowKey, bytes]:
    return {(kind.removeprefix(REBUILD), name): row for (kind, name), row in saved.items() if kind.startswith(REBUILD)}
