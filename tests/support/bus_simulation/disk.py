"""Disks: a journal that brokers share, outboxes and programs' saved state.

A write is wholly there or not, also if it fails: after a failed fsync the pages may be on the disk.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from memory_outbox import MemoryOutbox

from bus_simulation.witness import Witness
from bus_simulation.world import Killed, World
from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal import Fenced, KnownRecord, Snapshot
from flyball.app.journal.database import StorageError, StorageFull
from flyball.app.journal.memory import MemoryJournal
from flyball.app.journal.ports import Chunk


class SharedJournal:
    """The part of a journal that brokers share: the records, and the epoch of the broker that may write.

    Attributes:
        epoch: counts takeovers.
        renewed: time at which the broker that may write last showed life.
        shows_new_head: a superseded broker reads its successor's head, as from a database without a cache.
    """

    def __init__(self, world: World, witness: Witness) -> None:
        self.world, self.witness = world, witness
        self.content = MemoryJournal()
        self.epoch, self.renewed = 0, -1000.0
        self.shows_new_head = world.rng.random() < 0.5


class OwnedJournal:
    """A broker's journal from its takeover until the next one, after which it writes nothing; see ``Journal``."""

    def __init__(self, shared: SharedJournal) -> None:
        shared.epoch += 1
        self._shared, self._content, self._epoch = shared, shared.content, shared.epoch
        self._head = shared.content.head
        self.recorded_us = shared.content.recorded_us
        self.renew()

    def renew(self) -> None:
        """Show that this broker lives."""
        if self._epoch == self._shared.epoch:
            self._shared.renewed = self._shared.world.now

    @property
    def head(self) -> int:
        return self._content.head if self._shared.shows_new_head else self._head

    @property
    def first(self) -> int:
        return 1

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        dead_letters: Sequence[DeadLetter] = (),
    ) -> None:
        world = self._shared.world
        if world.strikes("broker killed before the commit"):
            raise Killed("before the commit")
        if world.strikes("journal full"):
            raise StorageFull("The journal's disk is full.")
        fails = world.strikes("journal fails, written or not")
        if fails and world.rng.random() < 0.5:
            raise StorageError("The journal was not written.")
        self.check_owner()
        # first, because the content refuses records that do not follow, and the broker would end with that error
        self._shared.witness.recorded(records, dead_letters, self._epoch, self._shared.epoch)
        self._content.append(records, marks=marks, dead_letters=dead_letters)
        if records or dead_letters:
            world.note(f"epoch {self._epoch}", "{} records, head {}", len(records), self._content.head)
        if fails:
            raise StorageError("The journal was written, but fsync failed.")
        if world.strikes("broker killed after the commit"):
            raise Killed("after the commit")
        if records:
            self._head, self.recorded_us = records[-1].last, records[-1].recorded_us

    def check_owner(self) -> None:
        """Raise ``Fenced`` if another broker has taken over."""
        if self._epoch != self._shared.epoch:
            raise Fenced(f"The journal is in epoch {self._shared.epoch}; this broker's was {self._epoch}.")

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk:
        return self._content.read(after, limit=limit, max_bytes=max_bytes, types=types)

    def headers_back(self, upto: int) -> Iterator[Record]:
        return self._content.headers_back(upto)

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]:
        return self._content.ids(after)

    def mark(self, producer: str, epoch: int) -> int | None:
        return self._content.mark(producer, epoch)

    def landmark(self, event_type: str) -> int:
        return self._content.landmark(event_type)

    def landmarks(self) -> Iterator[Record]:
        return self._content.landmarks()

    def snapshot(self, upto: int) -> Snapshot | None:
        return self._content.snapshot(upto)

    def dead_letters(self) -> list[DeadLetter]:
        return self._content.dead_letters()

    def remove_dead_letter(self, number: int) -> bool:
        self.check_owner()
        return self._content.remove_dead_letter(number)

    def maintain(self, *, idle: bool = True) -> None:
        self.renew()

    def close(self) -> None:
        """Do nothing: the content is shared."""


class SimulatedOutbox(MemoryOutbox):
    """An outbox on a program's own disk; see ``Outbox``."""

    def __init__(self, world: World, witness: Witness) -> None:
        super().__init__()
        self._world, self._witness = world, witness

    def put(self, frames: Sequence[bytes]) -> None:
        if self._world.strikes("outbox full"):
            raise StorageFull("The outbox's disk is full.")
        self._write(lambda: self._put(frames))

    def _put(self, frames: Sequence[bytes]) -> None:
        super().put(frames)
        self._witness.kept(frames)

    def remove(self, keys: Collection[tuple[int, int]]) -> None:
        for key in keys:
            if key in self._frames:
                self._witness.dropped(self._frames[key])
        self._write(lambda: super(SimulatedOutbox, self).remove(keys))

    def _write(self, change: Callable[[], None]) -> None:
        fails = self._world.strikes("outbox fails, written or not")
        dies = self._world.strikes("program killed in the outbox")
        if not (fails or dies) or self._world.rng.random() < 0.5:
            change()
        if dies:
            raise Killed("in the outbox")
        if fails:
            raise StorageError("The outbox may be written or not: fsync failed.")


@dataclass(frozen=True, slots=True)
class SavedFold:
    """A consumer's state and cursor, which are saved together.

    Attributes:
        cursor: position of the last event folded; None before the subscription was opened.
        checksum: that of the record at the cursor, 0 if unknown.
        start: position after which the consumer began.
        digest: of all events folded, in order.
    """

    cursor: int | None = None
    checksum: int = 0
    start: int = 0
    digest: int = 0

    @property
    def known(self) -> KnownRecord | None:
        """The latest record that the consumer knows."""
        return KnownRecord(self.cursor, self.checksum) if self.cursor else None
