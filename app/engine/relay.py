"""An engine whose jobs are done by its callers, in their own threads."""

import asyncio
import json
from collections.abc import Callable
from contextlib import suppress
from threading import Condition
from time import monotonic
from typing import Literal

from flyball.app.core import JsonObject, Report
from flyball.app.engine.port import EngineClosed, trace_context
from flyball.app.engine.worker import encode, follow


class HandedJob:
    """A job for callers of ``RelayEngine.take``: it waits for one, or was taken.

    All methods may be called from any thread.
    """

    def __init__(self, function: str, spec: JsonObject, deadline_seconds: float | None) -> None:
        self.function, self.spec, self.deadline_seconds = function, spec, deadline_seconds
        self.traceparent = trace_context()
        self.frames: asyncio.Queue[JsonObject] = asyncio.Queue()
        self.taken, self.task = asyncio.Event(), asyncio.current_task()
        self._loop = asyncio.get_running_loop()
        self.state: Literal["waiting", "taken", "answered", "over"] = "waiting"

    @property
    def is_wanted(self) -> bool:
        """False once nobody waits for the result: it was delivered, came too late, or the job was cancelled."""
        return self.state != "over"

    def send(self, frame: JsonObject) -> bool:
        """Send a frame of ``flyball.app.engine.worker``; return whether anybody waits for it.

        Raises ``ValueError`` or ``TypeError`` for what JSON cannot hold.
        """
        copied = json.loads(encode(frame))
        if not self.is_wanted:
            return False
        if "progress" not in copied and self.state == "taken":
            self.state = "answered"  # before the engine learns of it, so that it isn't cancelled in between
        return self.call(self.frames.put_nowait, copied)

    def call(self, function: Callable[..., object], *arguments: object) -> bool:
        """Call a function on the engine's event loop; return False if the loop has ended."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, *arguments)
            return True
        return False


class RelayEngine:
    """Hands each job to a caller of ``take``; its deadline counts from then. See ``Engine``."""

    def __init__(self) -> None:
        self._waiting: list[HandedJob] = []
        self._jobs: set[HandedJob] = set()
        self._changed = Condition()
        self._withdrawn = self._closed = False

    @property
    def hands_out(self) -> bool:
        """False once no more jobs come."""
        return not (self._withdrawn or self._closed)

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
        job = HandedJob(function, json.loads(encode(spec)), deadline_seconds)
        with self._changed:
            if self._closed:
                raise EngineClosed.at(function)
            if self._withdrawn:
                raise asyncio.CancelledError  # rather than a failure, because the job stays pending
            self._jobs.add(job)
            self._waiting.append(job)
            self._changed.notify_all()
        try:
            await job.taken.wait()
            return await follow(function, job.frames.get, on_progress, deadline_seconds)
        finally:
            with self._changed:
                job.state = "over"
                self._jobs.discard(job)
                if job in self._waiting:
                    self._waiting.remove(job)

    def take(
        self, seconds: float | None = None, accepts: Callable[[HandedJob], bool] | None = None
    ) -> HandedJob | None:
        """Return the next job, of those that ``accepts`` accepts, from any thread.

        Waits at most ``seconds``, without a limit for None. Returns None after that time, or once no more jobs come.
        """
        end = None if seconds is None else monotonic() + seconds
        with self._changed:
            while self.hands_out:
                if job := next((job for job in self._waiting if accepts is None or accepts(job)), None):
                    self._waiting.remove(job)
                    job.state = "taken"
                    job.call(job.taken.set)
                    return job
                left = None if end is None else end - monotonic()
                if (left is not None and left <= 0) or not self._changed.wait(left):
                    return None
        return None

    def withdraw(self, *, taken: bool = False) -> None:
        """Cancel the jobs that nobody has taken, and hand out no others. Call it on the event loop.

        With ``taken``, also cancel those without an answer.
        """
        with self._changed:
            self._withdrawn = True
            for job in self._jobs:
                if job.task is not None and (job.state == "waiting" or (taken and job.state == "taken")):
                    job.task.cancel()
            self._changed.notify_all()

    async def close(self) -> None:
        """See ``Engine.close``."""
        with self._changed:
            self._closed = True
            for job in self._jobs:
                job.taken.set()
                job.frames.put_nowait({"lost": "the engine was closed"})
            self._changed.notify_all()
