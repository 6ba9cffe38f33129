"""The invariants, checked at each commit, acknowledgement and delivery."""

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
    """Sees all commits, acknowledgements and deliveries; raises ``Violation`` at the first that breaks an invariant.

    Attributes:
        lost_daemons: the daemons that the journal knows; True for those that it counts as lost.
        frames_were_lost: a frame was lost alone; it may then be refused out of its turn, and in its turn again.
    """

    def __init__(self) -> None:
        self._ids: list[int] = []  # hashed ids, by position
        self.lost_daemons: dict[str, bool] = {}
        self.frames_were_lost = False
        self._types: list[str] = []
        self._positions: dict[int, int] = {}
        self._unreadable: set[int] = set()  # positions
        self._checksums: dict[int, int] = {}  # of records, by last position
        self._recorded_us = 0
        self._next: dict[tuple[str, int], int] = {}  # number after the latest recorded one, by producer and epoch
        self._promised: dict[int, str] = {}  # why events must be recorded, by hashed id
        self._refused: set[int] = set()
        self._refused_frames: set[bytes] = set()

    @property
    def head(self) -> int:
        """Position of the last event."""
        return len(self._ids)

    def recorded(self, records: Sequence[Record], dead_letters: Sequence[DeadLetter], writer: int, owner: int) -> None:
        """Check a commit by the broker of epoch ``writer`` to the journal of the broker of epoch ``owner``."""
        check(writer == owner, "the broker of epoch {} wrote in epoch {}", writer, owner)
        for record in records:
            self._check_record(record)
        for dead in dead_letters:
            if dead.position:
                check(dead.position in self._unreadable, "position {} is a dead letter and readable", dead.position)
            else:
                self._check_refusal(dead)

    def _check_record(self, record: Record) -> None:
        frame, key = record.frame, (record.frame.producer, record.frame.epoch)
        check(record.first == self.head + 1, "a record begins at {} after {}", record.first, self.head)
        check(record.recorded_us >= self._recorded_us, "recorded time goes back at {}", record.first)
        check(record.source == frame.producer, "{} recorded as from {}", frame.producer, record.source)
        check(frame.base >= self._next.get(key, 0), "{} of {} comes after a later one", frame.base, key)
        self._next[key], self._recorded_us = frame.base + frame.count, record.recorded_us
        for event, type_ref, body in zip(frame.ids, frame.type_refs, frame.bodies(), strict=True):
            check(event not in self._positions, "an event is recorded twice, first at {}", self._positions.get(event))
            check(publishers.get(event, record.source) == record.source, "an event of {} is another's", record.source)
            self._ids.append(event)
            self._types.append(frame.types[type_ref])
            self._positions[event] = self.head
            if body == UNREADABLE:
                self._unreadable.add(self.head)
            elif self._types[-1] in READ_TYPES:
                self._check_presence(decode(body).data)
        self._checksums[record.last] = record.checksum

    def _check_presence(self, fact: Payload) -> None:
        """Check that the broker's facts about daemons contradict none before them (ADR-009)."""
        lost = self.lost_daemons
        match fact:
            case DaemonStarted(daemon=daemon, node=node) | DaemonReady(daemon=daemon, node=node):
                lost[f"{daemon}@{node}"] = False
            case DaemonStopped(daemon=daemon, node=node):
                lost.pop(f"{daemon}@{node}", None)
            case NodeLost(daemon=daemon, node=node):
                check(lost.get(f"{daemon}@{node}") is False, "NodeLost of {} contradicts earlier facts", daemon)
                lost[f"{daemon}@{node}"] = True
            case NodeReturned(daemon=daemon, node=node):
                check(lost.get(f"{daemon}@{node}") is True, "NodeReturned of {} contradicts earlier facts", daemon)
                lost[f"{daemon}@{node}"] = False
            case RollCall(daemons=daemons):
                called = {f"{entry.daemon}@{entry.node}": entry.lost for entry in daemons}
                check(called == lost, "a roll call names {}, the journal {}", called, lost)

    def _check_refusal(self, dead: DeadLetter) -> None:
        frame = Frame.parse(dead.body)
        check(any(each in BROKER_ONLY for each in frame.types), "a sound frame of {} is refused", dead.producer)
        is_new = dead.body not in self._refused_frames
        check(is_new or self.frames_were_lost, "a frame of {} is two dead letters", dead.producer)
        self._refused_frames.add(dead.body)
        self._refused.update(frame.ids)

    def acknowledged(self, program: str, ids: Sequence[int], positions: Sequence[int]) -> None:
        """Check the positions that a program gets for its events."""
        for event, position in zip(ids, positions, strict=True):
            self._promised[event] = f"acknowledged to {program} at {position}"
            recorded_at = self._positions.get(event)
            check(recorded_at == position, "{} gets position {} for an event at {}", program, position, recorded_at)

    def refused(self, program: str, ids: Sequence[int]) -> None:
        """Check a refusal that a program gets: one of the events, or one in the same frame, is in a dead letter."""
        check(any(event in self._refused for event in ids), "an event of {} is refused, but no dead letter", program)

    def kept(self, frames: Sequence[bytes]) -> None:
        """Note the frames that an outbox keeps."""
        for raw in frames:
            self._promised.update((event, "kept in an outbox") for event in Frame.parse(raw).ids)

    def dropped(self, raw: bytes) -> None:
        """Check a frame that an outbox deletes."""
        check(self.is_settled(raw), "an outbox deletes an event that is nowhere")

    def is_settled(self, raw: bytes) -> bool:
        """Return True if all events of a frame are recorded or refused."""
        return all(map(self._has, Frame.parse(raw).ids))

    def delivered(self, program: str, types: Collection[str] | None, start: int, batch: Batch) -> None:
        """Check a delivery: all events of some types after a position, each once and in order."""
        wanted = self._wanted(types, start, batch.position)
        newest = max(batch.position, batch.head)  # a superseded broker may read more than it knows of
        check(newest <= self.head, "{} reads up to {} of {}", program, newest, self.head)
        got = [event.sequence for event in batch.events]
        check(got == wanted, "{} gets {} where {} follow {}", program, got, wanted, start)
        for event in batch.events:
            check(hash_id(event.id) == self._ids[event.sequence - 1], "{} gets another event", program)
        if batch.checksum:
            check(batch.checksum == self._checksums[batch.position], "{} gets a wrong checksum", program)

    def unreadable(self, types: Collection[str] | None, start: int, end: int) -> list[int]:
        """Return positions of unreadable events of some types after a position."""
        return [at for at in sorted(self._unreadable) if start < at <= end and self._is_of(at, types)]

    def digest(self, types: Collection[str] | None, start: int, end: int) -> int:
        """Return the state of a consumer that has folded some events exactly once."""
        digest = 0
        for position in self._wanted(types, start, end):
            digest = folded(digest, self._ids[position - 1])
        return digest

    def has_news(self, types: Collection[str] | None, start: int) -> bool:
        """Return True if events of some types follow a position."""
        return bool(self._wanted(types, start, self.head))

    def check_promises(self) -> None:
        """Check that everything that was acknowledged or kept is recorded."""
        for event, promise in self._promised.items():
            check(self._has(event), "an event is lost that was {}", promise)

    def _has(self, event: int) -> bool:
        """Return True if an event is recorded or refused."""
        return event in self._positions or event in self._refused

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
