"""Ports of journals, state stores and outboxes. All adapters of a port pass one contract suite."""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Protocol

from flyball.app.core import FlyballError
from flyball.app.events.frames import DeadLetter, Record

StateKey = tuple[str, str]
"""Key of a row of state: its kind, and its name within the kind."""


class Fenced(FlyballError):
    """Another broker has taken the journal over. Nothing was written, and this broker has to end."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the journal.

    Attributes:
        records: the wanted records, in order. The first may begin at or before the position asked for.
        position: last position that was read, to continue from; the position asked for if nothing follows.
        checksum: that of the record at ``position``; 0 if nothing follows.
    """

    records: tuple[Record, ...]
    position: int
    checksum: int


class KnownRecord(NamedTuple):
    """A record that a program has read, by its last position.

    Two histories of a journal can have the same positions, if one begins at a restored backup. Where both have the same
    record, they are the same up to there. ``checksum`` is 0 if only the position is known.
    """

    position: int
    checksum: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Reducers' rows, folded from all events up to a position."""

    position: int
    rows: dict[StateKey, bytes]


class JournalReader(Protocol):
    """Reads a journal, also while a broker writes it.

    Archived and live records are one sequence.

    Whatever reads archived records raises ``MissingEvents`` if their segment is missing or was deleted.
    """

    @property
    def head(self) -> int:
        """Position of the last event; 0 in an empty journal."""

    @property
    def first(self) -> int:
        """Position of the oldest event that is kept, 1 unless older events were deleted for good."""

    def read(
        self,
        after: int,
        *,
        limit: int = 256,
        max_bytes: int = 4 << 20,
        types: Collection[str] | None = None,
    ) -> Chunk:
        """Read the records that hold events after a position.

        Args:
            after: position of the last event already seen.
            limit: most records to look at.
            max_bytes: stop after the record that exceeds this.
            types: skip records without events of these types, and do not read their bodies; None for all.

        Raises:
            DamagedRecord: a record is damaged or missing; the error names its position.
        """

    def headers_back(self, upto: int) -> Iterator[Record]:
        """Iterate backwards over the records up to a position, without bodies.

        The first record holds the position, or is the journal's last; an index finds it.
        """

    def landmark(self, event_type: str) -> int:
        """Return an event type's latest position; 0 without such an event. The type must be in ``LANDMARKS``."""

    def landmarks(self) -> Iterator[Record]:
        """Iterate over records with landmarks, latest first, without reading the archive."""

    def snapshot(self, upto: int) -> Snapshot | None:
        """Return the latest snapshot at or before a position; None without one."""

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""

    def close(self) -> None:
        """Close. Idempotent."""


class Journal(JournalReader, Protocol):
    """The one writer of a journal."""

    @property
    def recorded_us(self) -> int:
        """Time of the last record, in microseconds since 1970 UTC; 0 in an empty journal."""

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """Write records, marks and dead letters durably in one transaction.

        Args:
            records: sealed with the positions that follow ``head``, without gaps.
            marks: the next event number of each (producer, epoch). The journal keeps the marks of at least a producer's
                eight latest epochs.
            dead_letters: recorded once for each reporter and recorded event.

        Raises:
            OutOfOrder: the records do not continue the journal.
            Fenced: another broker has taken the journal over; also where there is nothing to write.
            StorageFull: the disk is full; nothing was written.
        """

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Iterate over records' first positions and hashed event ids.

        The records are those with events after a position. Deleted events are left out, because a broker has to start
        without them.
        """

    def mark(self, producer: str, epoch: int) -> int | None:
        """Return the next event number of a producer's epoch. Returns None if no mark is kept."""

    def remove_dead_letter(self, number: int) -> bool:
        """Remove a dead letter; return False for an unknown number."""

    def maintain(self, *, idle: bool = True) -> None:
        """Do urgent maintenance between transactions; when ``idle``, do the rest too."""


class JournalSize(NamedTuple):
    """Size of a journal: its bytes, those of its archive, and the position up to which it is archived.

    ``is_local`` is False if it takes no room on this machine, and nothing of it is archived.
    """

    bytes: int
    archive_bytes: int = 0
    archived: int = 0
    is_local: bool = False


class Span(Protocol):
    """A range of positions."""

    @property
    def first(self) -> int:
        """The first position."""

    @property
    def last(self) -> int:
        """The last position."""


class Mark(NamedTuple):
    """The next event number of a producer's epoch, and the position of the last event when it was set."""

    producer: str
    epoch: int
    following: int
    used: int


@dataclass(frozen=True, slots=True)
class DatabaseState:
    """The state of a database's server: of the heads that use it, and of its replicas.

    Attributes:
        user: that of this connection.
        stands_by: whether a second head's broker waits for the journal.
        names: the server's ``synchronous_standby_names``.
        needed: number of replicas for which a commit waits.
        connected: number of connected replicas.
        synchronous: number of those that count as needed; ``None``: this user may not see it.
        behind_bytes: of the journal's server, what the slowest replica has not on its disk; ``None``: unknown.
    """

    user: str
    stands_by: bool
    names: str = ""
    needed: int = 0
    connected: int = 0
    synchronous: int | None = 0
    behind_bytes: int | None = None


