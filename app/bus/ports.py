"""The bus as programs see it: its ports, its errors, a broker's limits, and what only the broker may publish."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic import Field

from app.config import Settings
from app.core import FlyballError
from app.events import Envelope, Event, Payload, RunConfigured
from app.events.frames import DeadLetter, Frame

BROKER_ONLY = frozenset({RunConfigured.event_type})
"""Types that the broker alone publishes: settings are validated against the run's past before they are recorded."""


class BusError(FlyballError):
    """Base of the bus's errors."""


class BrokerUnavailable(BusError):
    """The broker did not acknowledge in time.

    Attributes:
        endpoint: its address.
        seconds: the deadline.
        queued: the event is in the durable outbox and will be sent when the broker is back, also by another
            process with the same outbox. Otherwise it is in this process's memory only.
    """

    def __init__(self, endpoint: str, seconds: float, *, queued: bool) -> None:
        fate = (
            "The event is kept in the outbox and will be sent."
            if queued
            else "The event is kept in memory only: publish it again under the same id, that records it once."
        )
        super().__init__(
            f"The broker at {endpoint} did not acknowledge within {seconds:g} s. {fate}",
            hint="Look whether the broker runs: `flyball status`.",
        )
        self.endpoint, self.seconds, self.queued = endpoint, seconds, queued


class PublishRefused(BusError):
    """The broker refused a frame; publishing it unchanged will fail again."""


class EventTooLarge(BusError):
    """An event is larger than the bus carries."""


class InsecureEndpoint(BusError):
    """Other machines can reach the address, and nothing would protect it."""


class BusClosed(BusError):
    """The bus was closed."""


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


def check_rights(frame: Frame) -> None:
    """Raise ``PublishRefused`` for a client's frame that holds an event of a type in ``BROKER_ONLY``."""
    if reserved := sorted(BROKER_ONLY.intersection(frame.types)):
        raise PublishRefused(
            f"Only the broker publishes {', '.join(reserved)}.",
            hint="To change a run's settings, change flyball.toml and start the run again.",
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """Events that arrived together.

    Attributes:
        events: those of the types asked for, in order. May be empty: the subscription has caught up, or its cursor
            advances over events of other types.
        position: the cursor after this batch.
        head: position of the journal's last event when this was sent; ``position >= head``: caught up.
    """

    events: tuple[Event[Any], ...]
    position: int
    head: int


class Subscription(Protocol):
    """An async iterator of batches, and an async context manager: inside it, the subscription is established."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Wait for the next batch. Each event comes once and in order; none is left out."""
        ...

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the iteration. Idempotent."""
        ...


class Bus(Protocol):
    """Publishes and delivers events."""

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Publish an event and return its position, once it is durable.

        An event whose id is among the latest million is not recorded again: its first position is returned (0 when it
        was sent before, but so long ago that its position is no longer known).

        Raises:
            BrokerUnavailable: not acknowledged in time; says whether it waits in the outbox.
            PublishRefused: the broker refused it.
            EventTooLarge: it exceeds the bound.
        """
        ...

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Publish events in order and return their positions, once all are durable."""
        ...

    def subscribe(self, types: Collection[type[Payload]] | None = None, *, after: int | None = None) -> Subscription:
        """Subscribe to events.

        Args:
            types: payload classes wanted; None for all.
            after: begin after this position; None for the head.
        """
        ...

    async def bury(self, dead_letter: DeadLetter) -> None:
        """Keep a dead letter; durable on return. A reporter's dead letter about a position is kept once.

        Raises:
            BrokerUnavailable: not answered in time.
        """
        ...

    async def close(self) -> None:
        """Close the bus and its subscriptions. Idempotent."""
        ...
