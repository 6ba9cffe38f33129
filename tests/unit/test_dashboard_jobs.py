"""Jobs that pages ask for."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

from flyball.app.core import FlyballError
from flyball.app.dashboard import jobs as module
from flyball.app.dashboard.jobs import ABANDONED_SECONDS, MOST_KEPT, MOST_WAITING, PageJob, PageJobs, TooManyJobs
from flyball.app.engine import InlineEngine

HERE = __name__
DONE_SECONDS = 200.0


def double(spec: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    report({"at": 1})
    return {"twice": spec["number"] * 2}


def fail(spec: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    raise FlyballError("No such thing.", hint="Name another.")


def wait_for_ever(spec: dict[str, Any], report: Callable[[dict[str, Any]], None]) -> dict[str, Any]:
    while True:  # until a report tells that nobody reads them
        report({"at": 1})
        time.sleep(0.01)


@asynccontextmanager
async def running(engine: type[InlineEngine] = InlineEngine) -> AsyncIterator[PageJobs]:
    jobs = PageJobs(engine)
    async with jobs.running():
        yield jobs


async def test_a_job_is_done_once_unless_it_failed():
    async with running() as jobs:
        job = await over(jobs.begin(f"{HERE}:double", {"number": 4}, 10))
        assert (job.reports, job.result, job.error) == ([{"at": 1}], {"twice": 8}, None)
        assert jobs.begin(f"{HERE}:double", {"number": 4}, 10) is job
        assert jobs.begin(f"{HERE}:double", {"number": 5}, 10) is not job
        assert jobs.find(job.key) is job
        failed = await over(jobs.begin(f"{HERE}:fail", {}, 10))
        assert failed.error == "No such thing. Name another."
        assert jobs.begin(f"{HERE}:fail", {}, 10) is not failed


async def test_a_job_can_be_stopped_and_ends_at_its_deadline():
    async with running() as jobs:
        late = await over(jobs.begin(f"{HERE}:wait_for_ever", {}, 0.05))
        assert late.error is not None
        assert "within 0.05 s" in late.error
        job = jobs.begin(f"{HERE}:wait_for_ever", {}, 60)
        while not job.reports:
            await asyncio.sleep(0.01)
        jobs.stop(job.key)
        assert (await over(job)).error == "It was stopped."


async def over(job: PageJob) -> PageJob:
    async with asyncio.timeout(DONE_SECONDS):
        while not job.over:
            await asyncio.sleep(0.01)
    return job


async def test_a_job_that_nobody_looks_at_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TEND_SECONDS", 0.01)
    now = 0.0
    monkeypatch.setattr(module, "monotonic", lambda: now)
    async with running() as jobs:
        job = jobs.begin(f"{HERE}:wait_for_ever", {}, 600)
        for _ in range(10):
            assert jobs.find(job.key) is job
            now += ABANDONED_SECONDS / 2
            await asyncio.sleep(0.02)
        assert not job.over
        now += ABANDONED_SECONDS
        assert (await over(job)).error, "long before its deadline"


async def test_few_jobs_wait_and_old_ones_are_forgotten():
    async with running() as jobs:
        done = [await over(jobs.begin(f"{HERE}:double", {"number": k}, 10)) for k in range(MOST_KEPT + 2)]
        kept = [jobs.find(job.key) is not None for job in done]
        assert kept == [False, False, *[True] * MOST_KEPT]
        for number in range(MOST_WAITING + 1):
            jobs.begin(f"{HERE}:wait_for_ever", {"number": number}, 60)
        with pytest.raises(TooManyJobs):
            jobs.begin(f"{HERE}:wait_for_ever", {"number": -1}, 60)


async def test_the_process_ends_when_idle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    closed: list[InlineEngine] = []

    class Closing(InlineEngine):
        async def close(self) -> None:
            closed.append(self)
            await super().close()

    async with running(Closing) as jobs:
        await over(jobs.begin(f"{HERE}:double", {"number": 1}, 10))
        async with asyncio.timeout(DONE_SECONDS):
            while not closed:
                await asyncio.sleep(0.01)
        again = await over(jobs.begin(f"{HERE}:double", {"number": 2}, 10))
        assert again.result == {"twice": 4}
    assert len(closed) == 2
