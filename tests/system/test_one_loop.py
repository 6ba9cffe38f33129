"""Guarantee: all daemons close a loop, survive one kill, and leave in order.

This is the only loop of ``make test``. Its tests are chapters of one run, because most of a loop's cost is its start.
"""

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from commands import invoke
from history_checks import check_history
from running_loop import BRISK, STARTED, RunningLoop, running_loop

from flyball.app.events import ModelPromoted, RunConfigured

CHILDREN = {*STARTED, "dashboard"}
DASHBOARD, LOG = "Dashboard: ", Path("logs/training.jsonl")

pytestmark = pytest.mark.timeout(500)


@pytest.fixture(scope="module")
def loop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLoop]:
    folder = tmp_path_factory.mktemp("one") / "run"
    with running_loop(folder, BRISK, dashboard=True, options=("--json", "--seed", "8")) as started:
        yield started


def shown(loop: RunningLoop) -> list[str]:
    return (loop.folder / "up.out").read_text().splitlines()


def log_files(loop: RunningLoop) -> list[Path]:
    return [*(loop.folder / "logs").glob("*.jsonl")]


def flyball(loop: RunningLoop, *words: str) -> tuple[int, Any]:
    """Run a command in this process; return its exit code and what it printed."""
    done = invoke(*words, "--json", run=loop.folder)
    return done.exit_code, json.loads(done.stdout)


def test_all_daemons_start_and_promote_a_model(loop: RunningLoop) -> None:
    loop.wait_for("a promotion", lambda: [e for e in loop.events(ModelPromoted) if e.data.step > 0])
    (url,) = (line.removeprefix(DASHBOARD) for line in shown(loop) if line.startswith(DASHBOARD))
    page = f"{url.strip()}overview/summary"
    loop.wait_for("all ready", lambda: f"{len(STARTED)} ready" in urlopen(page).read().decode())
    assert loop.events(RunConfigured)[-1].data.settings["seed"] == 8
    logs = {path: [json.loads(line) for line in path.read_text().splitlines()] for path in log_files(loop)}
    assert {path.stem for path in logs} >= CHILDREN
    assert all(record["severity_number"] < 13 for records in logs.values() for record in records)
    (asked,) = (one["attributes"] for one in logs[loop.folder / LOG] if one["body"] == "device of jobs")
    assert (asked["device"], asked["precision"]) == ("cpu", "auto")


def test_killed_broker_comes_back_and_the_loop_goes_on(loop: RunningLoop) -> None:
    """Kill the one daemon that all others need."""
    before, pid = loop.events(), loop.pid_of("broker")
    os.kill(pid, signal.SIGKILL)
    loop.wait_for("another broker", lambda: loop.pid_of("broker") != pid and loop.ready("broker", after=len(before)))
    loop.wait_for_loops(2, after=loop.head())
    assert loop.events()[: len(before)] == before, "an event that was recorded has changed or gone"


def test_ctrl_c_ends_all_daemons_with_the_broker_last(loop: RunningLoop) -> None:
    assert loop.leave() == 0
    told = [json.loads(line) for line in shown(loop) if line.startswith("{")]
    left = [one for one in told if one.get("what") == "stopped" and one["reason"] == ""]
    assert {one["daemon"] for one in left} == CHILDREN
    assert left[-1]["daemon"] == "broker"
    code, now = flyball(loop, "status")
    assert code == 3, "not running"
    assert {one["daemon"]: one["state"] for one in now["daemons"]} == dict.fromkeys(STARTED, "stopped")
    assert [one["key"] for one in now["configs"]] == ["tic_tac_toe_2p"]


def test_every_decision_of_the_run_can_be_recomputed(loop: RunningLoop) -> None:
    code, report = flyball(loop, "replay", "--check")
    assert (code, report["differing"], report["unfolded"]) == (0, 0, [])
    assert report["matched"]["MODEL_PROMOTED"] >= 1
    check_history(loop.events())
