"""An engine of self-play that waits while the run's store is full."""

import asyncio

import structlog

from flyball.app.core import Clock
from flyball.app.engine import Engine, JsonObject, Report
from flyball.app.store import FileStore

MEASURE_SECONDS = 30.0
"""Time between two measurements of the store."""

RESUMES = 0.95
"""Share of the bound at which self-play goes on."""


class BoundedEngine:
    """An engine without capacity while a store is full.

    Jobs are run by another engine, and games under way are completed. The scheduler learns of the capacity, and
    requests no games of a worker that has none.

    Args:
        engine: runs the jobs.
        jobs: number of jobs at once, where the engine's own number does not change.
        store: is measured; ``most_bytes`` is its bound.
        clock: tells the time.
    """

    def __init__(self, engine: Engine, jobs: int, store: FileStore, most_bytes: int, clock: Clock) -> None:
        self._engine, self._jobs, self._store, self._most_bytes, self._clock = engine, jobs, store, most_bytes, clock
        self._measure_at, self._full = clock.monotonic(), False
        self._log = structlog.get_logger("jobs")

    async def capacity(self) -> int:
        """See ``Engine.capacity``."""
        if self._clock.monotonic() >= self._measure_at:
            self._measure_at = self._clock.monotonic() + MEASURE_SECONDS
            try:
                self._update(await asyncio.to_thread(self._store.total_bytes))
            except OSError as error:  # a file system that fails for a moment must not end the games under way
                self._log.warning("the store could not be measured", error=str(error))
        own = await self._engine.capacity()
        return 0 if self._full else self._jobs if own is None else own

    def _update(self, stored_bytes: int) -> None:
        """Set whether the store is full, with hysteresis; log a change."""
        full = stored_bytes >= self._most_bytes * (RESUMES if self._full else 1)
        if full != self._full:
            self._full = full
            self._log_change(stored_bytes)

    def _log_change(self, stored_bytes: int) -> None:
        sizes = {"megabytes": round(stored_bytes / 1e6, 1), "most_megabytes": round(self._most_bytes / 1e6, 1)}
        if self._full:
            remedy = "it goes on once there is room: raise deployment.store_gib, or see flyball doctor"
            self._log.warning("the store is full: self-play waits", **sizes, remedy=remedy)
        else:
            self._log.info("the store has room again: self-play goes on", **sizes)

    async def run(
        self,
        function: str,
        spec: JsonObject,
        on_progress: Report | None = None,
        deadline_seconds: float | None = None,
    ) -> JsonObject:
        """See ``Engine.run``."""
        return await self._engine.run(function, spec, on_progress, deadline_seconds)

    async def close(self) -> None:
        """See ``Engine.close``."""
        await self._engine.close()
