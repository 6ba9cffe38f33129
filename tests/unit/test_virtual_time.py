"""Virtual time: instant waiting, and jobs that share a processor."""

import asyncio

import pytest

from flyball.app.comparison.virtual_time import Processor, SharedEngine, VirtualClock, VirtualLoop, timed
from flyball.app.engine import EngineClosed, JobFailed, JobTimedOut, WorkerLost


def run(main):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(main())


def now():
    return asyncio.get_running_loop().time()


class Meter:
    def __init__(self):
        self.read = 0.0

    def __call__(self):
        self.read += 1.0
        return self.read


def job(spec, report):
    """Report progress after one second and return after two, by ``Meter``."""
    if "raise" in spec:
        raise ValueError(spec["raise"])
    if "exit" in spec:
        raise SystemExit(3)
    report({"seen": spec["number"]})
    return {"number": spec["number"], "seconds": 99.0}


JOB = f"{__name__}:job"


def test_waiting_for_a_day_takes_no_time_and_keeps_the_order():
    woken = []

    async def wake(seconds):
        await asyncio.sleep(seconds)
        woken.append((seconds, now()))

    async def main():
        clock = VirtualClock(asyncio.get_running_loop())
        began = clock.now()
        async with asyncio.TaskGroup() as group:
            for seconds in (86_400.0, 1.0, 60.0):
                group.create_task(wake(seconds))
        assert (clock.now() - began).total_seconds() == clock.monotonic() == 86_400.0

    run(main)  # a real day would exceed the test's limit
    assert woken == [(1.0, 1.0), (60.0, 60.0), (86_400.0, 86_400.0)]


def ends(cores, *jobs):
    found = {}

    async def work(processor, user, begins, seconds):
        await asyncio.sleep(begins)
        await processor.work(user, seconds)
        found[user] = now()

    async def main():
        processor = Processor(cores)
        async with asyncio.TaskGroup() as group:
            for user, begins, seconds in jobs:
                group.create_task(work(processor, user, begins, seconds))
        return processor.used_seconds

    return run(main), found


def test_jobs_share_the_cores_equally():
    used, found = ends(1, ("short", 0.0, 1.0), ("long", 0.0, 3.0))
    assert found == pytest.approx({"short": 2.0, "long": 4.0})
    assert used == pytest.approx({"short": 1.0, "long": 3.0})
    _, found = ends(1, ("first", 0.0, 2.0), ("second", 1.0, 2.0))
    assert found == pytest.approx({"first": 3.0, "second": 4.0})
    _, found = ends(2, ("a", 0.0, 2.0), ("b", 0.0, 3.0))
    assert found == pytest.approx({"a": 2.0, "b": 3.0})
    _, found = ends(2, ("a", 0.0, 2.0), ("b", 0.0, 2.0), ("c", 0.0, 2.0))
    assert found == pytest.approx({"a": 3.0, "b": 3.0, "c": 3.0})

    async def main():
        processor = Processor()
        async with asyncio.TaskGroup() as group:
            given_up = group.create_task(processor.work("given up", 10.0))
            group.create_task(processor.work("kept", 2.0))
            await asyncio.sleep(2.0)
            given_up.cancel()
        return now(), processor.used_seconds

    at, used = run(main)
    assert at == pytest.approx(3.0)
    assert used == pytest.approx({"given up": 1.0, "kept": 2.0})


def test_reports_and_results_come_when_their_work_is_done():
    heard = []

    async def main():
        engine = SharedEngine(Processor(), "training", 1, Meter())
        result = await engine.run(JOB, {"number": 7}, lambda report: heard.append((report, now())))
        return result, now(), engine.job_seconds

    result, at, job_seconds = run(main)
    assert heard == [({"seen": 7}, 1.0)]
    assert (result, at) == ({"number": 7, "seconds": 2.0}, 2.0)
    assert job_seconds == 3.0  # to the reading after the job


def test_an_engine_runs_as_many_jobs_at_once_as_it_has_workers():
    async def main(workers):
        engine, times = SharedEngine(Processor(cores=2), "selfplay", workers, Meter()), []

        async def one(number):
            await engine.run(JOB, {"number": number})
            times.append(now())

        async with asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(one(number))
        return times

    assert run(lambda: main(1)) == [2.0, 4.0]
    assert run(lambda: main(2)) == [2.0, 2.0]


def test_engine_reports_failures_and_deadlines():
    async def main():
        engine = SharedEngine(Processor(), "selfplay", 1, Meter())
        with pytest.raises(JobTimedOut):
            await engine.run(JOB, {"number": 1}, deadline_seconds=1.5)
        assert now() == pytest.approx(1.5)
        return await engine.run(JOB, {"number": 2})

    assert run(main)["number"] == 2

    async def main():
        engine = SharedEngine(Processor(), "selfplay", 1, Meter())
        with pytest.raises(JobFailed) as failed:
            await engine.run(JOB, {"raise": "no"})
        assert failed.value.kind == "ValueError"
        with pytest.raises(WorkerLost):
            await engine.run(JOB, {"exit": True})
        await engine.close()
        with pytest.raises(EngineClosed):
            await engine.run(JOB, {"number": 1})

    run(main)


def test_only_values_called_seconds_become_virtual():
    assert timed({"seconds": 5, "metrics": {"seconds": 4.0, "loss": 1.0}, "parts": [{"seconds": 3}]}, 0.5) == {
        "seconds": 0.5,
        "metrics": {"seconds": 0.5, "loss": 1.0},
        "parts": [{"seconds": 0.5}],
    }
