"""Taking snapshots of all reducers' rows, which are folded from the journal beside the broker (ADR-006)."""

import json
from collections.abc import Callable, Collection, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import closing
from typing import Any, cast

from flyball.app.controllers.fold import (
    VOIDED_KEY,
    Changed,
    Fold,
    Recorded,
    RowKey,
    VoidedEvents,
    voided_in,
    written,
)
from flyball.app.core import FlyballError
from flyball.app.events import DaemonFact, Payload, RollCall, RunConfigured
from flyball.app.events.frames import hash_id, read_events
from flyball.app.job_specs import JobContext
from flyball.app.journal import JournalReader, Snapshot
from flyball.app.journal.archiving import records_between
from flyball.app.journal.history import last_settings, voided_events
from flyball.app.journal.ports import JournalLocation, StoredReader
from flyball.app.journal.snapshots import KEPT_EVENTS
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.registry import DAEMONS, daemons_of
from flyball.daemons.saved_state import ACCOUNTS, READY_KEY, SCHEMAS_KEY, Accounts, carried_over, readable, schemas_of

IN_FLIGHT_EVENTS = 1000
"""Latest events, not covered because their decisions may not be recorded yet."""

HORIZON_EVENTS = 250_000
"""Events after a snapshot that are searched for decisions from before it."""

PART = 64
"""Records read at once; see ``flyball.app.replay.replaying.PART``."""


class Unsettled(FlyballError):
    """A daemon has not published its decisions yet."""


class _RecordedIds(Collection[Recorded]):
    """The (id, type) of recorded events, with hashed ids."""

    def __init__(self, hashed_ids: set[tuple[int, str]]) -> None:
        self._hashed_ids = hashed_ids

    def __contains__(self, recorded: object) -> bool:
        event_id, event_type = cast("Recorded", recorded)
        return (hash_id(event_id), event_type) in self._hashed_ids

    def __iter__(self) -> Iterator[Recorded]:
        raise NotImplementedError("Hashes can't be reversed.")

    def __len__(self) -> int:
        return len(self._hashed_ids)


def rows_before(
    reader: JournalReader, reducers: Sequence[Any], voided: AbstractSet[int], upto: int
) -> tuple[int, dict[RowKey, bytes]]:
    """Return (position, rows) of the latest readable snapshot up to a position without voided events, or (0, {})."""
    while snapshot := reader.snapshot(upto):
        if new := [position for position in voided - voided_in(snapshot.rows) if position <= snapshot.position]:
            upto = min(new) - 1
            continue
        rows = snapshot.rows
        carried = rows if readable(rows, reducers) else carried_over(rows, reducers)
        if carried is not None:
            return snapshot.position, carried
        break
    return 0, {}


