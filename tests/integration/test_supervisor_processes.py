"""The supervisor with real processes: restarts, order, deadlines, and no orphans."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.daemons.clock import SystemClock
from flyball.daemons.supervisor import Backoff, ChildReport, ChildSpec, Supervisor

QUICK = Backoff(first=0.01, most=0.04)
SLEEPER = "import signal, sys, time; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); print(flush=True)\n"
PATIENT = SLEEPER + "time.sleep(60)"
STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); open({!r}, 'w'); time.sleep(60)"


class Watch:
    """A supervisor whose reports a test can wait for."""

    def __init__(
        self,
        folder: Path,
        programs: dict[str, str],
        drain_seconds: float = 20.0,
        needed: int = 1,
        extra: Sequence[ChildSpec] = (),
    ) -> None:
        specs = [
            ChildSpec(name, (sys.executable, "-c", program), folder / f"{name}.stderr", {"CHILD": name})
            for name, program in programs.items()
        ]
        self.reports: list[ChildReport] = []
        self.fail: Callable[[ChildReport], None] | None = None
        self.stop, self.hurry, self._news = asyncio.Event(), asyncio.Event(), asyncio.Event()
        self._supervisor = Supervisor(
            [*specs, *extra], SystemClock(), self._report, needed=needed, drain_seconds=drain_seconds, backoff=QUICK
        )

    def _report(self, report: ChildReport) -> None:
        if self.fail:
            self.fail(report)
        self.reports.append(report)
        self._news.set()

    async def run(self) -> bool:
        return await self._supervisor.run(self.stop, self.hurry)

    def cut_short(self) -> list[str]:
        return self._supervisor.cut_short()

    async def until(self, condition: Callable[[list[ChildReport]], bool]) -> None:
        while not condition(self.reports):
            self._news.clear()
            await self._news.wait()


def told(*what: str) -> Callable[[list[ChildReport]], bool]:
    return lambda reports: {report.what for report in reports} >= set(what)


async def exists(path: Path) -> None:
    while not path.exists():  # noqa: ASYNC240 - another process makes it
        await asyncio.sleep(0.01)


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        ("import os, sys; sys.exit('no ' + os.environ['CHILD'])", "no broker (exit code 1)"),
        ("import os; os.kill(os.getpid(), 11)", "killed by SIGSEGV"),
    ],
)
async def test_a_child_that_fails_is_started_again_and_its_reason_told(
    tmp_path: Path, program: str, reason: str
) -> None:
    watch = Watch(tmp_path, {"broker": program})
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        await watch.until(lambda reports: sum(report.what == "failed" for report in reports) >= 4)
        watch.stop.set()
    assert not running.result()
    failures = [report for report in watch.reports if report.what == "failed"]
    assert failures[0].reason == reason
    assert [report.delay for report in failures[:4]] == [0.01, 0.02, 0.04, 0.04]


async def test_a_hopeless_child_ends_all(tmp_path: Path) -> None:
    watch = Watch(tmp_path, {"broker": PATIENT, "training": "import sys; print('what?', file=sys.stderr); sys.exit(2)"})
    assert not await watch.run()
    assert ChildReport("training", "hopeless", watch.reports[-2].pid, "what? (exit code 2)") in watch.reports
    assert watch.reports[-1].name == "broker"


async def test_hopeless_child_that_is_not_vital_ends_nothing(tmp_path: Path) -> None:
    """Let an optional child fail, which has inherited an open file."""
    inherited, mark = os.pipe()
    program = f"import os, sys; os.write({mark}, b'here'); sys.exit(2)"
    optional = ChildSpec("extra", (sys.executable, "-c", program), tmp_path / "extra.stderr", fds=(mark,), vital=False)
    ready = tmp_path / "ready"
    watch = Watch(tmp_path, {"broker": SLEEPER + f"open({str(ready)!r}, 'w'); time.sleep(60)"}, extra=[optional])
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        await watch.until(told("hopeless"))
        await exists(ready)
        assert not watch.stop.is_set()
        watch.stop.set()
    assert running.result()
    assert watch.cut_short() == []
    assert os.read(inherited, 10) == b"here"
    os.close(inherited)
    os.close(mark)


async def test_keeper_s_error_costs_only_its_own_daemon(tmp_path: Path) -> None:
    """Put a folder in the place of one daemon's stderr file."""
    obstacle = tmp_path / "training.stderr"
    obstacle.mkdir()
    watch = Watch(tmp_path, {"broker": PATIENT, "training": PATIENT})
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        await watch.until(lambda reports: sum(report.what == "failed" for report in reports) >= 2)
        obstacle.rmdir()
        await watch.until(lambda reports: ("training", "started") in [(one.name, one.what) for one in reports])
        watch.stop.set()
    assert running.result()
    failed = next(report for report in watch.reports if report.what == "failed")
    assert (failed.name, failed.pid) == ("training", None)
    assert failed.reason.startswith("IsADirectoryError: ")
    assert {one.name for one in watch.reports if one.what == "stopped"} == {"broker", "training"}


async def test_program_that_is_missing_costs_only_its_daemon(tmp_path: Path) -> None:
    missing = ChildSpec("training", (str(tmp_path / "nowhere"),), tmp_path / "training.stderr")
    watch = Watch(tmp_path, {"broker": PATIENT}, extra=[missing])
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        await watch.until(told("failed"))
        watch.stop.set()
    assert "nowhere" in next(report for report in watch.reports if report.what == "failed").reason
    assert "stopped" in {report.what for report in watch.reports if report.name == "broker"}


