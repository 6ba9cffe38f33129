"""Limits of a broker."""

from pydantic import Field

from app.config import Settings

BURST_S = 2.0


class BrokerLimits(Settings):
    """Limits of one broker. Beyond them a client is refused or slowed down, never the others."""

    max_message_bytes: int = Field(default=4 << 20, ge=1 << 16, description="a larger message breaks its connection")
    max_sessions: int = Field(default=8192, ge=1, description="connections after their hello")
    retry_ms: int = Field(default=2000, ge=1, description="after which one connection too many may ask again")
    max_subscriptions: int = Field(default=64, ge=1, description="of one connection")
    events_per_second: int = Field(default=500_000, ge=1, description="of one producer, averaged over two seconds")
    drain_messages: int = Field(default=512, ge=1, description="read before the next transaction")
    drain_bytes: int = Field(default=8 << 20, ge=1, description="read before the next transaction")
    recent_bytes: int = Field(default=32 << 20, ge=0, description="last records kept in memory")
    delivery_bytes: int = Field(default=256 << 10, ge=1, description="sent to a subscriber in one message")
    laggards_per_round: int = Field(default=4, ge=1, description="subscribers served from the journal at a time")


class RateLimiter:
    """A token bucket for each producer, of two seconds' worth; a new connection brings no new bucket.

    Args:
        rate: events per second of one producer.
    """

    def __init__(self, rate: float) -> None:
        self._rate, self._capacity = rate, BURST_S * rate
        self._buckets: dict[str, tuple[float, float]] = {}  # tokens, and the time they were counted

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, producer: str, count: int, now: float) -> float:
        """Take tokens if there are any and return 0, else the seconds to wait. One call may overdraw."""
        tokens = self._tokens(producer, now)
        if tokens <= 0:
            return -tokens / self._rate + 0.001
        self._buckets[producer] = tokens - count, now
        return 0.0

    def drop_full(self, now: float) -> None:
        """Drop full buckets: a new one is as good."""
        for producer in [one for one in self._buckets if self._tokens(one, now) >= self._capacity]:
            del self._buckets[producer]

    def _tokens(self, producer: str, now: float) -> float:
        tokens, then = self._buckets.get(producer, (self._capacity, now))
        return min(tokens + (now - then) * self._rate, self._capacity)
