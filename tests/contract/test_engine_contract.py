"""Contract of all engines, and of engines with processes."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
import structlog

from flyball.app.core import FlyballError
from flyball.app.engine import (
    Engine,
    EngineClosed,
    InlineEngine,
    JobFailed,
    JobTimedOut,
    LocalEngine,
    WorkerLost,
    ray_engine,
    scatter,
)
from flyball.app.engine.ray_engine import RayEngine
from flyball.app.engine.relay import HandedJob, RelayEngine
from flyball.app.engine.worker import encode, perform_here

JOBS = "engine_jobs"


@pytest.fixture(autouse=True)
def _jobs_are_importable(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


class RelayWithCallers(RelayEngine):
    """A relay whose callers are threads that run what they are handed."""

    def __init__(self, workers: int) -> None:
        super().__init__()
        for _ in range(workers):
            threading.Thread(target=self._call, daemon=True).start()

    def _call(self) -> None:
        while job := self.take():
            with suppress(SystemExit):  # nobody waits for the job any more
                perform_here(job.function, encode(job.spec), partial(self._send, job))

    @staticmethod
    def _send(job: HandedJob, frame: bytes) -> None:
        if not job.send(json.loads(frame)):
            raise SystemExit


@pytest.fixture(params=[InlineEngine, LocalEngine, RayEngine, RelayWithCallers])
async def engine(request):
    made: Engine
    if request.param is RayEngine:
        made = RayEngine(request.getfixturevalue("own_ray")[0], {"CPU": 1.0})
    else:
        made = request.param(workers=2)
    yield made
    await made.close()


@pytest.fixture
async def local():
    made = LocalEngine(workers=1, threads=1, nice=3)
    yield made
    await made.close()


async def started(engine: Engine, job: str) -> tuple[asyncio.Task, dict]:
    """Start a job and wait for its first report."""
    first: asyncio.Future[dict] = asyncio.get_running_loop().create_future()

    def hear(report: dict) -> None:
        if not first.done():
            first.set_result(report)

    task = asyncio.get_running_loop().create_task(engine.run(f"{JOBS}:{job}", {}, hear))
    return task, await first


async def test_specs_reports_and_results_come_unchanged_and_in_order(engine):
    assert (await engine.run(f"{JOBS}:double", {"number": 21}))["number"] == 42
    spec = {"text": "é\n\0" * 300_000, "nested": [{"a": [1, 2.5, None, True]}]}
    assert await engine.run(f"{JOBS}:echo", spec) == spec
    heard = []
    assert await engine.run(f"{JOBS}:count", {"to": 200}, heard.append) == {"counted": 200}
    assert heard == [{"number": number} for number in range(200)]


async def test_failed_jobs_name_exceptions_and_the_engine_works_on(engine):
    with pytest.raises(JobFailed) as failed:
        await engine.run(f"{JOBS}:fail", {})
    assert (failed.value.kind, failed.value.code) == ("ValueError", FlyballError.code)
    assert failed.value.summary == "seven is not enough (engine_jobs.py, line 23)"
    assert "def fail" not in str(failed.value)
    assert "engine_jobs.py" in failed.value.trace
    with pytest.raises(JobFailed) as failed:
        await engine.run(f"{JOBS}:fail_with_hint", {})
    assert (failed.value.hint, failed.value.code) == ("Turn it.", "stuck")
    for function in ("engine_jobs:absent", "no.such.module:f", "engine_jobs", ""):
        with pytest.raises(JobFailed, match="names no job"):
            await engine.run(function, {})
    with pytest.raises(JobFailed, match="ValueError"):
        await engine.run(f"{JOBS}:not_a_number", {})
    with pytest.raises(WorkerLost):
        await engine.run(f"{JOBS}:leave", {})
    assert (await engine.run(f"{JOBS}:double", {"number": 1}))["number"] == 2


async def test_as_many_jobs_run_at_once_as_there_are_workers(engine, tmp_path):
    async with asyncio.TaskGroup() as group:
        for name, other in (("a", "b"), ("b", "a")):
            spec = {"folder": str(tmp_path), "name": name, "other": other}
            group.create_task(engine.run(f"{JOBS}:meet", spec))


async def test_more_jobs_or_parts_than_workers_wait_their_turn(engine):
    jobs = [engine.run(f"{JOBS}:double", {"number": number}) for number in range(20)]
    assert [result["number"] for result in await asyncio.gather(*jobs)] == list(range(0, 40, 2))
    results = await scatter(engine, f"{JOBS}:double", [{"number": number} for number in range(20)])
    assert [result["number"] for result in results] == list(range(0, 40, 2))


async def test_cancelled_job_is_abandoned_and_frees_its_place(engine):
    for _ in range(3):  # more often than there are workers
        task, _ = await started(engine, "wait")
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    assert (await engine.run(f"{JOBS}:double", {"number": 1}))["number"] == 2


async def test_job_past_its_deadline_is_ended_and_frees_its_place(engine):
    for _ in range(3):
        with pytest.raises(JobTimedOut, match="not done within"):
            await engine.run(f"{JOBS}:wait", {}, deadline_seconds=0.05)
    assert (await engine.run(f"{JOBS}:double", {"number": 1}, deadline_seconds=30))["number"] == 2


async def test_waiting_for_a_worker_takes_none_of_a_jobs_time(engine):
    hold = [(await started(engine, "wait"))[0] for _ in range(2)]
    late = asyncio.get_running_loop().create_task(engine.run(f"{JOBS}:double", {"number": 1}, deadline_seconds=10))
    await asyncio.sleep(0.1)
    for task in hold:
        task.cancel()
    assert (await late)["number"] == 2
    await asyncio.gather(*hold, return_exceptions=True)


async def test_part_that_fails_is_slow_or_kills_its_worker_is_told(engine, tmp_path):
    specs = [{"file": str(tmp_path / str(part)), "failures": 0 if part else 9} for part in range(3)]
    failed, *others = await scatter(engine, f"{JOBS}:fail_at_first", specs)
    assert isinstance(failed, JobFailed)
    assert others == [{"attempts": 1}, {"attempts": 1}]
    (late,) = await scatter(engine, f"{JOBS}:wait", [{}], deadline_seconds=0.05)
    assert isinstance(late, JobTimedOut)
    (lost,) = await scatter(engine, f"{JOBS}:leave", [{}])
    assert isinstance(lost, WorkerLost)


@pytest.mark.parametrize(("attempts", "tried"), [(1, 1), (3, 3)])
async def test_a_part_that_raises_is_tried_as_often_as_asked(engine, tmp_path, attempts, tried):
    spec = {"file": str(tmp_path / "tried"), "failures": 9}
    (failed,) = await scatter(engine, f"{JOBS}:fail_at_first", [spec], failures=attempts)
    assert isinstance(failed, JobFailed)
    assert (tmp_path / "tried").read_text() == str(tried)


async def test_a_part_whose_worker_dies_is_tried_again(local, tmp_path):
    specs = [{"file": str(tmp_path / str(part)), "deaths": 2} for part in range(3)]
    assert await scatter(local, f"{JOBS}:die_at_first", specs) == [{"attempts": 3}] * 3


@pytest.fixture
async def dying_ray(own_ray, tmp_path, monkeypatch):
    """Return a Ray engine whose workers end before a job's first frame, as often as the file deaths says."""
    tried, perform = tmp_path / "tried", ray_engine._perform

    def end_at_first(*job):
        with tried.open("a") as file:
            file.write(".")
        if len(tried.read_text()) <= int((tried.parent / "deaths").read_text()):
            os._exit(1)
        yield from perform(*job)

    monkeypatch.setattr(ray_engine, "_perform", end_at_first)
    engine = RayEngine(own_ray[0], {"CPU": 1.0})
    yield engine
    await engine.close()


