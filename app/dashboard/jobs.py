"""Jobs that pages ask for.

One job runs at a time, in a separate process and with a deadline. It is stopped when nobody looks at it any more.
"""

import asyncio
import json
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from hashlib import sha256
from time import monotonic

import structlog
from starlette.requests import Request

from flyball.app.core import FlyballError
from flyball.app.engine import Engine, JobFailed, JsonObject, LocalEngine

ABANDONED_SECONDS = 60.0
"""Time without a look after which an unfinished job is stopped. A page in a hidden tab looks about once a minute."""

IDLE_SECONDS = 120.0
"""Time after the last job until its process ends. This frees memory, but the next job then takes seconds to start."""

TEND_SECONDS = 2.0
STOP_SECONDS = 1.0
KEY = "job"
"""Name of a job's key in a query."""

MOST_WAITING = 3
MOST_KEPT = 16
NICE = 10
"""Niceness of the process, so that the run's own jobs come first."""


class TooManyJobs(FlyballError):
    """As many jobs as allowed are unfinished already."""


class PageJob:
    """A job and what it has reported.

    Attributes:
        key: names the job in addresses.
        reports: what the job has reported so far.
        result: None before the end.
        error: why it failed or was stopped.
    """

    def __init__(self, key: str, function: str, spec: JsonObject) -> None:
        self.key, self.function, self.spec = key, function, spec
        self.reports: list[JsonObject] = []
        self.result: JsonObject | None = None
        self.error: str | None = None
        self.looked_at = monotonic()
        self.task: asyncio.Task[None] | None = None

    @property
    def over(self) -> bool:
        """True once nothing more will be reported."""
        return self.result is not None or self.error is not None


class PageJobs:
    """The jobs of all pages. The methods are called on the event loop; a ``PageJob`` may be read in any thread."""

    def __init__(self, open_engine: Callable[[], Engine] = lambda: LocalEngine(nice=NICE)) -> None:
        self._open_engine = open_engine
        self._jobs: OrderedDict[str, PageJob] = OrderedDict()
        self._group: asyncio.TaskGroup | None = None
        self._engine: Engine | None = None
        self._busy = monotonic()  # when a job was last unfinished

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Run jobs inside the context; its end stops all jobs."""
        async with asyncio.TaskGroup() as self._group:
            tending = self._group.create_task(self._tend())
            try:
                yield
            finally:
                tending.cancel()
                for key in self._jobs:
                    self.stop(key)
        await self._close_engine()

    def begin(self, function: str, spec: JsonObject, deadline_seconds: float) -> PageJob:
        """Return the job of a function and its spec, started unless it runs or succeeded. Raises ``TooManyJobs``."""
        key = sha256(json.dumps([function, spec], sort_keys=True).encode()).hexdigest()[:16]
        job = self.find(key)
        if job is not None and job.error is None:
            return job
        if sum(not job.over for job in self._jobs.values()) > MOST_WAITING:
            raise TooManyJobs("Other pages wait for their games or answers.", hint="Try again once these are over.")
        finished = [old for old, other in self._jobs.items() if other.over]
        for old in finished[: max(0, len(self._jobs) + 1 - MOST_KEPT)]:
            del self._jobs[old]
        job = self._jobs[key] = PageJob(key, function, spec)
        self._jobs.move_to_end(key)
        assert self._group is not None
        job.task = self._group.create_task(self._run(job, deadline_seconds))
        return job

    def find(self, key: str) -> PageJob | None:
        """Return a job if it is kept, and note that somebody looks."""
        job = self._jobs.get(key)
        if job is not None:
            job.looked_at = monotonic()
        return job

    def stop(self, key: str) -> None:
        """Stop a job, if it is still running or waiting."""
        job = self._jobs.get(key)
        if job is not None and job.task is not None and not job.over:
            job.task.cancel()

    async def _run(self, job: PageJob, deadline_seconds: float) -> None:
        self._engine = self._engine or self._open_engine()
        try:
            job.result = await self._engine.run(job.function, job.spec, job.reports.append, deadline_seconds)
        except JobFailed as error:
            job.error = f"{error.summary} {error.hint}".rstrip()
            log = structlog.get_logger("dashboard")
            log.warning("a job failed", function=job.function, error=str(error), trace=error.trace)
        except FlyballError as error:
            job.error = str(error)
        except asyncio.CancelledError:
            job.error = "It was stopped."

    async def _tend(self) -> None:
        """Stop abandoned jobs, and end the process after the last job."""
        while True:
            await asyncio.sleep(TEND_SECONDS)
            now, unfinished = monotonic(), [job for job in self._jobs.values() if not job.over]
            for job in unfinished:
                if now - job.looked_at > ABANDONED_SECONDS:
                    self.stop(job.key)
            if unfinished:
                self._busy = now
            elif now - self._busy > IDLE_SECONDS:
                await self._close_engine()

    async def _close_engine(self) -> None:
        engine, self._engine = self._engine, None
        if engine is not None:
            await engine.close()


def jobs_of(request: Request) -> PageJobs:
    """Return the jobs of the server's pages."""
    jobs: PageJobs = request.app.state.jobs
    return jobs


def job_of(request: Request) -> PageJob | None:
    """Return the job that a request names, if it is kept."""
    return jobs_of(request).find(request.query_params.get(KEY, ""))


async def stop_job_of(request: Request) -> None:
    """Stop the job that a request names, and wait for its end. The wait is at most ``STOP_SECONDS``."""
    job = job_of(request)
    if job is not None and job.task is not None:
        jobs_of(request).stop(job.key)
        await asyncio.wait({job.task}, timeout=STOP_SECONDS)


def may_begin(request: Request) -> bool:
    """Return whether a request may start a job. It may not if another site's page caused it."""
    return request.headers.get("sec-fetch-site", "none") in ("none", "same-origin")
