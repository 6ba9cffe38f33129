"""``flyball up`` as an operator uses it: start, Ctrl-C and early ends."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from running_loop import STARTED

pytestmark = pytest.mark.timeout(500)


@contextmanager
def flyball_up(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    command = (
        sys.executable,
        "-m",
        "flyball.app.cli",
        "--run",
        str(folder),
        "up",
        "--config",
        "tic_tac_toe_2p",
        "--json",
    )
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


def test_a_daemon_that_cannot_start_says_why(tmp_path: Path) -> None:
    """Put a folder in place of a state file. It cannot be opened, whereas a damaged file would be set aside."""
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
