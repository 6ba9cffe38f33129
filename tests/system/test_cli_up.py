"""``flyball up`` as an operator uses it: start, Ctrl-C and early ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from time import sleep
from typing import Any
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from running_loop import STARTED

from app.cli.group import main

pytestmark = pytest.mark.timeout(500)


@contextmanager
def flyball_up(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = (sys.executable, "-m", "app.cli", "--run", str(folder), "up", "--config", "tic_tac_toe_2p", "--json")
    env = {**os.environ, "FLYBALL_DEPLOYMENT__DASHBOARD__PORT": "0"}
    with subprocess.Popen(
        (*command, *words), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def told(process: subprocess.Popen[str]) -> Iterator[dict[str, Any]]:
    assert process.stdout is not None
    for line in process.stdout:
        yield json.loads(line)


CHILDREN = {*STARTED, "dashboard"}


def dashboard_of(process: subprocess.Popen[str]) -> str:
    assert process.stderr is not None
    line = next(line for line in process.stderr if line.startswith("Dashboard: "))
    return line.removeprefix("Dashboard: ").strip()


def status(folder: Path) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(CliRunner().invoke(main, ["--run", str(folder), "status", "--json"]).stdout)
    return parsed


def test_all_daemons_start_work_and_leave_in_order(tmp_path: Path) -> None:
    with flyball_up(tmp_path, "--seed", "7") as process:
        url = dashboard_of(process)
        promoted = next(one for one in told(process) if one.get("type") == "flyball.model.promoted")
        assert promoted["subject"] == "tic_tac_toe_2p"
        while "11 ready" not in urlopen(f"{url}overview/summary").read().decode():  # daemons, or the page, may be late
            sleep(0.05)
        process.send_signal(signal.SIGINT)
        left = [one for one in told(process) if one.get("what") == "stopped"]
        assert process.wait() == 0
    assert {one["daemon"] for one in left} == CHILDREN
    assert left[-1]["daemon"] == "broker"
    assert [one["reason"] for one in left] == [""] * len(CHILDREN)
    now = status(tmp_path)
    assert {one["daemon"]: one["state"] for one in now["daemons"]} == dict.fromkeys(STARTED, "stopped")
    assert [one["key"] for one in now["configs"]] == ["tic_tac_toe_2p"]
    configured = CliRunner().invoke(main, ["--run", str(tmp_path), "tail", "RUN_CONFIGURED", "--json"]).stdout
    assert json.loads(configured)["data"]["settings"]["seed"] == 7
    logged = [json.loads(line) for line in (tmp_path / "logs" / "training.jsonl").read_text().splitlines()]
    (asked,) = (one["attributes"] for one in logged if one["body"] == "device of jobs")
    assert (asked["device"], asked["precision"]) == ("cpu", "auto")
    for log in (tmp_path / "logs").glob("*.jsonl"):
        assert all(json.loads(line)["severity_number"] < 13 for line in log.read_text().splitlines()), log


def test_a_daemon_that_cannot_start_says_why(tmp_path: Path) -> None:
    """Put a folder in place of a state file.

    It cannot be opened, whereas a damaged file would be set aside.
    """
    (tmp_path / "state" / "training@laptop.sqlite").mkdir(parents=True)
    with flyball_up(tmp_path, "--role", "worker", "--for", "120") as process:  # fewer daemons than a head's
        failed = next(one for one in told(process) if one.get("what") == "failed")
        process.send_signal(signal.SIGTERM)
        process.wait()
    assert failed["daemon"] == "training"
    assert "training@laptop.sqlite could not be used: unable to open database file" in failed["reason"]
    assert failed["delay"] == 0.5


def test_up_for_too_short_a_time_names_daemons_not_yet_started(tmp_path: Path) -> None:
    with flyball_up(tmp_path, "--for", "0.001") as process:
        left = [one["daemon"] for one in told(process) if one["what"] == "stopped"]
        assert process.wait() == 1
        assert process.stderr is not None
        said = process.stderr.read()
    assert sorted(left) == sorted(CHILDREN)
    assert "The time was over before these had started: " in said


def test_of_two_at_once_one_runs(tmp_path: Path) -> None:
    """Start two loops that never end by themselves.

    So the second finds the first, however long either takes to start.
    """
    with flyball_up(tmp_path) as one, flyball_up(tmp_path) as other:
        while one.poll() is None and other.poll() is None:
            sleep(0.05)
        refused, running = (one, other) if other.poll() is None else (other, one)
        output, why = refused.communicate()
        assert output == ""
        assert "Another `flyball up` runs in" in why
        lines = told(running)
        started = set[str]()
        while started != CHILDREN:
            started.add(next(lines)["daemon"])
        running.send_signal(signal.SIGTERM)
        running.communicate()
