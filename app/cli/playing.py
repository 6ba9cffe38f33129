"""Playing a scenario: the trouble is published, and the run followed until it has recovered."""

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol

from app.bus import Bus, Subscription
from app.core import FlyballError, derive_id
from app.events import Cause, Envelope, Event, Payload, Scope, follow, originate
from app.runtime.clock import SystemClock, boot_id
from app.runtime.scenarios import Expected, Plan, Seen, Watch


class NeverCame(FlyballError):
    """A step of a scenario did not come in time."""

    def __init__(self, awaited: Expected, seconds: float) -> None:
        super().__init__(
            f"{awaited.kind.seed_name}, by which the trouble would be {awaited.stage}, did not come within "
            f"{seconds:g} s.",
            hint=awaited.doubt,
        )


class Audience(Protocol):
    """Receiver of a scenario's progress."""

    def began(self, trouble: Event[Any]) -> None:
        """The trouble is recorded."""
        ...

    def saw(self, seen: Seen) -> None:
        """An expected step was seen."""
        ...

    def remedied(self, remedy: Payload) -> None:
        """The remedy was published."""
        ...

    def ended(self, traces: Mapping[str, str], *, well: bool) -> None:
        """All steps were seen, or nobody waits any more: these ids' traces show the steps that are named with them."""
        ...


class Player:
    """Plays one scenario.

    Args:
        bus: of the running loop.
        plan: what to publish, and what to expect.
        audience: is told.
        pulse_s: seconds between two pulses, where the plan has one.
    """

    def __init__(self, bus: Bus, plan: Plan, audience: Audience, pulse_s: float) -> None:
        self._bus, self._plan, self._audience, self._pulse_s = bus, plan, audience, pulse_s
        self._clock, self._boot, self._said = SystemClock(), boot_id(), 0
        self._beats_at = 0.0

    async def play(self, seconds: float) -> None:
        """Make the trouble, and follow the run for so long at most; 0: only make it.

        Raises:
            NeverCame: a step did not come in time; names it, and what may be wrong.
        """
        position = await self._bus.publish(self._originate(self._plan.trouble))
        async with self._bus.subscribe(after=position - 1) as subscription:
            events: Sequence[Event[Any]] = ()
            while not events:
                events = (await anext(subscription)).events
            trouble, *later = events
            self._audience.began(trouble)
            if seconds:
                watch = Watch(self._plan, trouble)
                try:
                    await self._follow(subscription, watch, later, seconds)
                finally:
                    self._audience.ended(watch.traces(), well=watch.awaited is None)

    async def _follow(
        self, subscription: Subscription, watch: Watch, events: Sequence[Event[Any]], seconds: float
    ) -> None:
        end = self._clock.monotonic() + seconds
        while True:
            for event in events:
                if seen := watch.feed(event):
                    await self._on(seen, len(watch.seen) - 1)
            if watch.awaited is None:
                return
            if (left := end - self._clock.monotonic()) <= 0:
                raise NeverCame(watch.awaited, seconds)
            if not watch.seen:
                await self._beat()
            events = await _next(subscription, min(left, self._pulse_s))

    async def _beat(self) -> None:
        """Publish the plan's pulse, if it has one and its time has come."""
        now = self._clock.monotonic()
        if self._plan.pulse and now >= self._beats_at:
            self._beats_at = now + self._pulse_s
            await self._bus.publish(self._originate(self._plan.pulse))

    async def _on(self, seen: Seen, index: int) -> None:
        self._audience.saw(seen)
        if self._plan.remedy and self._plan.remedy_after == index:
            await self._bus.publish(self._answer(self._plan.remedy, seen.event.cause))
            self._audience.remedied(self._plan.remedy)

    def _originate(self, data: Payload) -> Envelope[Payload]:
        self._said += 1
        event_id = derive_id("cli", self._boot, self._said)
        return originate(data, event_id=event_id, time=self._clock.now(), subject=self._subject(data))

    def _answer(self, data: Payload, cause: Cause) -> Envelope[Payload]:
        return follow(data, cause, by="cli", subject=self._subject(data), time=self._clock.now())

    def _subject(self, data: Payload) -> str | None:
        return self._plan.key if data.scope is Scope.CONFIG else None


async def _next(subscription: Subscription, seconds: float) -> Sequence[Event[Any]]:
    """Wait for events, but not for ever."""
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return (await anext(subscription)).events
    return ()