async def test_ray_job_is_submitted_again_until_it_starts(dying_ray, tmp_path):
    (tmp_path / "deaths").write_text("2")
    assert (await dying_ray.run(f"{JOBS}:double", {"number": 21}))["number"] == 42


async def test_ray_job_that_never_starts_is_lost(dying_ray, tmp_path):
    (tmp_path / "deaths").write_text("9")
    with pytest.raises(WorkerLost, match="died unexpectedly"):
        await dying_ray.run(f"{JOBS}:double", {"number": 21})
    assert len((tmp_path / "tried").read_text()) == ray_engine.SUBMISSIONS


async def test_a_listener_that_raises_ends_the_job_with_its_error(engine):
    def refuse(report: dict) -> None:
        raise LookupError("no such dial")

    with pytest.raises(LookupError, match="no such dial"):
        await engine.run(f"{JOBS}:wait", {}, refuse)
    assert (await engine.run(f"{JOBS}:double", {"number": 1}))["number"] == 2


async def test_the_event_loop_runs_on_while_a_job_does(engine):
    task, _ = await started(engine, "wait")
    for _ in range(50):
        await asyncio.sleep(0.001)
    assert not task.done()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_close_twice_loses_running_jobs_and_refuses_new_ones(engine):
    tasks = [(await started(engine, "wait"))[0] for _ in range(2)]
    waiting = asyncio.get_running_loop().create_task(engine.run(f"{JOBS}:double", {"number": 1}))
    await asyncio.sleep(0)
    await engine.close()
    await engine.close()
    outcomes = await asyncio.gather(*tasks, waiting, return_exceptions=True)
    assert [type(outcome) for outcome in outcomes[:2]] == [WorkerLost, WorkerLost]
    assert isinstance(outcomes[2], EngineClosed | WorkerLost)
    with pytest.raises(EngineClosed):
        await engine.run(f"{JOBS}:double", {"number": 1})


