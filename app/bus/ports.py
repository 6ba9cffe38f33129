"""Ports and errors of the bus, broker limits, and rights to publish."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from pydantic import Field

from flyball.app.config import FrozenModel
from flyball.app.core import DaemonName, FlyballError, NodeName
from flyball.app.events import (
    AccessRefused,
    Count,
    Envelope,
    Event,
    NodeLost,
    NodeReturned,
    Payload,
    Position,
    RollCall,
    RunConfigured,
    Seconds,
    Value,
)
from flyball.app.events.frames import DeadLetter, Frame
from flyball.app.journal import Snapshot

BROKER_ONLY = frozenset(
    payload.event_type for payload in (AccessRefused, NodeLost, NodeReturned, RollCall, RunConfigured)
)
"""Event types that only the broker publishes.

The broker validates settings against the run's past first. Clients could hide their own refusals among invented ones.
A false report of a lost daemon would take work from a living one.
"""


class BusError(FlyballError):
    """Base of the bus's errors."""


class OtherHistory(BusError):
    """A restored or exchanged journal, which does not hold a record that this program has read."""


class BrokerUnavailable(BusError, code="unavailable"):
    """The broker did not acknowledge in time.

    Attributes:
        endpoint: the broker's address.
        seconds: the deadline.
        queued: the outbox holds the event; it is sent when the broker is back, also by another process with this
            outbox. Otherwise the event is in this process's memory only.
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
    """An event exceeds the bus's size limit."""


class InsecureEndpoint(BusError):
    """Other machines can reach the address, and clients are not authenticated."""


class BusClosed(BusError):
    """The bus was closed."""


class BrokerLimits(FrozenModel):
    """Limits of one broker. Only the client that exceeds a limit is refused or slowed down."""

    max_message_bytes: int = Field(default=4 << 20, ge=1 << 16, description="a larger message breaks its connection")
    max_sessions: int = Field(default=8192, ge=1, description="connections after their hello")
    max_sessions_per_key: int = Field(default=256, ge=1, description="connections with one key, after their hello")
    retry_ms: int = Field(default=2000, ge=1, description="after which one connection too many may ask again")
    max_subscriptions: int = Field(default=64, ge=1, description="of one connection")
    events_per_second: int = Field(default=500_000, ge=1, description="of one producer, averaged over two seconds")
    drain_messages: int = Field(default=512, ge=1, description="read before the next transaction")
    drain_bytes: int = Field(default=8 << 20, ge=1, description="read before the next transaction")
    recent_bytes: int = Field(default=32 << 20, ge=0, description="last records kept in memory")
    delivery_bytes: int = Field(default=256 << 10, ge=1, description="sent to a subscriber in one message")
    laggards_per_round: int = Field(default=4, ge=1, description="subscribers served from the journal at a time")
    silent_seconds: float = Field(default=9.0, gt=0, description="without a sign of life, after which a daemon is lost")


def check_rights(frame: Frame) -> None:
    """Raise ``PublishRefused`` if a frame holds an event of a ``BROKER_ONLY`` type."""
    if reserved := sorted(BROKER_ONLY.intersection(frame.types)):
        changes = RunConfigured.event_type in reserved
        hint = "To change a run's settings, change flyball.toml and start the run again." if changes else ""
        raise PublishRefused(f"Only the broker publishes {', '.join(reserved)}.", hint=hint)


@dataclass(frozen=True, slots=True)
class Batch:
    """Events delivered together.

    Attributes:
        events: events of the subscribed types, in order. Empty when the subscription has caught up, or when its cursor
            skips events of other types.
        position: the cursor after this batch.
        head: position of the journal's last event at sending; ``position >= head`` means caught up.
        checksum: that of the record at ``position``; 0 if unknown.
    """

    events: tuple[Event[Any], ...]
    position: int
    head: int
    checksum: int


class Sign(Value):
    """A daemon's sign of life.

    Attributes:
        position: position up to which the daemon has published everything; None until the daemon is ready.
        lag: number of events that the daemon has not read yet.
        jobs: number of jobs that run now.
        requests: number of jobs that run or come next.
    """

    position: Position | None
    lag: Count
    jobs: Count
    requests: Count


class Present(Value):
    """A daemon in the broker's table: it started and has not stopped.

    Attributes:
        heard_seconds_ago: since its last sign of life, or since the broker's start.
        lost: it was reported as lost.
        sign: its latest sign of life; None before the first.
    """

    daemon: DaemonName
    node: NodeName
    heard_seconds_ago: Seconds
    lost: bool
    sign: Sign | None


class Subscription(Protocol):
    """Async iterator of batches; inside its async context the subscription is established."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Batch:
        """Wait for the next batch. Each event is delivered exactly once and in order."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """End the iteration. Idempotent."""


class Bus(Protocol):
    """Publishes and delivers events."""

    async def publish(self, envelope: Envelope[Any]) -> int:
        """Publish an event and return its position, once it is durable.

        An event whose id is among the latest 250,000 is not recorded again; its first position is returned. Position 0
        means that the event was sent before, but its position is no longer known.

        Raises:
            BrokerUnavailable: not acknowledged in time; ``queued`` is True if the event is in the outbox.
            PublishRefused: the broker refused the event.
            EventTooLarge: the event exceeds the size limit.
        """

    async def publish_many(self, envelopes: Sequence[Envelope[Any]]) -> tuple[int, ...]:
        """Publish events in order and return their positions, once all are durable."""

    def subscribe(self, types: Collection[type[Payload]] | None = None, *, after: int | None = None) -> Subscription:
        """Subscribe to events.

        Args:
            types: payload classes to deliver; None for all.
            after: begin after this position; None for the head.
        """

    async def bury(self, dead_letter: DeadLetter) -> None:
        """Record a dead letter durably, once for each reporter and recorded event.

        Raises:
            BrokerUnavailable: not answered in time.
        """

    def show_life(self, sign: Sign) -> None:
        """Send a sign of life, which is not recorded, without waiting.

        While the broker is away, the latest sign is kept. The broker ignores signs from names that have not published
        DAEMON_STARTED.

        Raises:
            FileTouched: another program touched the outbox, so that unsent events would be lost.
        """

    async def present(self) -> tuple[Present, ...]:
        """Return the daemons that have started and not stopped, sorted by name.

        Raises:
            BrokerUnavailable: not answered in time.
        """

    async def snapshot(self, upto: int, kinds: Collection[str]) -> Snapshot | None:
        """Return the latest snapshot at or before a position; None without one.

        Args:
            upto: the position.
            kinds: names of the reducers whose rows to return.

        Raises:
            BrokerUnavailable: not answered in time.
        """

    async def close(self) -> None:
        """Close the bus and its subscriptions. Idempotent."""
