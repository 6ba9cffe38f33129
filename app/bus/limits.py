"""Bounds of the broker."""

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
