"""Guarantee: a run whose disk died goes on from what was shipped to another one (ADR-042)."""

import json
import shutil
from contextlib import closing, suppress
from pathlib import Path

import psutil
import pytest
from running_loop import BRISK, RunningLoop, flyball, running_loop

from flyball.app.config import RunFolder
from flyball.app.journal import SqliteJournalReader
from flyball.app.journal.restoring import restore
from flyball.app.store.named import open_objects

pytestmark = pytest.mark.timeout(900)


def kill_everything(loop: RunningLoop) -> None:
    """Kill -9 all processes of a run at one moment, as a loss of power does."""
    up = psutil.Process(loop.process.pid)
    processes = [up, *up.children(recursive=True)]
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.suspend()  # so that none sees another's end
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(processes, timeout=60)


def shipped(run: Path) -> int:
    """Return the position of the last event that was shipped."""
    state = RunFolder(run).shipping
    return int(json.loads(state.read_bytes())["position"]) if state.exists() else 0


def end(journal: Path) -> tuple[int, int]:
    """Return the position of the last event, and when it was recorded, in microseconds."""
    with closing(SqliteJournalReader(journal)) as reader:
        return reader.head, next(reader.headers_back(reader.head)).recorded_us


def test_run_goes_on_after_its_disk_died(tmp_path: Path) -> None:
    """Kill everything, delete the run folder, put flyball.toml back, restore, and start. The store is elsewhere."""
    run, store = tmp_path / "run", tmp_path / "disk" / "store"
    store.mkdir(parents=True)
    settings = BRISK.replace("[deployment]", f'[deployment]\nstore = "{store}"\njournal.ship = "store"')
    with running_loop(run, settings) as loop:
        loop.wait_for_loops(1)
        loop.wait_for("a shipment", lambda: shipped(run))
        kill_everything(loop)
    head, recorded_us = end(run / "journal.sqlite")
    shutil.rmtree(run)
    run.mkdir()
    (run / "flyball.toml").write_text(settings)
    flyball(run, "journal", "restore", str(store))
    restored, until_us = end(run / "journal.sqlite")
    print(f"lost {head - restored} of {head} events, {(recorded_us - until_us) / 1e6:.2f} s")  # noqa: T201
    assert restored <= head
    assert recorded_us - until_us < 30e6, "two seconds and an upload on a quiet machine"
    with running_loop(run, settings) as loop:
        loop.wait_for_loops(1, after=restored)
        status = json.loads(flyball(run, "status", "--json"))
        assert (status["set_aside"], status["unfolded"]) == ([], [])
        loop.leave()
    flyball(run, "replay", "--check")
    flyball(run, "journal", "verify")
    again = restore(tmp_path / "again.sqlite", open_objects(str(store), "test"))
    assert (again.head, again.problems) == (end(run / "journal.sqlite")[0], [])
