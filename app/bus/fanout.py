"""Fan-out to subscribers: live ones from memory, laggards from the journal. No sockets."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

import structlog

from app.bus.ports import Ledger
from app.bus.window import BrokerLimits
from app.bus.wire import CLOSED, EVENTS, EVENTS_FORM, ID_FORM, Subscribe
from app.core import FlyballError
from app.events.frames import Record


@dataclass(frozen=True, slots=True)
class Piece:
    """Raw records, and the last position they cover (or that was passed over)."""

    raws: list[bytes]
    position: int


class Recent:
    """A bounded tail of the journal.

    Args:
        head: position of the journal's last event.
        max_bytes: bound on what is kept.
    """

    def __init__(self, head: int, max_bytes: int) -> None:
        self.head = head
        self._max_bytes = max_bytes
        self._bytes = 0
        self._firsts: list[int] = []
        self._records: list[tuple[tuple[str, ...], bytes]] = []
        self._dropped = 0

    def extend(self, records: Sequence[Record]) -> None:
        """Add the next records and forget the oldest beyond the bound."""
        for record in records:
            self._firsts.append(record.first)
            self._records.append((record.frame.types, record.raw))
            self._bytes += len(record.raw)
            self.head = record.last
        while self._bytes > self._max_bytes and self._dropped < len(self._records) - 1:
            self._bytes -= len(self._records[self._dropped][1])
            self._records[self._dropped] = ((), b"")
            self._dropped += 1
        if self._dropped > 1024 and 2 * self._dropped > len(self._records):
            del self._records[: self._dropped], self._firsts[: self._dropped]
            self._dropped = 0

    def holds(self, after: int) -> bool:
        """Return whether all that follows a position is here."""
        return after >= self.head or (self._dropped < len(self._firsts) and after + 1 >= self._firsts[self._dropped])

    def read(self, after: int, types: AbstractSet[str] | None, max_bytes: int) -> Piece:
        """Return what follows a position that is held, up to and with the record that exceeds ``max_bytes``."""
        if after >= self.head:
            return Piece([], after)
        start = max(bisect_right(self._firsts, after + 1) - 1, self._dropped)
        raws, size = [], 0
        for i in range(start, len(self._records)):
            names, raw = self._records[i]
            if types is None or any(name in types for name in names):
                raws.append(raw)
                size += len(raw)
                if size > max_bytes and i + 1 < len(self._records):
                    return Piece(raws, self._firsts[i + 1] - 1)
        return Piece(raws, self.head)


TELL_AFTER = 1024
"""Most positions skipped before an idle filtered subscriber is sent a cursor to advance to."""


class Reader:
    """Deliveries to one subscriber, and its credit.

    Args:
        number: the subscription's id on its connection.
        types: event types wanted; None for all.
        position: begin after it.
        credit: bound on bytes sent and not yet consumed.
        held: bytes up to ``position`` that were sent by an earlier subscription, and are not consumed yet.
    """

    def __init__(self, number: int, types: frozenset[str] | None, position: int, credit: int, *, held: int = 0) -> None:
        self.number = number
        self.types = types
        self.position = position
        self._told = position
        self._credit = credit - held
        self._unconsumed: deque[tuple[int, int]] = deque([(position, held)] if held else ())
        self._catching_up = True

    def is_due(self, head: int) -> bool:
        """Return whether something may be sent: events, or the end of the journal, and there is credit."""
        return self._credit > 0 and (self.position < head or self._catching_up)

    def fell_behind(self) -> None:
        """Note that it is served from the journal until it has caught up."""
        self._catching_up = True

    def consumed(self, position: int) -> None:
        """Return the credit of all deliveries up to a position."""
        while self._unconsumed and self._unconsumed[0][0] <= position:
            self._credit += self._unconsumed.popleft()[1]

    def deliver(self, piece: Piece, head: int) -> list[bytes] | None:
        """Advance over a piece of the journal and return the message that says so, if one is due."""
        self.position = piece.position
        arrived = self.position >= head
        if not piece.raws and not (self._catching_up and arrived) and self.position - self._told < TELL_AFTER:
            return None
        message = [EVENTS_FORM.pack(EVENTS, self.number, self._told, self.position, head), *piece.raws]
        size = sum(map(len, message))
        self._credit -= size
        self._unconsumed.append((self.position, size))
        self._told = self.position
        if arrived:
            self._catching_up = False
        return message


READ_RECORDS = 1024


class Fanout:
    """All subscriptions of a broker.

    Args:
        journal: what is handed out.
        limits: bounds.
    """

    def __init__(self, journal: Ledger, limits: BrokerLimits) -> None:
        self._journal = journal
        self._limits = limits
        self._recent = Recent(journal.head, limits.recent_bytes)
        self._readers: dict[tuple[bytes, int], Reader] = {}
        self._numbers: dict[bytes, set[int]] = {}

    def add(self, peer: bytes, wanted: Subscribe, position: int) -> None:
        """Open a subscription that begins after ``position``."""
        self._readers[peer, wanted.id] = Reader(wanted.id, wanted.types, position, wanted.credit, held=wanted.held)
        self._numbers.setdefault(peer, set()).add(wanted.id)

    def count(self, peer: bytes) -> int:
        """Return the number of a peer's subscriptions."""
        return len(self._numbers.get(peer, ()))

    def consumed(self, peer: bytes, number: int, position: int) -> None:
        """Return credit. A subscription that was closed meanwhile needs none."""
        if reader := self._readers.get((peer, number)):
            reader.consumed(position)

    def remove(self, peer: bytes, number: int | None = None) -> None:
        """Close one subscription of a peer, or all. Those that are not there are closed already."""
        numbers = self._numbers.get(peer, set())
        for closed in tuple(numbers) if number is None else (number,):
            self._readers.pop((peer, closed), None)
            numbers.discard(closed)
        if not numbers:
            self._numbers.pop(peer, None)

    def extend(self, records: Sequence[Record]) -> None:
        """Add what was just made durable."""
        self._recent.extend(records)

    def deliver(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Iterate over one round of messages: at most one a subscription, and few that need the journal.

        Subscriptions may be removed between two messages: that of a peer that can't be reached takes its others along.
        """
        head, laggards = self._recent.head, self._limits.laggards_per_round
        for key in list(self._readers):
            reader = self._readers.get(key)
            if reader is None or not reader.is_due(head):
                continue
            if self._recent.holds(reader.position):
                piece = self._recent.read(reader.position, reader.types, self._limits.delivery_bytes)
                message = reader.deliver(piece, head)
            elif laggards:
                laggards -= 1
                self._readers[key] = self._readers.pop(key)  # the others' turn comes first next time
                message = self._catch_up(key, reader, head)
            else:
                continue
            if message is not None:
                yield key[0], message

    def has_more(self) -> bool:
        """Return whether another round would deliver something."""
        return any(reader.is_due(self._recent.head) for reader in self._readers.values())

    def _catch_up(self, key: tuple[bytes, int], reader: Reader, head: int) -> list[bytes] | None:
        """Serve one reader from the journal. What can't be read ends this subscription, loudly, and no other."""
        reader.fell_behind()
        try:
            chunk = self._journal.read(
                reader.position, limit=READ_RECORDS, max_bytes=self._limits.delivery_bytes, types=reader.types
            )
        except FlyballError as error:
            structlog.get_logger("bus").error(
                "subscription closed", peer=key[0].hex(), position=reader.position, error=str(error)
            )
            self.remove(*key)
            return [ID_FORM.pack(CLOSED, reader.number), str(error).encode()]
        return reader.deliver(Piece([record.raw for record in chunk.records], chunk.position), head)
