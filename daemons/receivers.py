"""Delivery of events to outside receivers, which are webhooks and a collector of traces (ADR-036).

Each receiver has its own position in the journal, which is saved once a message has been taken. So a receiver gets
each event at least once, in order, wherever the daemon is killed, and none waits for another.
"""

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import structlog

from flyball.app.bus import Bus
from flyball.app.core import Clock
from flyball.app.events import Event, Payload
from flyball.app.journal import StateStore
from flyball.app.status.metrics import Delivery
from flyball.app.telemetry.webhook import Undelivered
from flyball.daemons.supervisor import Backoff

POSITION = "receiver"
"""Kind of the rows with receivers' positions."""

RECEIVERS = "receivers"
"""Name of the file with these rows, in place of a daemon's."""

HELD = 1000
"""Most events that are read before they are sent. Events beyond stay in the journal."""

SAVED_EVENTS = 1000
"""Positions of other events after which the receiver's position is saved without a message."""


class Receiver(Protocol):
    """Takes events, several in one message."""

    @property
    def name(self) -> str:
        """The receiver's name, under which its position is saved."""

    @property
    def types(self) -> frozenset[type[Payload]]:
        """The event types that the receiver may get."""

    @property
    def most(self) -> int:
        """Most events in a message."""

    def wants(self, event: Event[Any], /) -> bool:
        """Return whether the receiver gets an event of its types."""

    async def send(self, events: Sequence[Event[Any]]) -> None:
        """Send a message. Raises ``Undelivered``."""


@dataclass(frozen=True, slots=True)
class Terms:
    """Terms of delivery to a receiver.

    Attributes:
        pause_seconds: least time between two messages.
        timeout_seconds: longest time of one attempt.
        give_up_seconds: time after which a message is dropped.
        backoff: waits between attempts.
    """

    pause_seconds: float
    timeout_seconds: float
    give_up_seconds: float
    backoff: Backoff = Backoff(first=1.0, most=300.0)  # noqa: RUF009 - frozen


class Outlet:
    """Delivers events to one receiver from where it stopped; to a new receiver, from the journal's end on."""

    def __init__(self, receiver: Receiver, terms: Terms, states: StateStore, clock: Clock) -> None:
        self._receiver, self._terms, self._states, self._clock = receiver, terms, states, clock
        self._log = structlog.get_logger("receivers").bind(receiver=receiver.name)
        saved = states.load()[1].get((POSITION, receiver.name))
        self._saved = self._position = None if saved is None else int(saved)
        self._queue: asyncio.Queue[tuple[int, Event[Any] | None]] = asyncio.Queue(HELD)
        self._outcomes = Counter({"delivered": 0, "failed": 0, "dropped": 0})

    def delivery(self, head: int) -> Delivery:
        """Return the state of delivery, for the metrics."""
        behind = 0 if self._position is None else max(0, head - self._position)
        return Delivery(dict(self._outcomes), behind)

    async def run(self, bus: Bus) -> None:
        """Deliver until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._read(bus))
            group.create_task(self._write())

    async def _read(self, bus: Bus) -> None:
        async with bus.subscribe(self._receiver.types, after=self._position) as subscription:
            async for batch in subscription:
                if self._position is None:
                    self._save(batch.events[0].sequence - 1 if batch.events else batch.position)
                for event in batch.events:
                    if self._receiver.wants(event):
                        await self._queue.put((event.sequence, event))
                await self._queue.put((batch.position, None))

    async def _write(self) -> None:
        while True:
            waiting = [await self._queue.get()]
            if waiting[0][1] is not None:
                waiting += self._ready(self._receiver.most - 1)
                await self._deliver([event for _, event in waiting if event is not None])
                self._save(waiting[-1][0])
                await asyncio.sleep(self._terms.pause_seconds)
                continue
            self._position = waiting[0][0]
            if self._position - (self._saved or 0) >= SAVED_EVENTS:
                self._save(self._position)

    def _ready(self, most: int) -> list[tuple[int, Event[Any] | None]]:
        """Take entries from the queue, with at most ``most`` events."""
        taken: list[tuple[int, Event[Any] | None]] = []
        while most > 0 and not self._queue.empty():
            taken.append(self._queue.get_nowait())
            most -= taken[-1][1] is not None
        return taken

    async def _deliver(self, events: Sequence[Event[Any]]) -> None:
        """Send a message until it is taken or hopeless."""
        end, failures = self._clock.monotonic() + self._terms.give_up_seconds, 0
        while (failed := await self._attempt(events)) is not None:
            failures += 1
            if failed.is_final or self._clock.monotonic() >= end:
                self._outcomes["dropped"] += 1
                positions = [event.sequence for event in events]
                self._log.error("message dropped", error=str(failed), positions=positions, attempts=failures)
                return
            self._outcomes["failed"] += 1
            wait = max(failed.retry_seconds or 0.0, self._terms.backoff.delay(failures))
            # Once for each doubling of the failures, because a receiver may be away for a day.
            if failures & (failures - 1) == 0:
                self._log.warning("message not taken", error=str(failed), attempt=failures, again_in_seconds=wait)
            await asyncio.sleep(wait)
        self._outcomes["delivered"] += 1

    async def _attempt(self, events: Sequence[Event[Any]]) -> Undelivered | None:
        seconds = self._terms.timeout_seconds
        try:
            async with asyncio.timeout(seconds):
                await self._receiver.send(events)
        except TimeoutError:
            return Undelivered(f"{self._receiver.name} did not answer within {seconds:g} s.")
        except Undelivered as error:
            return error
        return None

    def _save(self, position: int) -> None:
        self._saved = self._position = position
        self._states.save(0, {(POSITION, self._receiver.name): str(position).encode()})