async def test_report_that_fails_ends_nothing(tmp_path: Path) -> None:
    """Let the screen fail at each report."""
    watch = Watch(tmp_path, {"broker": PATIENT, "training": PATIENT})

    def fail(report: ChildReport) -> None:
        watch.reports.append(report)
        if len(watch.reports) == 2:
            watch.stop.set()
        raise RuntimeError("no screen")

    watch.fail = fail
    assert await watch.run()
    assert [report.what for report in watch.reports] == ["started", "started", "stopped", "stopped"]


@pytest.mark.parametrize("needed", [["broker"], ["broker", "ray"]])
async def test_those_that_others_need_are_stopped_last(tmp_path: Path, needed: list[str]) -> None:
    names = [*needed, "one", "two"]
    watch = Watch(tmp_path, dict.fromkeys(names, PATIENT), needed=len(needed))
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        await watch.until(lambda reports: len(reports) == len(names))
        watch.stop.set()
    assert running.result()
    stopped = [report.name for report in watch.reports if report.what != "started"]
    assert sorted(stopped[:2]) == ["one", "two"]
    assert sorted(stopped[2:]) == needed


async def test_who_was_ended_while_starting_is_known(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    ready = SLEEPER + f"open({str(mark)!r}, 'w'); time.sleep(60)"
    watch = Watch(tmp_path, {"broker": ready, "slow": "import time; time.sleep(60)"})
    async with asyncio.TaskGroup() as group:
        running = group.create_task(watch.run())
        await exists(mark)
        await watch.until(lambda reports: len(reports) == 2)
        watch.stop.set()
    assert running.result()
    assert watch.cut_short() == ["slow"]


@pytest.mark.parametrize("hurry", [False, True])
async def test_who_takes_too_long_or_is_hurried_is_killed(tmp_path: Path, hurry: bool) -> None:
    mark, patience = tmp_path / "mark", 1000 if hurry else 0.05
    watch = Watch(tmp_path, {"broker": PATIENT, "stubborn": STUBBORN.format(str(mark))}, drain_seconds=patience)
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        await exists(mark)
        watch.stop.set()
        if hurry:
            await asyncio.sleep(0)
            watch.hurry.set()
    assert [report.what for report in watch.reports if report.name == "stubborn"] == ["started", "killed"]


ORDERLY = """
from flyball.daemons.supervisor import end_with_stdin
import signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
end_with_stdin()
open({!r}, "w")
time.sleep(60)
"""


async def test_a_supervised_program_can_leave_in_order(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    watch = Watch(tmp_path, {"broker": ORDERLY.format(str(mark))})
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        await exists(mark)
        watch.stop.set()
    assert [(report.what, report.reason) for report in watch.reports] == [("started", ""), ("stopped", "")]
    assert (tmp_path / "broker.stderr").read_text() == ""


async def test_leaving_out_of_order_is_told(tmp_path: Path) -> None:
    program = SLEEPER.replace("sys.exit(0)", "sys.exit('lost something')") + f"open({str(tmp_path / 'mark')!r}, 'w')\n"
    watch = Watch(tmp_path, {"broker": program + "time.sleep(60)"})
    async with asyncio.TaskGroup() as group:
        group.create_task(watch.run())
        await exists(tmp_path / "mark")
        watch.stop.set()
    assert watch.reports[-1].reason == "lost something (exit code 1)"


SUPERVISED = """
from flyball.daemons.supervisor import end_with_stdin
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
end_with_stdin()
pathlib.Path(sys.argv[1]).touch()
time.sleep(600)
"""
SUPERVISOR = """
import asyncio, pathlib, sys
from flyball.daemons.clock import SystemClock
from flyball.daemons.supervisor import ChildSpec, Supervisor
folder = pathlib.Path(sys.argv[1])
specs = [
    ChildSpec(name, (sys.executable, "-c", sys.argv[2], str(folder / name)), folder / f"{name}.stderr")
    for name in ("one", "two")
]
asyncio.run(Supervisor(specs, SystemClock(), lambda report: None).run(asyncio.Event(), asyncio.Event()))
"""


def test_no_child_outlives_a_killed_supervisor(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(tmp_path), SUPERVISED]) as supervisor:
        while not ((tmp_path / "one").exists() and (tmp_path / "two").exists()):
            assert supervisor.poll() is None
        children = psutil.Process(supervisor.pid).children(recursive=True)
        assert len(children) == 2
        assert {os.getsid(child.pid) for child in children} == {child.pid for child in children}
        supervisor.send_signal(signal.SIGKILL)
    _, alive = psutil.wait_procs(children, timeout=200)
    assert alive == []


@given(failures=st.integers(1, 10_000))
def test_waits_grow_up_to_a_bound(failures: int) -> None:
    backoff = Backoff()
    assert backoff.first <= backoff.delay(failures) <= backoff.delay(failures + 1) <= backoff.most


@pytest.mark.parametrize(("uptime", "count"), [(0.0, 8), (29.9, 8), (30.0, 1)])
def test_a_stable_time_is_a_new_start(uptime: float, count: int) -> None:
    assert Backoff().count(7, uptime) == count
