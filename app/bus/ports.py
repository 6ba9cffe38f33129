"""The bus as programs see it, and what it needs of a journal and an outbox (adapters: ``app.journal``)."""

# ruff: noqa: D102 - the last three protocols are documented where they are implemented, in app.journal

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self

from app.core import FlyballError
from app.events import Envelope, Event, Payload, RunConfigured
from app.events.frames import DeadLetter, Frame, Record

BROKER_ONLY = frozenset({RunConfigured.event_type})
"""Types that the broker alone publishes: settings are validated against the run's past before they are recorded."""


class NotPermitted(FlyballError):
    """A client published an event of a type in ``BROKER_ONLY``."""


def check_rights(frame: Frame) -> None:
    """Refuse a client's frame that holds an event of a type in ``BROKER_ONLY``.

    Raises:
        NotPermitted: the frame holds such an event; names the types.
    """
    if reserved := sorted(BROKER_ONLY.intersection(frame.types)):
        raise NotPermitted(
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

    async def commit(self, position: int) -> None:
        """Make ``position`` the durable cursor: the next subscription of this durable name begins after it.

        Raises:
            ValueError: the subscription has no durable name.
            BrokerUnavailable: not acknowledged in time.
        """
        ...

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

    def subscribe(
        self,
        types: Collection[type[Payload]] | None = None,
        *,
        after: int | None = None,
        durable: str | None = None,
    ) -> Subscription:
        """Subscribe to events.

        Args:
            types: payload classes wanted; None for all.
            after: begin after this position. When None: at the cursor of ``durable`` (a new one is at 0), and
                without a durable name at the head.
            durable: name of a cursor that the broker keeps, see ``Subscription.commit``.
        """
        ...

    async def bury(self, letter: DeadLetter) -> None:
        """Keep a dead letter; durable on return. A reporter's dead letter about a position is kept once.

        Raises:
            BrokerUnavailable: not answered in time.
        """
        ...

    async def close(self) -> None:
        """Close the bus and its subscriptions. Idempotent."""
        ...


class Chunk(Protocol):
    """See ``app.journal.Chunk``."""

    @property
    def records(self) -> Sequence[Record]: ...

    @property
    def position(self) -> int: ...


class Journal(Protocol):
    """The part of ``app.journal.Journal`` that a bus needs; see there."""

    @property
    def head(self) -> int: ...

    @property
    def recorded_us(self) -> int: ...

    def append(
        self,
        records: Sequence[Record] = (),
        *,
        marks: Mapping[tuple[str, int], int] | None = None,
        cursors: Mapping[str, int] | None = None,
        letters: Sequence[DeadLetter] = (),
    ) -> None: ...

    def read(
        self, after: int, *, limit: int = 256, max_bytes: int = 4 << 20, types: Collection[str] | None = None
    ) -> Chunk: ...

    def ids(self, after: int) -> Iterator[tuple[int, Sequence[int]]]: ...

    def mark(self, producer: str, epoch: int) -> int | None: ...

    def cursors(self) -> dict[str, int]: ...

    def remove_dead_letter(self, number: int) -> bool: ...

    def rest(self, *, idle: bool = True) -> None: ...


class Outbox(Protocol):
    """The part of ``app.journal.Outbox`` that a bus needs; see there."""

    def put(self, frames: Sequence[bytes]) -> None: ...

    def load(self) -> list[bytes]: ...

    def remove(self, keys: Collection[tuple[int, int]]) -> None: ...
