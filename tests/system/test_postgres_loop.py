"""Guarantee (ADR-040): a loop whose journal is in a PostgreSQL database survives a kill and replays."""

import os
import signal
from pathlib import Path

import pytest
from commands import invoke, succeeded
from history_checks import check_history
from running_loop import BRISK, running_loop

pytestmark = pytest.mark.timeout(500)


def test_loop_on_postgres_survives_a_kill_and_replays(database: str, tmp_path: Path) -> None:
    settings = BRISK.replace("[deployment]", f'[deployment]\njournal.url = "{database}"')
    with running_loop(tmp_path / "run", settings) as loop:
        loop.wait_for_loops(1)
        before, pid = loop.events(), loop.pid_of("broker")
        os.kill(pid, signal.SIGKILL)
        loop.wait_for("another broker", lambda: loop.pid_of("broker") != pid)
        loop.wait_for_loops(1, after=len(before))
        assert loop.events()[: len(before)] == before, "an event that was recorded has changed or gone"
        succeeded(invoke("status", run=loop.folder))
        assert loop.leave() == 0
        check_history(loop.events())
    assert not (loop.folder / "journal.sqlite").exists()
    succeeded(invoke("replay", "--check", run=loop.folder), "every conclusion follows")
    succeeded(invoke("journal", "verify", run=loop.folder), "No damage")
