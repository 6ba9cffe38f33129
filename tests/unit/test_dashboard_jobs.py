"""Jobs that pages ask for."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from app.core import FlyballError
from app.dashboard import jobs as module
from app.dashboard.jobs import MOST_KEPT, MOST_WAITING, PageJob, PageJobs, TooManyJobs
from app.engine import InlineEngine

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


def run(story: Callable[[PageJobs], Awaitable[None]]) -> None:
    async def told() -> None:
        jobs = PageJobs(InlineEngine)
        async with jobs.running():
            await story(jobs)

    asyncio.run(told())


async def over(job: PageJob) -> PageJob:
    async with asyncio.timeout(DONE_SECONDS):
        while not job.over:
            await asyncio.sleep(0.01)
    return job


def test_a_job_reports_and_has_a_result():
    async def story(jobs: PageJobs) -> None:
        job = await over(jobs.begin(f"{HERE}:double", {"number": 4}, 10))
        assert (job.reports, job.result, job.error) == ([{"at": 1}], {"twice": 8}, None)

    run(story)


def test_the_same_job_is_done_once():
    async def story(jobs: PageJobs) -> None:
        job = await over(jobs.begin(f"{HERE}:double", {"number": 4}, 10))
        assert jobs.begin(f"{HERE}:double", {"number": 4}, 10) is job
        assert jobs.begin(f"{HERE}:double", {"number": 5}, 10) is not job
        assert jobs.find(job.key) is job

    run(story)


def test_a_failed_job_tells_why_and_can_be_begun_again():
    async def story(jobs: PageJobs) -> None:
        job = await over(jobs.begin(f"{HERE}:fail", {}, 10))
        assert job.error == "No such thing. Name another."
        assert jobs.begin(f"{HERE}:fail", {}, 10) is not job

    run(story)


def test_a_job_can_be_stopped():
    async def story(jobs: PageJobs) -> None:
        job = jobs.begin(f"{HERE}:wait_for_ever", {}, 60)
        while not job.reports:
            await asyncio.sleep(0.01)
        jobs.stop(job.key)
        assert (await over(job)).error == "It was stopped."

    run(story)


def test_a_job_ends_at_its_deadline():
    async def story(jobs: PageJobs) -> None:
        job = await over(jobs.begin(f"{HERE}:wait_for_ever", {}, 0.05))
        assert job.error is not None
        assert "within 0.05 s" in job.error

    run(story)


def test_a_job_that_nobody_looks_at_is_stopped(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(module, "ABANDONED_SECONDS", 0.1)

    async def story(jobs: PageJobs) -> None:
        job = jobs.begin(f"{HERE}:wait_for_ever", {}, 60)
        for _ in range(30):
            assert jobs.find(job.key) is job
            await asyncio.sleep(0.01)
        assert not job.over
        assert (await over(job)).error == "It was stopped."

    run(story)


def test_few_jobs_wait():
    async def story(jobs: PageJobs) -> None:
        for number in range(MOST_WAITING + 1):
            jobs.begin(f"{HERE}:wait_for_ever", {"number": number}, 60)
        with pytest.raises(TooManyJobs):
            jobs.begin(f"{HERE}:wait_for_ever", {"number": -1}, 60)

    run(story)


def test_old_jobs_are_forgotten():
    async def story(jobs: PageJobs) -> None:
        done = [await over(jobs.begin(f"{HERE}:double", {"number": k}, 10)) for k in range(MOST_KEPT + 2)]
        kept = [jobs.find(job.key) is not None for job in done]
        assert kept == [False, False, *[True] * MOST_KEPT]

    run(story)


def test_the_process_ends_when_idle(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "TEND_SECONDS", 0.01)
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.05)
    closed: list[InlineEngine] = []

    class Closing(InlineEngine):
        async def close(self) -> None:
            closed.append(self)
            await super().close()

    async def told() -> None:
        jobs = PageJobs(Closing)
        async with jobs.running():
            await over(jobs.begin(f"{HERE}:double", {"number": 1}, 10))
            async with asyncio.timeout(DONE_SECONDS):
                while not closed:
                    await asyncio.sleep(0.01)
            again = await over(jobs.begin(f"{HERE}:double", {"number": 2}, 10))
            assert again.result == {"twice": 4}
        assert len(closed) == 2

    asyncio.run(told())