async def test_process_is_reused_and_replaced_when_it_is_killed(local):
    pids = {(await local.run(f"{JOBS}:double", {"number": 1}))["pid"] for _ in range(3)}
    assert len(pids) == 1
    assert os.getpid() not in pids
    task, report = await started(local, "busy")
    os.kill(report["pid"], signal.SIGKILL)
    with pytest.raises(WorkerLost, match="-9"):
        await task
    again = await local.run(f"{JOBS}:double", {"number": 4})
    assert again["number"] == 8
    assert again["pid"] != report["pid"]


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_cancelling_or_closing_kills_a_busy_process(local, how):
    task, report = await started(local, "busy")
    process = psutil.Process(report["pid"])
    if how == "close":
        await local.close()
    else:
        task.cancel()
    [outcome] = await asyncio.gather(task, return_exceptions=True)
    assert isinstance(outcome, asyncio.CancelledError if how == "cancel" else WorkerLost)
    assert not process.is_running()


async def test_child_is_nice_survives_ctrl_c_and_keeps_the_protocol(local, capfd):
    own = os.nice(0)
    child = await local.run(f"{JOBS}:double", {"number": 1})
    assert child["nice"] == min(19, own + 3)
    assert child["session"] == child["pid"]
    assert await local.run(f"{JOBS}:interrupt_me", {}) == {"survived": True}
    assert await local.run(f"{JOBS}:threads", {}) == {"torch": 1}
    heard = []
    assert await local.run(f"{JOBS}:chatter", {}, heard.append) == {}
    assert heard == [{"quiet": True}]
    out, err = capfd.readouterr()
    assert out == ""
    for text in ("a stray print", "a stray write to descriptor 1", "a stray child"):
        assert text in err


PARENT = """
import asyncio, sys
from flyball.app.engine import LocalEngine

async def main():
    engine = LocalEngine()
    await engine.run("engine_jobs:busy", {}, lambda report: print(report["pid"], flush=True))

asyncio.run(main())
"""


def test_no_child_outlives_a_parent_that_was_killed(tmp_path):
    paths = os.pathsep.join([str(Path(__file__).parent), *filter(None, sys.path), str(Path.cwd())])
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env={**os.environ, "PYTHONPATH": paths}, text=True
    )
    with parent:
        child = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    child.wait(timeout=200)
    assert not child.is_running()


@pytest.mark.parametrize("engine", [LocalEngine, RayEngine], indirect=True)
async def test_job_finds_its_trace_context_in_the_environment(engine):
    async def run(traceparent: str) -> str:
        with structlog.contextvars.bound_contextvars(traceparent=traceparent):
            return (await engine.run(f"{JOBS}:trace", {}))["traceparent"]

    assert await asyncio.gather(run("00-a"), run("00-b")) == ["00-a", "00-b"]
    assert not (await engine.run(f"{JOBS}:trace", {}))["traceparent"], "a process keeps no context for the next job"


async def test_jobs_run_while_the_working_directory_is_deleted(local, tmp_path, monkeypatch):
    """A numerical library of a job would end its process there."""
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    assert (await local.run(f"{JOBS}:folder", {}))["folder"] == "/"
