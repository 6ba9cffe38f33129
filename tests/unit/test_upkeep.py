"""Journal upkeep by the broker: archiving process and takeover of segments."""

import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from archives import record_of
from bus_rig import StepClock

from flyball.app.config.deployment import JournalSettings
from flyball.app.journal import SqliteJournal, segments
from flyball.app.journal.archiving import archive
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.snapshots import write_snapshot
from flyball.daemons import upkeep
from flyball.daemons.upkeep import LOOK_SECONDS, PAUSE_SECONDS, PeriodicCommand, Upkeep


@pytest.fixture
def journal(tmp_path: Path):
    with closing(SqliteJournal(tmp_path / "journal.sqlite")) as journal:
        journal.append([record_of(first, [b"x", b"y"]) for first in range(1, 101, 2)])
        yield journal


def archiving(journal: SqliteJournal, program: str, clock: StepClock) -> PeriodicCommand:
    errors = journal.archive.folder.with_name("logs") / "archive.stderr"
    return PeriodicCommand("archiving", (sys.executable, "-c", program), errors, clock)


def keeper(journal: SqliteJournal, program: str, clock: StepClock, **settings: float) -> Upkeep:
    return Upkeep(journal, archiving(journal, program, clock), JournalSettings(**settings), clock)


def test_upkeep_takes_over_complete_segments_once_a_minute(journal: SqliteJournal, tmp_path: Path) -> None:
    clock = StepClock()
    kept = keeper(journal, "", clock)
    kept.look()
    archive(tmp_path / "journal.sqlite", 50)
    kept.look()
    assert journal.archive.end == 0
    clock.seconds += LOOK_SECONDS
    kept.look()
    assert journal.archive.end == 50


def test_upkeep_takes_over_a_segment_a_turn(journal: SqliteJournal, tmp_path: Path) -> None:
    kept = keeper(journal, "", StepClock())
    for until in (20, 40, 60):
        archive(tmp_path / "journal.sqlite", until)
    ends = list[int]()
    for _ in range(4):
        kept.look()
        ends.append(journal.archive.end)
    assert ends == [20, 40, 60, 60]


def test_upkeep_survives_files_that_cannot_be_used(journal: SqliteJournal, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(upkeep, "EVENTS", 60)
    (tmp_path / "logs").write_text("a file where the folder of logs belongs")
    archive(tmp_path / "journal.sqlite", 50)
    monkeypatch.setattr(segments, "digest_of", Mock(side_effect=OSError("input/output error")))
    keeper(journal, "", StepClock()).look()
    told = capsys.readouterr().out
    assert "input/output error" in told
    assert "archiving not started" in told


def test_upkeep_starts_the_command_after_enough_events(
    journal: SqliteJournal, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(upkeep, "EVENTS", 60)
    clock, runs = StepClock(), tmp_path / "runs"
    program = f"import sys; open({str(runs)!r}, 'a').write('run '); sys.exit('no room')"
    with closing(archiving(journal, program, clock)) as command:
        kept = Upkeep(journal, command, JournalSettings(), clock)
        for _ in range(2):
            kept.look()
            assert command.child is not None
            command.child.wait()
            clock.seconds += PAUSE_SECONDS
            kept.look()  # ends the first; too few new events for a second
            assert command.child is None
            journal.append([record_of(journal.head + 1, [b"z"] * 60)])
            clock.seconds += LOOK_SECONDS
    assert runs.read_text() == "run run "
    assert "no room" in capsys.readouterr().out


def test_failed_archiving_is_told_without_its_stderr_file(
    journal: SqliteJournal, tmp_path: Path, monkeypatch, capsys
) -> None:
    monkeypatch.setattr(upkeep, "EVENTS", 60)
    clock = StepClock()
    with closing(archiving(journal, "import sys; sys.exit(3)", clock)) as command:
        kept = Upkeep(journal, command, JournalSettings(), clock)
        kept.look()
        assert command.child is not None
        command.child.wait()
        (tmp_path / "logs" / "archive.stderr").unlink()
        clock.seconds += LOOK_SECONDS
        kept.look()
    assert "archiving failed" in capsys.readouterr().out


def test_upkeep_deletes_what_is_older_than_the_settings_say(journal: SqliteJournal, tmp_path: Path) -> None:
    archive(tmp_path / "journal.sqlite", 50)
    journal.adopt()
    write_snapshot(journal.archive.folder, Snapshot(50, {}), journal.head_at(50) or b"")
    keeper(journal, "", StepClock()).look()
    assert journal.first == 1
    keeper(journal, "", StepClock(), delete_days=1.0).look()
    assert journal.first == 51
