"""The blobs that a run still needs. The state that is folded from the run's journal names them."""

import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import accumulate, chain

from flyball.app.controllers.fold import Fold
from flyball.app.core import ModelHash
from flyball.app.events import Event, Payload, RunConfigured, SelfplayComplete, encode
from flyball.app.events.envelope import EPOCH
from flyball.app.events.frames import DeadLetter
from flyball.app.job_specs import JobContext
from flyball.app.journal import JournalReader, history
from flyball.app.journal.history import voided_events
from flyball.app.store import BlobStore, MissingBlob, StoredBlob
from flyball.app.store.checkpoints import NoModel, manifest_of
from flyball.daemons.jobs import WorkerIdentity
from flyball.daemons.snapshots import rows_before
from flyball.daemons.spec import DaemonSpec

KEY = re.compile(rb"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")
MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True, slots=True)
class Named:
    """The keys that a journal names.

    Attributes:
        position: the journal's end.
        needed: keys in the rows of any reducer, and in events recorded lately.
        shards: keys of shards, needed or not, that were played since the snapshot at which the fold began.
    """

    position: int
    needed: frozenset[str]
    shards: frozenset[str]


def named_blobs(journal: JournalReader, daemons: Mapping[str, DaemonSpec], since: datetime) -> Named:
    """Return the keys of blobs that a journal's state names.

    The journal is folded from its latest snapshot on.

    Raises ``MissingEvents`` if old events were deleted, and this program can't read the snapshots.

    Args:
        journal: of the run.
        daemons: all daemons; their reducers are folded.
        since: events recorded from then on count, too, because the jobs that they request may still run.
    """
    identity = WorkerIdentity("reachability", "reachability", JobContext(store=""))
    specs = daemons.values()
    voided, head = frozenset(voided_events(journal)), journal.head
    begun, saved = rows_before(journal, tuple({reducer for spec in specs for reducer in spec.reducers}), voided, head)
    fold = Fold([reducer for spec in specs for reducer in spec.factories(identity)], saved, voided)
    types = frozenset[type[Payload]]({RunConfigured, SelfplayComplete}).union(*(spec.reads for spec in specs))
    shards = set[str]()
    for event in history(journal, after=begun, types=types, on_dead=lambda _: None):
        fold.feed((event,))
        if isinstance(event.data, SelfplayComplete):
            shards.add(event.data.shard.key)
    rows = (row.to_json() for table in fold.tables().values() for row in table.values())
    late = _end_before(journal, head, since)
    return Named(head, keys_in(rows) | keys_named_since(journal, late), frozenset(shards))


def _end_before(journal: JournalReader, head: int, since: datetime) -> int:
    """Return the position of the last event before a time, or before the first that was not deleted."""
    since_us = (since - EPOCH) // MICROSECOND
    earlier = (record.last for record in journal.headers_back(head) if record.recorded_us < since_us)
    return next(earlier, journal.first - 1)


def keys_named_since(journal: JournalReader, position: int) -> frozenset[str]:
    """Return the keys of blobs that events after a position name, unreadable events included."""
    unread = list[DeadLetter]()
    events: Iterator[Event[Payload]] = history(journal, after=position, on_dead=unread.append)
    keys = keys_in(encode(event.envelope) for event in events)
    return keys | keys_in(dead.body for dead in unread)


def keys_in(texts: Iterable[bytes]) -> frozenset[str]:
    """Return the keys of blobs in texts."""
    return frozenset(key.decode() for key in chain.from_iterable(map(KEY.findall, texts)))


def unreachable(store: BlobStore, named: Named, since: datetime) -> tuple[StoredBlob, ...]:
    """Return the stored blobs that nothing needs, largest first.

    A needed model also needs its optimiser's state. Blobs stored after ``since``, or at an unknown time, are left out.
    Raises ``DamagedBlob`` if a needed model is damaged, because its optimiser's state is then unknown.
    """
    entries = list(store.entries())
    needed = set(named.needed)
    for entry in entries:
        if entry.key in named.needed and entry.key not in named.shards:
            with suppress(MissingBlob, NoModel):
                needed.add(manifest_of(ModelHash(entry.key), store.get(entry.key)).optimizer or "")
    spare = (blob for blob in entries if blob.key not in needed and blob.modified is not None and blob.modified < since)
    return tuple(sorted(spare, key=lambda blob: (-blob.size_bytes, blob.key)))


def oldest(spare: tuple[StoredBlob, ...], size_bytes: float) -> tuple[StoredBlob, ...]:
    """Return the oldest blobs, as many as have a size together."""
    by_age = sorted(spare, key=lambda blob: (blob.modified or EPOCH, blob.key))
    before = accumulate((blob.size_bytes for blob in by_age), initial=0)
    return tuple(blob for blob, removed in zip(by_age, before, strict=False) if removed < size_bytes)
