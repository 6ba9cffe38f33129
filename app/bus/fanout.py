"""Fan-out to subscribers: live ones from memory, laggards from the journal. No sockets."""

from collections.abc import Iterator, Sequence

import structlog

from app.bus.limits import BrokerLimits
from app.bus.ports import Ledger
from app.bus.reader import Reader
from app.bus.recent import Piece, Recent
from app.bus.wire import CLOSED, ID_FORM, Subscribe
from app.core import FlyballError
from app.events.frames import Record

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
