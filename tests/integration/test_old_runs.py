"""Run folders of earlier versions: opened, migrated, replayed, continued."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from commands import invoke, refused, succeeded
from old_runs import FOLDER, facts_of, unpack
from running_loop import RunningLoop, running_loop

from flyball.app.events import DaemonFailed, DaemonReady, TrainingRequested
from flyball.app.journal import SqliteJournal

UNMIGRATED = "200ec2d"
"""A run whose journal has format 0."""

WITH_FACTS = sorted(path.stem for path in FOLDER.glob("*.json"))


def flyball(run: Path, *words: str) -> Result:
    return invoke(*words, run=run)


def test_old_journal_is_migrated_read_and_replayed(tmp_path: Path) -> None:
    run = unpack(UNMIGRATED, tmp_path)
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        before = db.execute("SELECT first, head, bodies FROM frames").fetchall()
        marks = db.execute("SELECT producer, epoch, next, used FROM marks").fetchall()
    refused(flyball(run, "journal", "verify"), 2, "format 0", "journal migrate")
    assert flyball(run, "journal", "migrate").exit_code == 0
    assert flyball(run, "journal", "verify").exit_code == 0
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        assert db.execute("SELECT first, head, bodies FROM frames").fetchall() == before
        assert db.execute("SELECT producer, epoch, next, used FROM marks").fetchall() == marks
    shown = flyball(run, "status")
    assert shown.exit_code == 3, "nothing runs"
    assert "tic_tac_toe_2p" in shown.stdout
    replayed = json.loads(flyball(run, "replay", "--check", "--json").stdout)
    assert (replayed["position"], replayed["unfolded"]) == (330, []), "every event can be read and folded"
    assert replayed["matched"]["MODEL_PROMOTED"] == 1


def test_killed_migration_leaves_the_old_format(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class PowerCut(Exception):
        """A loss of the machine's power."""

    def cut(*_: object) -> None:
        raise PowerCut

    run = unpack(UNMIGRATED, tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr("flyball.app.journal.queries.save_row", cut)
        with pytest.raises(PowerCut):
            SqliteJournal(run / "journal.sqlite")
    with closing(sqlite3.connect(run / "journal.sqlite")) as db:
        assert db.execute("PRAGMA user_version").fetchone() == (0,)
    SqliteJournal(run / "journal.sqlite").close()


@pytest.mark.parametrize("name", WITH_FACTS)
def test_old_run_shows_the_facts_that_its_version_showed(tmp_path: Path, name: str) -> None:
    """Guarantee: ratings, counts and the play of stored models stay as they were; the journal is folded to its end.

    One figure is corrected: the status showed the rating of the candidate rated last, and shows the champion's now.
    Its decisions are shown as they were taken. Later rules take others, which ``replay --check`` lists.
    """
    run = unpack(name, tmp_path)
    expected = json.loads((FOLDER / f"{name}.json").read_text())
    assert facts_of(lambda *words: flyball(run, *words).stdout) == expected
    replayed = json.loads(flyball(run, "replay", "--check", "--json").stdout)
    assert (replayed["position"], replayed["unfolded"]) == (expected["position"], [])
    succeeded(flyball(run, "store", "verify"))


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", WITH_FACTS)
def test_old_run_goes_on(tmp_path: Path, name: str) -> None:
    """All daemons continue from the old version's state, and close another loop of each game."""
    run = unpack(name, tmp_path)
    settings = (run / "flyball.toml").read_text()
    with closing(SqliteJournal(run / "journal.sqlite")) as journal:
        end = journal.head
    with running_loop(run, settings) as loop:
        games = settings.count("[games.")
        loop.wait_for("a loop of each game", lambda: len({one.subject for one in loop.loops(after=end)}) == games)
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
    assert "damaged" not in loop.logs()
