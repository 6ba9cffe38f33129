"""Delivery to subscribers: recent records from memory, older ones from the journal."""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from typing import NamedTuple

import structlog

from flyball.app.bus.ports import BrokerLimits
from flyball.app.bus.wire import CLOSED, EVENTS, EVENTS_FORM, ID_FORM, Subscribe
from flyball.app.core import FlyballError
from flyball.app.events.frames import Record, checksum_of
from flyball.app.journal import Fenced, Journal
from flyball.app.journal.database import ServerUnavailable

READ_RECORDS = 1024
SKIPPED_POSITIONS = 1024
"""Positions of events of other types after which a subscriber is sent its new cursor."""


class Piece(NamedTuple):
    """Raw records of the selected types; the last position read, and the checksum of its record (0 without one)."""

    raws: list[bytes]
    position: int
    checksum: int


class RecentRecords:
    """The latest records in memory, up to ``max_bytes``. ``head`` is the position of the journal's last event."""

    def __init__(self, head: int, max_bytes: int) -> None:
        self.head = head
        self._max_bytes = max_bytes
        self._bytes = 0
        self._firsts: list[int] = []
        self._records: list[tuple[tuple[str, ...], bytes]] = []
        self._dropped = 0

    def extend(self, records: Sequence[Record]) -> None:
        """Add the next records and drop the oldest beyond the bound."""
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
        """Return whether all records after a position are in memory."""
        return after >= self.head or (self._dropped < len(self._firsts) and after + 1 >= self._firsts[self._dropped])

    def read(self, after: int, types: AbstractSet[str] | None, max_bytes: int) -> Piece:
        """Return selected records after a position in memory, up to the record that exceeds ``max_bytes``."""
        if after >= self.head:
            return Piece([], after, 0)
        start = max(bisect_right(self._firsts, after + 1) - 1, self._dropped)
        raws, size = [], 0
        for i in range(start, len(self._records)):
            names, raw = self._records[i]
            if types is None or any(name in types for name in names):
                raws.append(raw)
                size += len(raw)
                if size > max_bytes and i + 1 < len(self._records):
                    return Piece(raws, self._firsts[i + 1] - 1, checksum_of(raw))
        return Piece(raws, self.head, checksum_of(self._records[-1][1]))


class SubscriptionCursor:
    """The broker's state of a subscription: its position and credit.

    Bytes that the client holds from an earlier opening (``request.held``) count as one delivery.
    """

    def __init__(self, request: Subscribe, position: int) -> None:
        self.number, self.types, self.position = request.id, request.types, position
        self._sent = position
        self._credit = request.credit - request.held
        self._unconsumed = deque([(position, request.held)] if request.held else ())
        self._catching_up = True

    def is_due(self, head: int) -> bool:
        """Return whether there is credit, and events or a notice that the subscription has caught up to send."""
        return self._credit > 0 and (self.position < head or self._catching_up)

    def fall_behind(self) -> None:
        """Mark the subscription as catching up from the journal."""
        self._catching_up = True

    def consume(self, position: int) -> None:
        """Restore the credit of all deliveries up to a position."""
        while self._unconsumed and self._unconsumed[0][0] <= position:
            self._credit += self._unconsumed.popleft()[1]

    def deliver(self, piece: Piece, head: int) -> list[bytes] | None:
        """Advance over a piece of the journal; return any due message."""
        self.position = piece.position
        caught_up = self.position >= head
        news = piece.raws or (self._catching_up and caught_up)
        if not news and self.position - self._sent < SKIPPED_POSITIONS:
            return None
        message = [EVENTS_FORM.pack(EVENTS, self.number, self._sent, self.position, head, piece.checksum), *piece.raws]
        size = sum(map(len, message))
        self._credit -= size
        self._unconsumed.append((self.position, size))
        self._sent = self.position
        if caught_up:
            self._catching_up = False
        return message


class Fanout:
    """All subscriptions of a broker."""

    def __init__(self, journal: Journal, limits: BrokerLimits) -> None:
        self._journal, self._limits = journal, limits
        self._recent = RecentRecords(journal.head, limits.recent_bytes)
        self._cursors: dict[tuple[bytes, int], SubscriptionCursor] = {}
        self._numbers: dict[bytes, set[int]] = {}

    def add(self, peer: bytes, request: Subscribe, position: int) -> None:
        """Open a subscription that begins after ``position``."""
        self._cursors[peer, request.id] = SubscriptionCursor(request, position)
        self._numbers.setdefault(peer, set()).add(request.id)

    def count(self, peer: bytes) -> int:
        """Return the number of a peer's subscriptions."""
        return len(self._numbers.get(peer, ()))

    def consume(self, peer: bytes, number: int, position: int) -> None:
        """Restore a subscription's credit; a closed subscription is ignored."""
        if cursor := self._cursors.get((peer, number)):
            cursor.consume(position)

    def remove(self, peer: bytes, number: int | None = None) -> None:
        """Close one subscription of a peer, or all; closed ones are ignored."""
        numbers = self._numbers.get(peer, set())
        for closed in tuple(numbers) if number is None else (number,):
            self._cursors.pop((peer, closed), None)
            numbers.discard(closed)
        if not numbers:
            self._numbers.pop(peer, None)

    def extend(self, records: Sequence[Record]) -> None:
        """Add records that are now durable."""
        self._recent.extend(records)

    def deliver(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Iterate over one round of messages, at most one for each subscription.

        Up to ``laggards_per_round`` subscriptions are served from the journal. The caller may remove subscriptions
        between two messages, because an unreachable peer loses all its subscriptions.
        """
        head, laggards = self._recent.head, self._limits.laggards_per_round
        for key in list(self._cursors):
            cursor = self._cursors.get(key)
            if cursor is None or not cursor.is_due(head):
                continue
            if self._recent.holds(cursor.position):
                piece = self._recent.read(cursor.position, cursor.types, self._limits.delivery_bytes)
                message = cursor.deliver(piece, head)
            elif laggards:
                laggards -= 1
                self._cursors[key] = self._cursors.pop(key)  # so that the others come first in the next round
                message = self._catch_up(key, cursor, head)
            else:
                continue
            if message is not None:
                yield key[0], message

    def has_more(self) -> bool:
        """Return whether another round would deliver something."""
        return any(cursor.is_due(self._recent.head) for cursor in self._cursors.values())

    def _catch_up(self, key: tuple[bytes, int], cursor: SubscriptionCursor, head: int) -> list[bytes] | None:
        """Serve a subscription from the journal. An unreadable record ends only this subscription.

        A journal that is another broker's by now, or whose server is away, ends the broker.
        """
        cursor.fall_behind()
        try:
            chunk = self._journal.read(
                cursor.position, limit=READ_RECORDS, max_bytes=self._limits.delivery_bytes, types=cursor.types
            )
        except (Fenced, ServerUnavailable):
            raise
        except FlyballError as error:
            structlog.get_logger("bus").error(
                "subscription closed", peer=key[0].hex(), position=cursor.position, error=str(error)
            )
            self.remove(*key)
            return [ID_FORM.pack(CLOSED, cursor.number), str(error).encode()]
        piece = Piece([record.raw for record in chunk.records], chunk.position, chunk.checksum)
        return cursor.deliver(piece, head)
