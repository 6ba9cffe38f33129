"""Run folders of earlier versions: opened, migrated, continued."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from old_runs import FOLDER, unpack
from running_loop import RunningLoop, running_loop

from app.cli.group import main
from app.events import DaemonFailed, DaemonReady, TrainingRequested
from app.journal import SqliteJournal

OLD_RUNS = sorted(path.name.removesuffix(".tar.xz") for path in FOLDER.glob("*.tar.xz"))


@pytest.fixture(params=OLD_RUNS)
def run(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return unpack(request.param, tmp_path)


def flyball(run: Path, *words: str) -> Result:
    return CliRunner().invoke(main, ["--run", str(run), *words], prog_name="flyball")


def test_there_are_old_runs() -> None:
    assert "200ec2d" in OLD_RUNS


def test_an_old_journal_is_migrated_and_read(run: Path) -> None:
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        before = db.execute("SELECT first, head, bodies FROM frames").fetchall()
        marks = db.execute("SELECT producer, epoch, next, used FROM marks").fetchall()
    refused = flyball(run, "journal", "verify")
    assert refused.exit_code == 2
    assert "format 0" in refused.stderr
    assert "journal migrate" in refused.stderr
    assert flyball(run, "journal", "migrate").exit_code == 0
    assert flyball(run, "journal", "verify").exit_code == 0
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        assert db.execute("SELECT first, head, bodies FROM frames").fetchall() == before
        assert db.execute("SELECT producer, epoch, next, used FROM marks").fetchall() == marks
    shown = flyball(run, "status")
    assert shown.exit_code == 3, "nothing runs"
    assert "tic_tac_toe_2p" in shown.stdout


def test_a_killed_migration_leaves_the_old_format(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PowerCut(Exception):
        """A loss of the machine's power."""

    def cut(*_: object) -> None:
        raise PowerCut

    with monkeypatch.context() as patched:
        patched.setattr("app.journal.queries.save_row", cut)
        with pytest.raises(PowerCut):
            SqliteJournal(run / "journal.sqlite")
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
    SqliteJournal(run / "journal.sqlite").close()


@pytest.mark.timeout(400)
def test_an_old_run_goes_on(run: Path) -> None:
    """All daemons continue from the old version's state, and close another loop."""
    settings = (run / "flyball.toml").read_text()
    with closing(SqliteJournal(run / "journal.sqlite")) as journal:
        end = journal.head
    with running_loop(run, settings) as loop:
        loop.wait_for_loops(1, after=end)
        check_state_was_kept(loop, end)
    checked = json.loads(flyball(run, "replay", "--check", "--json").stdout)
    changed = {one["daemon"] for one in checked["handovers"]}
    assert {"training_trigger", "model_lifecycle", "feedback", "selfplay_scheduler"} <= changed
    assert all(one["position"] > end for one in checked["handovers"])


def check_state_was_kept(loop: RunningLoop, end: int) -> None:
    assert not loop.events(DaemonFailed, after=end)
    bases = [event.data.base_model for event in loop.events(TrainingRequested, after=end)]
    assert bases, "it trains"
    assert None not in bases, "on from its champion"
    ready = {event.data.daemon for event in loop.events(DaemonReady, after=end)}
    assert len(ready) == 11
    told = loop.logs()
    assert "damaged" not in told
