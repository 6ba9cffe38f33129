"""The engine without processes: jobs in threads of this one. For tests and small runs."""

import asyncio
import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from app.engine.port import EngineClosed, JsonObject, Report
from app.engine.worker import encode, follow, perform


class InlineEngine:
    """Runs jobs in threads. A job that was cancelled or lost runs until its next report, which is dropped.

    Args:
        workers: how many jobs run at once.
    """

    def __init__(self, workers: int = 1) -> None:
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="job")
        self._slots = asyncio.Semaphore(workers)
        self._running: set[asyncio.Queue[JsonObject]] = set()
        self._closed = False

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        loop = asyncio.get_running_loop()
        frames: asyncio.Queue[JsonObject] = asyncio.Queue()

        def send(frame: JsonObject) -> None:
            if frames not in self._running:
                raise SystemExit  # nobody reads the frames any more; in a thread of a pool this ends only the job
            # Through JSON, as with processes, because otherwise a job could depend on what only threads can share.
            loop.call_soon_threadsafe(frames.put_nowait, json.loads(encode(frame)))

        async with self._slots:
            if self._closed:
                raise EngineClosed.at(function)
            self._running.add(frames)
            try:
                self._threads.submit(_work, function, json.loads(encode(spec)), send)
                return await follow(function, frames.get, on_progress, deadline_seconds)
            finally:
                self._running.discard(frames)

    async def close(self) -> None:
        """See ``Engine.close``."""
        self._closed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        for frames in self._running:
            frames.put_nowait({"lost": "the engine was closed"})


def _work(function: str, spec: JsonObject, send: Callable[[JsonObject], None]) -> None:
    try:
        perform(function, spec, send)
    except SystemExit as error:
        send({"lost": f"it asked to exit with {error.code!r}"})
