"""Virtual time: an event loop, and a processor that jobs share. The loop's clock stands still while code runs."""

import asyncio
import json
import selectors
from collections.abc import Callable
from datetime import datetime, timedelta
from heapq import heapify, heappop, heappush
from itertools import count
from typing import Any

from flyball.app.engine import JsonObject, Report
from flyball.app.engine.port import EngineClosed
from flyball.app.engine.worker import encode, follow, perform_here
from flyball.app.events.envelope import EPOCH
from flyball.app.simulation.world import START_US

FINISHED = 1e-9
"""Seconds of work left at which a job counts as finished. Times are rounded, so that the rest may not be exactly 0."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """An event loop that skips waiting.

    Once every task waits, its time jumps to the next timer. Code that runs takes no time; ``Processor`` adds the time
    of jobs.
    """

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Skipping(self))

    def time(self) -> float:
        """Return seconds since the loop was made."""
        return self.now


class _Skipping(selectors.SelectSelector):
    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        assert timeout is not None, "every task waits for another one"
        self._loop.now += max(0.0, timeout)
        return super().select(0)


class VirtualClock:
    """The time of a ``VirtualLoop``, from the day on which simulations start."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def now(self) -> datetime:
        """See ``Clock.now``."""
        return EPOCH + timedelta(microseconds=START_US, seconds=self._loop.time())

    def monotonic(self) -> float:
        """See ``Clock.monotonic``."""
        return self._loop.time()


class Processor:
    """A processor that jobs share equally, as an operating system's processes do.

    Each of n jobs progresses at the speed of one core, or at ``cores / n`` of it if there are more jobs than cores.

    Attributes:
        used_seconds: processor time that jobs have used so far, by user.
    """

    def __init__(self, cores: int = 1) -> None:
        self._loop, self._cores = asyncio.get_running_loop(), cores
        self._numbers = count()
        self._jobs: list[tuple[float, int, str, asyncio.Future[None]]] = []  # by the progress at which they end
        self._progress = 0.0  # seconds of work done by a job that has run since the start
        self._since = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self.used_seconds: dict[str, float] = {}

    async def work(self, user: str, seconds: float) -> None:
        """Wait until a user's job has had this much processor time. A cancelled job gives its share to the others."""
        self._advance()
        job = self._progress + seconds, next(self._numbers), user, self._loop.create_future()
        heappush(self._jobs, job)
        self._schedule()
        try:
            await job[-1]
        finally:
            if job in self._jobs:
                self._advance()
                self._jobs.remove(job)
                heapify(self._jobs)
                self._schedule()

    @property
    def _speed(self) -> float:
        return min(1.0, self._cores / len(self._jobs))

    def _advance(self) -> None:
        """Bring the progress up to the present."""
        now = self._loop.time()
        if self._jobs:
            done = (now - self._since) * self._speed
            self._progress += done
            for _, _, user, _ in self._jobs:
                self.used_seconds[user] = self.used_seconds.get(user, 0.0) + done
        self._since = now

    def _schedule(self) -> None:
        """Set the timer to the end of the next job."""
        if self._timer:
            self._timer.cancel()
        if self._jobs:
            left = max(0.0, self._jobs[0][0] - self._progress)
            self._timer = self._loop.call_later(left / self._speed, self._finish)

    def _finish(self) -> None:
        self._advance()
        while self._jobs and self._jobs[0][0] <= self._progress + FINISHED:
            *_, finished = heappop(self._jobs)
            if not finished.done():
                finished.set_result(None)
        self._schedule()


class SharedEngine:
    """Runs jobs in this thread, one after the other.

    A job takes its processor time in virtual time. It runs when it starts; its reports and its result come when the
    processor has done as much work for it.

    Args:
        processor: shared with other engines.
        user: the daemon whose jobs these are.
        workers: jobs at once; the others wait.
        meter: returns the processor time of this process so far, in seconds.

    Attributes:
        job_seconds: processor time that all jobs took.
    """

    def __init__(self, processor: Processor, user: str, workers: int, meter: Callable[[], float]) -> None:
        self._processor, self._user, self._meter = processor, user, meter
        self._loop = asyncio.get_running_loop()
        self.job_seconds = 0.0
        self._slots = asyncio.Semaphore(workers)
        self._closed = False

    async def capacity(self) -> None:
        """See ``Engine.capacity``."""

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        async with self._slots:
            if self._closed:
                raise EngineClosed.at(function)
            frames: list[tuple[float, JsonObject]] = []
            began = self._meter()

            def send(frame: bytes) -> None:
                frames.append((self._meter() - began, json.loads(frame)))

            perform_here(function, encode(spec), send)
            self.job_seconds += self._meter() - began
            started, sent, done = self._loop.time(), iter(frames), 0.0

            async def receive() -> JsonObject:
                nonlocal done
                ready, frame = next(sent)
                await self._processor.work(self._user, ready - done)
                done = ready
                in_time: JsonObject = timed(frame, self._loop.time() - started)
                return in_time

            return await follow(function, receive, on_progress, deadline_seconds)

    async def close(self) -> None:
        """See ``Engine.close``."""
        self._closed = True


def timed(result: Any, seconds: float) -> Any:
    """Return a result with virtual time as all values called ``seconds``."""
    match result:
        case dict():
            return {name: seconds if name == "seconds" else timed(value, seconds) for name, value in result.items()}
        case list():
            return [timed(value, seconds) for value in result]
    return result
