"""Who gets what of the journal: live subscribers from memory, laggards from the journal. No sockets."""

from collections.abc import Iterator, Sequence

from app.bus.limits import BrokerLimits
from app.bus.ports import Ledger
from app.bus.reader import Reader
from app.bus.recent import Piece, Recent
from app.bus.wire import Subscribe
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

    def add(self, peer: bytes, wanted: Subscribe, position: int) -> None:
        """Open a subscription that begins after ``position``."""
        reader = Reader(wanted.id, wanted.types, position, wanted.credit)
        self._readers[peer, wanted.id] = reader

    def count(self, peer: bytes) -> int:
        """Return the number of a peer's subscriptions."""
        return sum(owner == peer for owner, _ in self._readers)

    def consumed(self, peer: bytes, number: int, position: int) -> None:
        """Return credit. A subscription that was closed meanwhile needs none."""
        if reader := self._readers.get((peer, number)):
            reader.consumed(position)

    def remove(self, peer: bytes, number: int | None = None) -> None:
        """Close one subscription of a peer, or all."""
        for key in [k for k in self._readers if k[0] == peer and number in (None, k[1])]:
            del self._readers[key]

    def extend(self, records: Sequence[Record]) -> None:
        """Add what was just made durable."""
        self._recent.extend(records)

    def deliver(self) -> Iterator[tuple[bytes, list[bytes]]]:
        """Iterate over one round of messages: at most one a subscription, and few that need the journal."""
        head, laggards = self._recent.head, self._limits.laggards_per_round
        for key, reader in list(self._readers.items()):
            if not reader.is_due(head):
                continue
            if self._recent.holds(reader.position):
                piece = self._recent.read(reader.position, reader.types, self._limits.delivery_bytes)
            elif laggards:
                laggards -= 1
                piece = self._from_journal(reader)
                self._readers[key] = self._readers.pop(key)  # the others' turn comes first next time
            else:
                continue
            message = reader.deliver(piece, head)
            if message is not None:
                yield key[0], message

    def has_more(self) -> bool:
        """Whether another round would deliver something."""
        return any(reader.is_due(self._recent.head) for reader in self._readers.values())

    def _from_journal(self, reader: Reader) -> Piece:
        reader.fell_behind()
        chunk = self._journal.read(
            reader.position, limit=READ_RECORDS, max_bytes=self._limits.delivery_bytes, types=reader.types
        )
        return Piece([record.raw for record in chunk.records], chunk.position)
