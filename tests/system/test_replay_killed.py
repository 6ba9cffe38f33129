"""Replays that are killed with -9 come to the same state. They are compared with an undisturbed replay."""

import json
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from generated_run import generated, write_generated

from flyball.app.journal import SqliteJournalReader
from flyball.app.replay.replaying import replay_journal

FLYBALL = (sys.executable, "-m", "flyball.app.cli")


def position(checkpoint: Path) -> int:
    """Return the position of the saved state, 0 if unreadable. Another process writes it meanwhile."""
    try:
        with closing(sqlite3.connect(f"file:{checkpoint}?mode=ro", uri=True)) as db:
            return int(db.execute("SELECT position FROM cursor").fetchone()[0])
    except (sqlite3.Error, TypeError):
        return 0


def check(run: Path, checkpoint: Path, every: int) -> "subprocess.Popen[str]":
    words = ("replay", "--check", "--json", "--checkpoint", str(checkpoint), "--every", str(every))
    return subprocess.Popen((*FLYBALL, "--run", str(run), *words), stdout=subprocess.PIPE, text=True)


def killed_halfway(run: Path, checkpoint: Path, every: int, beyond: int) -> int:
    """Start a replay, and kill it beyond a position. Returns the position of its saved state then."""
    with check(run, checkpoint, every) as process:
        while process.poll() is None and position(checkpoint) <= beyond:
            time.sleep(0.005)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL, "it was faster than the test"
    return position(checkpoint)


def whole(run: Path) -> Any:
    with closing(SqliteJournalReader(run / "journal.sqlite")) as reader:
        return replay_journal(reader)


@pytest.mark.parametrize(
    ("events", "every"),
    [
        pytest.param(10_000, 250, marks=pytest.mark.timeout(400)),
        pytest.param(1_000_000, 20_000, marks=[pytest.mark.slow, pytest.mark.timeout(3600)]),
    ],
)
def test_killed_half_way_and_resumed_it_comes_to_the_same_state(tmp_path, events, every):
    write_generated(tmp_path / "journal.sqlite", generated(events, seed=5))
    checkpoint, reached = tmp_path / "replay.sqlite", 0
    for part in (0.0, 0.25, 0.5):
        reached = killed_halfway(tmp_path, checkpoint, every, beyond=max(reached, int(part * events)))
        assert 0 < reached < events
    with check(tmp_path, checkpoint, every) as process:
        found = json.loads(process.communicate()[0])
    assert process.returncode == 0
    assert found["events"] == events - reached
    report = whole(tmp_path)
    assert (found["state_hash"], found["matched"]) == (report.state_hash, report.matched)
    assert (found["position"], found["differing"], report.differing) == (events, 0, 0)