class _Snapshots:
    """Rows of all reducers, folded up to the archive's end.

    The fold begins at the latest snapshot that this program can read and in which no event was voided since; otherwise
    at the first event. As in a rebuild, steps whose decisions differ from the recorded ones are dropped.
    """

    def __init__(self, reader: StoredReader, upto: int) -> None:
        self._reader = reader
        settings = last_settings(reader)
        self._daemons = daemons_of(settings) if settings else DAEMONS
        identity = WorkerIdentity("archive", "archive", JobContext(store=""))
        self._host_of = {kind.name: name for name, spec in self._daemons.items() for kind in spec.hosted}
        self._reducers = tuple(dict.fromkeys(kind for spec in self._daemons.values() for kind in spec.hosted))
        factories = tuple(factory for spec in self._daemons.values() for factory in spec.factories(identity))
        self._emits = frozenset(payload.event_type for reducer in self._reducers for payload in reducer.emits)
        read = frozenset[type[Payload]]({RunConfigured}).union(*(reducer.reads for reducer in self._reducers))
        self._reads = frozenset(kind.event_type for kind in read | ACCOUNTS)
        self._voided = frozenset(voided_events(reader))
        self.position, self._rows = rows_before(reader, self._reducers, self._voided, upto)
        ready = json.loads(self._rows.pop(READY_KEY, b"[]"))
        self._accounts = Accounts(ready=ready)
        self._fold = Fold(factories, dict(self._rows), self._voided)

    def advance(self, end: int) -> dict[RowKey, bytes]:
        """Fold up to a position, and return all rows. Raises ``Unsettled``."""
        dropped = self._feed(end, _RecordedIds(self._recorded(self.position, end + HORIZON_EVENTS)))
        self.position = end
        settled = self._settled(end)
        if late := sorted({self._host_of[name] for name in dropped if settled.settled[self._host_of[name]] < end}):
            raise Unsettled(
                f"No snapshot at {end}: {', '.join(late)} has not published its decisions up to there yet.",
                hint="Start this daemon. Until then, a daemon that loses its state starts from an earlier snapshot.",
            )
        return {**self._rows, READY_KEY: json.dumps(sorted(self._accounts.ready)).encode()}

    def _feed(self, end: int, recorded: Collection[Recorded]) -> list[str]:
        """Fold up to a position; return the reducers of the dropped steps."""
        dropped, changed = list[str](), dict[Any, Any]()
        for record in records_between(self._reader, self.position, end, limit=PART):
            events = read_events(
                record, after=self.position, types=self._reads, reporter="archive", on_dead=lambda _: None
            )
            for event in events:
                if type(event.data) in ACCOUNTS:
                    self._accounts.add(cast("DaemonFact | RollCall", event.data))
            outcome = self._fold.feed(events, recorded)
            dropped += outcome.dropped
            changed |= outcome.changed
        own: Changed = {VOIDED_KEY: VoidedEvents(positions=tuple(sorted(self._voided)))} if self._voided else {}
        for key, row in written(changed | own).items():
            if row is None:
                self._rows.pop(key, None)
            else:
                self._rows[key] = row
        self._rows[SCHEMAS_KEY] = schemas_of(self._reducers)
        return dropped

    def _recorded(self, after: int, end: int) -> set[tuple[int, str]]:
        """Return (hashed id, type) of emitted events within a range, reading only headers."""
        hashed_ids = set[tuple[int, str]]()
        for record in self._reader.headers(after, end):
            frame = record.frame
            if not self._emits.isdisjoint(frame.types):
                types = (frame.types[ref] for ref in frame.type_refs)
                hashed_ids.update(pair for pair in zip(frame.ids, types, strict=True) if pair[1] in self._emits)
        return hashed_ids

    def _settled(self, end: int) -> Accounts:
        """Return the daemons' positions, from the events soon after a position."""
        accounts = Accounts(self._accounts.settled, self._accounts.ready)
        types = frozenset(kind.event_type for kind in ACCOUNTS)
        for record in records_between(self._reader, end, end + HORIZON_EVENTS, types=types):
            for event in read_events(record, after=end, types=types, reporter="archive", on_dead=lambda _: None):
                accounts.add(cast("DaemonFact | RollCall", event.data))
        return accounts


def take_snapshots(journal: JournalLocation, say: Callable[[int], None] = lambda _: None) -> None:
    """Take snapshots near the journal's end and every ``KEPT_EVENTS`` events.

    ``say`` receives their positions.

    Raises:
        StorageInUse: another process takes snapshots of this journal.
        StorageFull: there is no room.
        Unsettled: a daemon still has to publish decisions.
        DamagedRecord: a record is damaged.
    """
    with closing(journal.reader()) as reader, journal.taking_snapshots() as write:
        end = _record_end(reader, reader.head - IN_FLIGHT_EVENTS)
        latest = reader.snapshot(end)
        if end <= (latest.position if latest else 0):
            return
        snapshots = _Snapshots(reader, end)
        while snapshots.position < end:
            position = _record_end(reader, min(snapshots.position + KEPT_EVENTS, end))
            rows = snapshots.advance(position)
            write(Snapshot(position, rows), cast("bytes", reader.head_at(position)))
            say(position)


def _record_end(reader: JournalReader, position: int) -> int:
    """Return the last position of the record that holds ``position``; 0 before the first record."""
    record = next(reader.headers_back(position), None)
    return record.last if record else 0
