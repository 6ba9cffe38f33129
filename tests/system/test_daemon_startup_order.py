"""Daemons start in any order. Here the broker comes last, and the controllers before the workers that they wait for."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from running_loop import BRISK, RunningLoop

from flyball.daemons.registry import DAEMONS


@pytest.fixture
def backwards(tmp_path: Path) -> Iterator[RunningLoop]:
    """Start each daemon as its own process, the broker last."""
    (tmp_path / "flyball.toml").write_text(BRISK)
    daemons = [
        subprocess.Popen(
            [sys.executable, "-m", "flyball.app.cli", "--run", str(tmp_path), "daemon", "run", name],
            stdin=subprocess.DEVNULL,
        )
        for name in reversed(DAEMONS)
    ]
    try:
        yield RunningLoop(tmp_path, daemons[-1])
    finally:
        for daemon in daemons:
            daemon.terminate()
        for daemon in daemons:
            daemon.wait(timeout=200)


@pytest.mark.timeout(500)
def test_daemon_startup_order(backwards):
    backwards.wait_for_loops(1)
    assert all(backwards.ready(name) for name in DAEMONS)
    backwards.wait_for("curves", lambda: list((backwards.folder / "curves").rglob("events.*")))
