"""Ids of recent events, to recognise repetitions."""

from collections import deque
from collections.abc import Sequence
from itertools import count

from pydantic import Field

from app.config import Settings


class BrokerLimits(Settings):
    """Limits of one broker. Beyond them a client is refused or slowed down, never the others."""

    max_message_bytes: int = Field(default=4 << 20, ge=1 << 16, description="a larger message breaks its connection")
    max_sessions: int = Field(default=8192, ge=1, description="connections that said hello")
    retry_ms: int = Field(default=2000, ge=1, description="after which one connection too many may ask again")
    max_subscriptions: int = Field(default=64, ge=1, description="of one connection")
    events_per_second: int = Field(default=500_000, ge=1, description="of one producer, averaged over two seconds")
    drain_messages: int = Field(default=512, ge=1, description="read before the next transaction")
    drain_bytes: int = Field(default=8 << 20, ge=1, description="read before the next transaction")
    recent_bytes: int = Field(default=32 << 20, ge=0, description="last records kept in memory")
    delivery_bytes: int = Field(default=256 << 10, ge=1, description="sent to a subscriber in one message")
    laggards_per_round: int = Field(default=4, ge=1, description="subscribers served from the journal at a time")


WINDOW = 1_000_000


class IdWindow:
    """The hashes of the last event ids, and the position of each.

    Args:
        size: how many events are remembered at least; frames are forgotten whole.
    """

    def __init__(self, size: int = WINDOW) -> None:
        self._size = size
        self._positions: dict[int, int] = {}
        self._frames: deque[Sequence[int]] = deque()

    def __len__(self) -> int:
        return len(self._positions)

    def remember(self, ids: Sequence[int], first: int) -> None:
        """Remember a frame of new events at the positions from ``first`` on."""
        positions, frames = self._positions, self._frames
        positions.update(zip(ids, count(first), strict=False))
        frames.append(ids)
        while len(positions) - len(frames[0]) >= self._size:
            for old in frames.popleft():
                positions.pop(old, None)

    def is_new(self, ids: Sequence[int]) -> bool:
        """Return whether none of the ids is remembered or occurs twice."""
        return self._positions.keys().isdisjoint(ids) and len(set(ids)) == len(ids)

    def position(self, event_id: int) -> int:
        """Return an event's position; 0 when it is not remembered."""
        return self._positions.get(event_id, 0)
