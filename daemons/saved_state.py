"""A daemon's saved state, and its migration from another version (ADR-005).

Saved rows of another version are recognised by their schemas. Readable rows are carried over, so a reducer that changes
the meaning of a field must rename the field. Otherwise the rows are rebuilt from the journal. The position up to which
they are settled follows from events about the daemon (``Accounts``).
"""

import json
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.metadata import version
from typing import Any

import structlog
from msgspec import MsgspecError

from flyball.app.config import RunSettings
from flyball.app.controllers.fold import (
    HOST,
    PENDING,
    SETTINGS_KEY,
    VOIDED_KEY,
    Changed,
    PendingDecision,
    RowKey,
    VoidedEvents,
    own_name,
    written,
)
from flyball.app.events import (
    DaemonFact,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    Payload,
    RollCall,
    Row,
    RunConfigured,
)
from flyball.app.events.codec import lift
from flyball.app.events.schemas import shape
from flyball.app.journal import KnownRecord, Snapshot, StateStore

SCHEMAS_KEY: RowKey = (HOST, "schemas")


def schemas_of(reducers: Iterable[Any]) -> bytes:
    """Return the schemas to save, as JSON: hashes of row types and of the settings, without descriptions."""
    hosted = {HOST: _digest(RunSettings)}
    return json.dumps(hosted | {reducer.name: _digest(reducer.row) for reducer in reducers}).encode()


