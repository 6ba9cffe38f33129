"""A witness of all that brokers and programs do, and the invariants that it checks."""

from collections.abc import Collection, Sequence
from zlib import crc32

from bus_simulation.workload import publishers
from bus_simulation.world import Violation
from flyball.app.bus.ports import BROKER_ONLY, Batch
from flyball.app.bus.presence import READ_TYPES
from flyball.app.events import (
    DaemonReady,
    DaemonStarted,
    DaemonStopped,
    NodeLost,
    NodeReturned,
    Payload,
    RollCall,
    decode,
)
from flyball.app.events.frames import DeadLetter, Frame, Record, hash_id

UNREADABLE = b"{"


class Witness:
    """Sees all commits, acknowledgements and deliveries; raises ``Violation`` at the first that breaks a guarantee."""

    def __init__(self) -> None:
        self.ids: list[int] = []  # hashed ids, by position
        self._types: list[str] = []
        self._positions: dict[int, int] = {}
        self._unreadable: set[int] = set()  # positions
        self._checksums: dict[int, int] = {}  # of records, by last position
        self._recorded_us = 0
        self._next: dict[tuple[str, int], int] = {}  # number after the latest recorded one, by producer and epoch
        self._promised: dict[int, str] = {}  # why events must be recorded, by hashed id
        self.frames_were_lost = False  # then a frame may be refused out of its turn, and in its turn again
        self._refused: set[int] = set()
        self._refused_frames: set[bytes] = set()
        self.lost_daemons: dict[str, bool] = {}  # daemons that the journal knows; True if it says that they are lost

    @property
    def head(self) -> int:
        """Position of the last event."""
        return len(self.ids)

    def recorded(self, records: Sequence[Record], dead_letters: Sequence[DeadLetter], writer: int, owner: int) -> None:
        """See a commit by the broker of an epoch, while another may own the journal."""
        check(writer == owner, "the broker of epoch {} wrote in epoch {}", writer, owner)
        for record in records:
            self._see(record)
        for dead in dead_letters:
            if dead.position:
                check(dead.position in self._unreadable, "position {} is a dead letter and readable", dead.position)
            else:
                self._see_refusal(dead)

    def _see(self, record: Record) -> None:
        frame, key = record.frame, (record.frame.producer, record.frame.epoch)
        check(record.first == self.head + 1, "a record begins at {} after {}", record.first, self.head)
        check(record.recorded_us >= self._recorded_us, "recorded time goes back at {}", record.first)
        check(record.source == frame.producer, "{} recorded as from {}", frame.producer, record.source)
        check(frame.base >= self._next.get(key, 0), "{} of {} comes after a later one", frame.base, key)
        self._next[key], self._recorded_us = frame.base + frame.count, record.recorded_us
        for event, type_ref, body in zip(frame.ids, frame.type_refs, frame.bodies(), strict=True):
            check(event not in self._positions, "an event is recorded twice, first at {}", self._positions.get(event))
            check(publishers.get(event, record.source) == record.source, "an event of {} is another's", record.source)
            self.ids.append(event)
            self._types.append(frame.types[type_ref])
            self._positions[event] = self.head
            if body == UNREADABLE:
                self._unreadable.add(self.head)
            elif self._types[-1] in READ_TYPES:
                self._see_presence(decode(body).data)
        self._checksums[record.last] = record.checksum

    def _see_presence(self, fact: Payload) -> None:
        """Check that the broker's facts about daemons contradict none before them (ADR-009)."""
        lost = self.lost_daemons
        match fact:
            case DaemonStarted(daemon=daemon, node=node) | DaemonReady(daemon=daemon, node=node):
                lost[f"{daemon}@{node}"] = False
            case DaemonStopped(daemon=daemon, node=node):
                lost.pop(f"{daemon}@{node}", None)
            case NodeLost(daemon=daemon, node=node) | NodeReturned(daemon=daemon, node=node):
                is_lost = isinstance(fact, NodeLost)
                contradicts = lost.get(f"{daemon}@{node}") is not (not is_lost)
                check(not contradicts, "{} of {} contradicts the facts before it", type(fact).__name__, daemon)
                lost[f"{daemon}@{node}"] = is_lost
            case RollCall(daemons=daemons):
                called = {f"{entry.daemon}@{entry.node}": entry.lost for entry in daemons}
                check(called == lost, "a roll call names {}, the journal {}", called, lost)

    def _see_refusal(self, dead: DeadLetter) -> None:
        frame = Frame.parse(dead.body)
        check(not BROKER_ONLY.isdisjoint(frame.types), "a sound frame of {} is refused", dead.producer)
        is_new = dead.body not in self._refused_frames
        check(is_new or self.frames_were_lost, "a frame of {} is two dead letters", dead.producer)
        self._refused_frames.add(dead.body)
        self._refused.update(frame.ids)

    def acknowledged(self, who: str, ids: Sequence[int], positions: Sequence[int]) -> None:
        """See what a program learns about its events."""
        for event, position in zip(ids, positions, strict=True):
            self._promised[event] = f"acknowledged to {who} at {position}"
            found = self.ids[position - 1] if 0 < position <= self.head else None
            check(found == event, "{} learns that position {} has its event, and it has not", who, position)

    def refused(self, who: str, ids: Sequence[int]) -> None:
        """See that a program learns that one of its events, or one in the same frame, is refused."""
        check(not self._refused.isdisjoint(ids), "{} learns that events are refused; they are no dead letters", who)

    def kept(self, frames: Sequence[bytes]) -> None:
        """See what an outbox keeps."""
        for raw in frames:
            self._promised.update((event, "kept in an outbox") for event in Frame.parse(raw).ids)

    def dropped(self, raw: bytes) -> None:
        """See what an outbox deletes."""
        check(self.is_settled(raw), "an outbox deletes an event that is nowhere")

    def is_settled(self, raw: bytes) -> bool:
        """Return whether all events of a frame are recorded or refused."""
        return all(event in self._positions or event in self._refused for event in Frame.parse(raw).ids)

    def delivered(self, who: str, types: Collection[str] | None, start: int, batch: Batch) -> None:
        """See a delivery: all events of some types after a position, each once and in order."""
        wanted = self._wanted(types, start, batch.position)
        newest = max(batch.position, batch.head)  # a superseded broker may read more than it knows of
        check(newest <= self.head, "{} reads up to {} of {}", who, newest, self.head)
        got = [event.sequence for event in batch.events]
        check(got == wanted, "{} gets {} where {} follow {}", who, got, wanted, start)
        for event in batch.events:
            check(hash_id(event.id) == self.ids[event.sequence - 1], "{} gets another event", who)
        if batch.checksum:
            check(batch.checksum == self._checksums[batch.position], "{} gets a wrong checksum", who)

    def unreadable(self, types: Collection[str] | None, start: int, end: int) -> list[int]:
        """Return positions of unreadable events of some types after a position."""
        return [at for at in sorted(self._unreadable) if start < at <= end and self._is_of(at, types)]

    def digest(self, types: Collection[str] | None, start: int, end: int) -> int:
        """Return the state of a consumer that has folded some events exactly once."""
        digest = 0
        for position in self._wanted(types, start, end):
            digest = folded(digest, self.ids[position - 1])
        return digest

    def has_news(self, types: Collection[str] | None, start: int) -> bool:
        """Return whether events of some types follow a position."""
        return bool(self._wanted(types, start, self.head))

    def check_promises(self) -> None:
        """Check that everything that was acknowledged or kept is recorded."""
        for event, why in self._promised.items():
            check(event in self._positions or event in self._refused, "an event is lost that was {}", why)

    def _wanted(self, types: Collection[str] | None, start: int, end: int) -> list[int]:
        return [at for at in range(start + 1, end + 1) if self._is_of(at, types) and at not in self._unreadable]

    def _is_of(self, position: int, types: Collection[str] | None) -> bool:
        return types is None or self._types[position - 1] in types


def folded(digest: int, event: int) -> int:
    """Fold an event, by its hashed id, into a state that shows order, gaps and repetitions."""
    return crc32(event.to_bytes(8, "little"), digest)


def check(holds: bool, template: str, *values: object) -> None:
    """Raise ``Violation`` unless an invariant holds."""
    if not holds:
        raise Violation(template.format(*values))
