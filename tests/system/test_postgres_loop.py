"""Guarantee (ADR-040): a loop with its journal in PostgreSQL goes on after its broker was killed or halted."""

import os
import signal
import time
from pathlib import Path

import pytest
from commands import invoke, succeeded
from history_checks import check_history
from running_loop import BRISK, RunningLoop, running_loop

pytest.importorskip("psycopg")

from flyball.app.journal import postgres

pytestmark = pytest.mark.timeout(500)


def halt(loop: RunningLoop, seconds: float) -> None:
    """Halt the broker for so long that the server ends its session; it must not go on with it."""
    head, pid = loop.head(), loop.pid_of("broker")
    os.kill(pid, signal.SIGSTOP)
    time.sleep(seconds)
    os.kill(pid, signal.SIGCONT)
    loop.wait_for("another broker", lambda: loop.pid_of("broker") != pid)
    loop.wait_for_loops(1, after=head)


def test_loop_on_postgres_survives_its_broker_and_replays(database: str, tmp_path: Path) -> None:
    settings = BRISK.replace("[deployment]", f'[deployment]\njournal.url = "{database}"')
    with running_loop(tmp_path / "run", settings) as loop:
        loop.wait_for_loops(1)
        before, pid = loop.events(), loop.pid_of("broker")
        os.kill(pid, signal.SIGKILL)
        loop.wait_for("another broker", lambda: loop.pid_of("broker") != pid)
        loop.wait_for_loops(1, after=len(before))
        assert loop.events()[: len(before)] == before, "an event that was recorded has changed or gone"
        succeeded(invoke("status", run=loop.folder))
        halt(loop, postgres.IDLE_SECONDS + 2)
        assert loop.leave() == 0
        check_history(loop.events())
    assert not (loop.folder / "journal.sqlite").exists()
    succeeded(invoke("replay", "--check", run=loop.folder), "every conclusion follows")
    succeeded(invoke("journal", "verify", run=loop.folder), "No damage")