def readable(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> bool:
    """Return whether saved rows have the current schemas; a new reducer makes it false."""
    if not saved:
        return True
    then, now = json.loads(saved.get(SCHEMAS_KEY, b"{}")), json.loads(schemas_of(reducers))
    owners = {owner for owner, _ in saved} & now.keys()
    return now.keys() <= then.keys() and all(then[owner] == now[owner] for owner in owners)


def program_version(reducers: Iterable[Any]) -> str:
    """Return the version of a daemon's code, user-defined controllers included; another may decide differently."""
    hosted = tuple(reducers)
    own = "".join(reducer.origin.digest for reducer in hosted if own_name(reducer) is not None)
    return f"{version('flyball')}+rows.{sha256(schemas_of(hosted) + own.encode()).hexdigest()[:8]}"


def carried_over(saved: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> dict[RowKey, bytes] | None:
    """Return saved rows under the current schemas, without removed fields.

    Returns ``None`` if a row can't be read, or if a reducer or a field is new, because only the journal has its past.
    """
    kinds = {reducer.name: reducer.row for reducer in reducers}
    if not kinds.keys() <= json.loads(saved.get(SCHEMAS_KEY, b"{}")).keys():
        return None
    carried = dict(saved)
    try:
        for key, row in saved.items():
            if key == SETTINGS_KEY:
                carried[key] = _read_settings(row).model_dump_json().encode()
            elif kind := kinds.get(key[0]):
                carried[key] = kind.from_json(row).to_json()
                if _has_more(json.loads(carried[key]), json.loads(row)):
                    return None
    except (MsgspecError, ValueError):
        return None
    return carried


def _read_settings(row: bytes) -> RunSettings:
    """Return saved settings, which any version may have written; upcasts leave newer settings unchanged."""
    recorded = {"settings": json.loads(row)}
    lifted = lift(RunConfigured.event_type, recorded, 1, RunConfigured.dataversion)
    return RunSettings.model_validate(lifted["settings"], extra="ignore")


def _has_more(new: Any, old: Any) -> bool:
    """Return whether new JSON has a field that old JSON lacks."""
    if isinstance(new, dict) and isinstance(old, dict):
        return any(name not in old or _has_more(value, old[name]) for name, value in new.items())
    if isinstance(new, list) and isinstance(old, list):
        return any(_has_more(item, other) for item, other in zip(new, old, strict=False))
    return False


@cache
def _digest(kind: type[Row | RunSettings]) -> str:
    schema = kind.json_schema() if issubclass(kind, Row) else kind.model_json_schema()
    return sha256(json.dumps(shape(schema)).encode()).hexdigest()


REBUILD = "rebuild "
"""Prefix of the row kinds under which a rebuild's rows are saved."""

PROGRESS_KEY: RowKey = ("rebuild", "progress")
KNOWN_KEY: RowKey = ("cursor", "known")
"""Row with the latest record of the journal that the daemon knows of (ADR-005)."""


class Progress(Row, frozen=True):
    """Saved progress of a rebuild.

    Attributes:
        position: the position of the last event folded.
        dropped: number of steps dropped because their decisions differ from the recorded ones.
        schemas: the schemas of the rebuild's rows; with other schemas the rebuild starts over.
    """

    position: int
    dropped: int
    schemas: str
    settled: int = 0  # position up to which the rebuild goes; 0 if an earlier version wrote this


READY_KEY: RowKey = ("archive", "ready")
"""Row of a snapshot: the daemons, as daemon@node, that are ready at its position."""


def known_record(store: StateStore) -> KnownRecord | None:
    """Return the latest record that saved state knows of, or None; an earlier version knows only its position."""
    cursor, rows = store.load()
    if KNOWN_KEY in rows:
        return KnownRecord(*json.loads(rows[KNOWN_KEY]))
    return KnownRecord(cursor, 0) if cursor else None


class SavedState:
    """The rows of a daemon's reducers, and the cursor they belong to.

    Readable rows of another version are carried over. Unreadable or missing rows need a rebuild. Its rows are saved
    beside the old ones, and replace them when the rebuild is complete.

    Attributes:
        cursor: the position saved last, after which the daemon continues.
        rows: the rows at the cursor when the daemon started.
        changed: rows to save with the next cursor.
        latest_record: the latest record that the daemon knows of, to save with the next cursor.
        settled: the position up to which a rebuild goes, as far as known here: at least the cursor of the saved rows.
        ready: daemons that are ready at the cursor at which a rebuild begins, as daemon@node.
        dropped: number of steps that the rebuild has dropped so far.
        rebuilding: whether a rebuild is due or under way.

    Raises:
        DamagedDatabase: the store is damaged.
    """

    def __init__(self, store: StateStore, reducers: Sequence[Any]) -> None:
        self._store, self._reducers, log = store, reducers, structlog.get_logger("host")
        self._schemas = schemas_of(reducers)
        self._old_cursor, saved = store.load()
        self.settled, self.ready, self.latest_record = self._old_cursor, frozenset[str](), known_record(store)
        self._initial_rows: dict[RowKey, bytes] = {}
        old, rebuilt, progress = _split(saved)
        self.cursor, self.rows, self.dropped, self.rebuilding = 0, dict[RowKey, bytes](), 0, True
        self.changed: Changed = {}
        self._new: dict[RowKey, bytes | None] = {}
        if progress and progress.schemas == self._schemas.decode():
            self.cursor, self.dropped, self.rows = progress.position, progress.dropped, rebuilt
            self.settled = max(self.settled, progress.settled)
            return
        self._new |= dict.fromkeys(saved.keys() - old.keys())
        if not self.settled:
            return
        carried = old if readable(old, reducers) else carried_over(old, reducers)
        if carried is None:
            log.warning("saved state of another version can't be read: rebuilding", position=self.settled)
            return
        if carried is not old:
            log.warning("saved state is of another version: carried over", position=self.settled)
            self._new |= carried
        self._new[SCHEMAS_KEY] = self._schemas
        self.cursor, self.rows, self.rebuilding = self.settled, carried, False

    def start_over(self, voided: Collection[int], snapshot: Snapshot | None) -> None:
        """Restart the rebuild, without its saved progress and without the voided events.

        It begins at the snapshot if the reducers can read it, as state of this or of another version; otherwise at the
        first event.
        """
        self._old_cursor, saved = self._store.load()
        self._new = dict.fromkeys(saved.keys() - _split(saved)[0].keys())
        self.dropped, self.rebuilding = 0, True
        self.cursor, self.rows, self.ready = 0, {}, frozenset()
        if snapshot:
            rows = own_rows(snapshot.rows, self._reducers)
            carried = rows if readable(rows, self._reducers) else carried_over(rows, self._reducers)
            if carried is not None:
                self.cursor, self.rows = snapshot.position, carried
                self.ready = frozenset(json.loads(snapshot.rows[READY_KEY]))
        self._initial_rows = dict(self.rows)
        self.changed = {VOIDED_KEY: VoidedEvents(positions=tuple(sorted(voided)))} if voided else {}

    def save(self, cursor: int) -> None:
        """Save the cursor and the rows that changed, in one transaction."""
        rows = written(self.changed)
        if self.latest_record:
            self._new[KNOWN_KEY] = json.dumps(self.latest_record).encode()
        if self.rebuilding:
            schemas = self._schemas.decode()
            progress = Progress(position=cursor, dropped=self.dropped, schemas=schemas, settled=self.settled)
            rows = {(REBUILD + kind, name): row for (kind, name), row in {**self._initial_rows, **rows}.items()}
            self._store.save(self._old_cursor, {**self._new, **rows, PROGRESS_KEY: progress.to_json()})
            self._initial_rows = {}
        else:
            self._store.save(cursor, {**self._new, **rows})
        self.cursor, self.changed, self._new = cursor, {}, {}

    def complete(self, cursor: int) -> None:
        """Replace the old rows with those of the rebuild, in one transaction."""
        _, saved = self._store.load()
        _, rebuilt, progress = _split(saved)
        kept = rebuilt if progress and not self._new else {}
        self._new = {**dict.fromkeys(saved), **kept, **self._initial_rows, SCHEMAS_KEY: self._schemas}
        self._initial_rows, self.rebuilding = {}, False
        if saved or cursor:
            self.save(cursor)


def own_rows(rows: Mapping[RowKey, bytes], reducers: Iterable[Any]) -> dict[RowKey, bytes]:
    """Return some reducers' rows, and the host's, from a snapshot of all."""
    names = {reducer.name for reducer in reducers}

    def is_own(key: RowKey, row: bytes) -> bool:
        if key[0] == HOST and key[1].startswith(PENDING):
            return PendingDecision.from_json(row).by in names
        return key[0] in names or key[0] == HOST

    return {key: row for key, row in rows.items() if is_own(key, row)}


def _split(saved: Mapping[RowKey, bytes]) -> tuple[dict[RowKey, bytes], dict[RowKey, bytes], Progress | None]:
    """Split saved rows into the daemon's own rows, those of a rebuild, and the rebuild's progress."""
    own, rebuilt = dict[RowKey, bytes](), dict[RowKey, bytes]()
    for (kind, name), row in saved.items():
        if kind.startswith(REBUILD):
            rebuilt[kind.removeprefix(REBUILD), name] = row
        elif (kind, name) not in (PROGRESS_KEY, KNOWN_KEY):
            own[kind, name] = row
    return own, rebuilt, Progress.from_json(saved[PROGRESS_KEY]) if PROGRESS_KEY in saved else None


ACCOUNTS: frozenset[type[Payload]] = frozenset({DaemonStarted, DaemonReady, DaemonHeartbeat, DaemonStopped, RollCall})


class Accounts:
    """Positions up to which daemons have published all conclusions.

    The daemons report these positions themselves. DAEMON_READY, DAEMON_STOPPED and each hour ROLL_CALL hold the
    daemon's position. A daemon that is ready has published all conclusions from events up to this position. Older
    journals have DAEMON_HEARTBEAT for it.

    Args:
        settled: for each daemon, the position up to which all conclusions are published.
        ready: daemons that are ready, as daemon@node.
    """

    def __init__(self, settled: Mapping[str, int] | None = None, ready: Iterable[str] = ()) -> None:
        self.settled = Counter(settled or {})
        self.ready = set(ready)

    def add(self, fact: DaemonFact | RollCall) -> None:
        """Count a daemon's event about itself, or the broker's about all."""
        if isinstance(fact, RollCall):
            for one in fact.daemons:
                if one.position is not None:
                    self.reach(one.daemon, one.position)
            return
        who = f"{fact.daemon}@{fact.node}"
        if isinstance(fact, DaemonStarted):
            self.ready.discard(who)
        elif isinstance(fact, DaemonReady):
            self.ready.add(who)
        if isinstance(fact, DaemonReady | DaemonHeartbeat | DaemonStopped) and who in self.ready:
            self.reach(fact.daemon, fact.position)

    def reach(self, daemon: str, position: int) -> None:
        """Note that a daemon has published all conclusions up to a position."""
        self.settled[daemon] = max(self.settled[daemon], position)
