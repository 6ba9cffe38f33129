"""Ports of stored events and state; the adapters of a port pass one contract suite."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from app.events.frames import DeadLetter, Record

StateKey = tuple[str, str]
"""Key of a row of state: its kind, and its name within the kind."""


@dataclass(frozen=True, slots=True)
class Chunk:
    """A part of the journal.

    Attributes:
        records: the wanted records, in order. The first may begin at or before the position asked for.
        position: the last position that was read; continue from here. Unchanged at the end.
    """

    records: tuple[Record, ...]
    position: int


class JournalReader(Protocol):
    """Reads a journal, also while a broker writes it."""

    @property
    def head(self) -> int:
        """Position of the last event; 0 when there is none."""
        ...

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
            limit: look at no more than this many records.
            max_bytes: stop after the record that exceeds this.
            types: leave out records without any event of these types; their bodies are not read.

        Raises:
            DamagedRecord: a record is damaged or missing; names the position.
        """
        ...

    def headers_back(self, upto: int) -> Iterator[Record]:
        """Iterate backwards over the records that hold events up to a position, without their bodies.

        The first is the one that holds the position, or the journal's last; an index finds it.
        """
        ...

    def landmark(self, event_type: str) -> int:
        """Return the position of the latest event of a type in ``LANDMARKS``, by an index; 0 when there is none."""
        ...

    def dead_letters(self) -> list[DeadLetter]:
        """Return the dead letters, oldest first."""
        ...

    def close(self) -> None:
        """Close. Twice does nothing."""
        ...


class Journal(JournalReader, Protocol):
    """The one writer of a journal."""

    @property
    def recorded_us(self) -> int:
        """Time of the last record, microseconds since 1970 UTC; 0 when there is none."""
        ...

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        """Write all of it in one transaction; on return it is durable.

        Args:
            records: sealed with the positions that follow ``head``, without gaps.
            marks: the next sequence number for each (producer, epoch). Those of a producer's latest epochs are kept,
                eight at least.
            dead_letters: a reporter's dead letter about a position is kept once.

        Raises:
            OutOfOrder: the records do not continue the journal.
            StorageFull: nothing of it was written.
        """
        ...

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        """Iterate over the records that hold events after a position: first position, hashes of the event ids."""
        ...

    def mark(self, producer: str, epoch: int) -> int | None:
        """Return the next sequence number of a producer's epoch; None when it was never seen, or long ago."""
        ...

    def remove_dead_letter(self, number: int) -> bool:
        """Remove a dead letter; False when there is none of this number."""
        ...

    def rest(self, *, idle: bool = True) -> None:
        """Tidy up between transactions: what must be done, and when ``idle``, what can be done."""
        ...


class StateStore(Protocol):
    """A daemon's state and its cursor, saved together, so that each event counts exactly once."""

    def load(self) -> tuple[int, dict[StateKey, bytes]]:
        """Return the cursor and all rows; (0, {}) at first.

        Raises:
            DamagedState: a row is not what was written.
        """
        ...

    def save(self, cursor: int, changed: Mapping[StateKey, bytes | None]) -> None:
        """Save the cursor and the rows that changed (None deletes) in one transaction."""
        ...

    def close(self) -> None:
        """Close. Twice does nothing."""
        ...


class Outbox(Protocol):
    """Frames that wait for the broker to come back; they outlive the program that wrote them."""

    def put(self, frames: Sequence[bytes]) -> None:
        """Append frames, durable on return. A frame that is kept already stays where it is.

        Raises:
            StorageFull: the bound on bytes, or the disk, is reached; nothing was kept.
        """
        ...

    def load(self) -> list[bytes]:
        """Return all frames, oldest first."""
        ...

    def remove(self, keys: Collection[tuple[int, int]]) -> None:
        """Forget the frames with these (epoch, base)."""
        ...

    def close(self) -> None:
        """Close. Twice does nothing."""
        ...