class StoredReader(JournalReader, Protocol):
    """Reads a run's journal where it is stored. What a reader can say about that place, beside the events."""

    def headers(self, after: int, upto: int) -> Iterator[Record]:
        """Iterate over headers from after a position to the record with ``upto``."""

    def head_at(self, position: int) -> bytes | None:
        """Return the header of the record that ends at a position. Returns None if no record ends there."""

    def snapshot_positions(self) -> list[int]:
        """Return the positions of the snapshots, sound or not, the latest first."""

    def marks(self) -> Iterator[Mark]:
        """Iterate over the marks, the latest last. Raises ``DamagedRow``."""

    def deletable(self, upto: int) -> tuple[int, int, int] | None:
        """Return which events up to a position ``StoredJournal.forget`` would delete if a snapshot covers them.

        Returns the first and the last position, and the last one's time in microseconds since 1970 UTC; None if there
        are none.
        """

    def frozen(self) -> AbstractContextManager[None]:
        """Read the journal as it is now until the context is left, although a broker writes it."""

    def size(self) -> JournalSize:
        """Return the journal's size."""

    def damage(self) -> Iterator[FlyballError]:
        """Iterate over all damage, of the archive, too."""

    def latest_damage(self, events: int) -> Iterator[FlyballError]:
        """Iterate over damage of the latest records and of all other rows, as each start of the broker does."""

    def missing(self) -> Iterator[FlyballError]:
        """Iterate over missing files of the archive."""

    def concerns(self) -> Iterator[FlyballError]:
        """Iterate over settings of a database's server with which a broker does not start."""

    def database_state(self) -> DatabaseState | None:
        """Return the state of the database's server; None for a journal in a file, and from a replica."""


class StoredJournal(Journal, Protocol):
    """The one writer of a run's journal where it is stored."""

    @property
    def archived(self) -> int:
        """Position of the last archived event; 0 without an archive."""

    def snapshot_positions(self) -> list[int]:
        """See ``StoredReader.snapshot_positions``."""

    def begin(self, first: int, landmarks: Iterable[Record]) -> None:
        """Let an empty journal begin at a position, because older events were deleted. Their landmarks are kept."""

    def restore_marks(self, marks: Iterable[Mark]) -> None:
        """Set marks as another journal had them."""

    def adopt(self, *, most: int = ...) -> int:
        """Take over complete segments that continue the archive; return its end, 0 without an archive."""

    def forget(self, before_us: int) -> Sequence[Span]:
        """Delete events of before a time for good, as far as a sound snapshot covers them.

        Returns what was deleted. There may be more to delete, unless nothing was deleted.
        """

    def shrink(self) -> None:
        """Give the room of deleted records back to the disk."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """The result of a rebuild.

    Attributes:
        head: position of the last event.
        before: path of the damaged file, kept beside the new one.
        lost: descriptions of the unreadable rows, which cannot be derived from the records.
    """

    head: int
    before: Path
    lost: list[str]


class JournalLocation(Protocol):
    """The place of a run's journal; opens it. As text, what messages call it."""

    def exists(self) -> bool:
        """Return whether this machine has a journal there."""

    def is_begun(self) -> bool:
        """Return whether there is a journal that is more than an empty place."""

    def reader(self) -> StoredReader:
        """Open it for reading. Raises ``NotAJournal`` without a journal."""

    def writer(self, *, wait: bool = False, give_up: Callable[[], bool] = ...) -> StoredJournal:
        """Open it as its one writer; create it if it is missing.

        Args:
            wait: wait until another writer ends, instead of raising ``StorageInUse``; a file is never waited for.
            give_up: polled while waiting; once True, ``StorageInUse`` is raised.
        """

    def filling(self) -> AbstractContextManager[StoredJournal]:
        """Open a writer of a new journal, which appears once the context is left, and not after an error.

        Raises:
            StorageError: there is a journal.
        """

    def taking_snapshots(self) -> AbstractContextManager[Callable[[Snapshot, bytes], None]]:
        """Keep other processes from taking snapshots; yield a function that writes one.

        The function's second argument is the header of the record at the snapshot's position.
        """

    def archive(self, until: int, say: Callable[[int, int], None]) -> bool:
        """Move records up to a position into an archive; return whether there were any.

        ``say`` receives the first and the last position of each part.
        """

    def rebuild(self) -> Rebuilt:
        """Derive everything else from sound records.

        Raises:
            StorageError: a journal of this kind can't be rebuilt.
        """

    def backup(self, path: Path) -> int:
        """Copy the journal as it is now into a new SQLite file, and check it; return its last position."""


class StateStore(Protocol):
    """A daemon's state and cursor. Both are saved together, so that each event counts exactly once."""

    def load(self) -> tuple[int, dict[StateKey, bytes]]:
        """Return the cursor and all rows; (0, {}) at first.

        Raises:
            DamagedState: a row has changed since it was written.
        """

    def save(self, cursor: int, changed: Mapping[StateKey, bytes | None]) -> None:
        """Save the cursor and the changed rows in one transaction. A row that maps to None is deleted."""

    def close(self) -> None:
        """Close. Idempotent."""


class Outbox(Protocol):
    """Frames that wait for the broker to come back. The frames outlive the program that wrote them."""

    def put(self, frames: Sequence[bytes]) -> None:
        """Append frames durably. A frame that is already stored keeps its place.

        Raises:
            StorageFull: the outbox's size limit is exceeded, or the disk is full; nothing was stored.
        """

    def load(self) -> list[bytes]:
        """Return all frames, oldest first."""

    def remove(self, keys: Collection[tuple[int, int]]) -> None:
        """Delete the frames with these (epoch, base)."""

    def check(self) -> None:
        """Check that what is stored can be found again.

        Raises:
            FileTouched: another program touched a file of the outbox.
        """

    def close(self) -> None:
        """Close. Idempotent."""
