"""Commands on a damaged journal name damage and remedy, and change nothing."""

import json
import re
import sqlite3
from pathlib import Path

import pytest
from commands import Flyball, refused, succeeded
from recorded_run import recording, write_journal


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Return a run folder whose journal holds the recording."""
    write_journal(tmp_path / "journal.sqlite", recording().events)
    return tmp_path


def spoil(run: Path, change: str) -> None:
    with sqlite3.connect(run / "journal.sqlite") as db:
        db.execute(change)
    db.close()


def test_a_sound_journal_is_called_so(run: Path, flyball: Flyball) -> None:
    done = flyball("journal", "verify")
    assert (done.exit_code, done.stdout, "No damage" in done.stderr) == (0, "", True)
    assert flyball("journal", "verify", "--json").stdout == ""


def test_backup_has_the_runs_events_and_replaces_no_file(run: Path, flyball: Flyball, tmp_path: Path) -> None:
    before, copy = flyball("tail", "--json").stdout, tmp_path / "backup.sqlite"
    assert "without damage" in flyball("journal", "backup", str(copy)).stderr
    refused(flyball("journal", "backup", str(copy)), 1, "is there already")
    copy.replace(run / "journal.sqlite")
    assert before
    assert flyball("tail", "--json").stdout == before


def test_all_damage_of_a_journal_is_listed(run: Path, flyball: Flyball) -> None:
    spoil(run, "UPDATE frames SET bodies = x'00' WHERE first IN (3, 7)")
    spoil(run, "DELETE FROM frames WHERE first = 5")
    told = flyball("journal", "verify")
    assert told.exit_code == 1
    assert [line.partition("position ")[2] for line in told.stdout.splitlines()] == ["3.", "5.", "7."]
    listed = flyball("journal", "verify", "--json")
    assert listed.exit_code == 1
    assert [json.loads(line) for line in listed.stdout.splitlines()] == [
        {"damage": line} for line in told.stdout.splitlines()
    ]


def test_a_journal_whose_database_is_broken_is_damaged_too(run: Path, flyball: Flyball) -> None:
    file = run / "journal.sqlite"
    file.write_bytes(file.read_bytes()[:8192] + b"\xff" * (file.stat().st_size - 8192))
    told = flyball("journal", "verify")
    assert told.exit_code == 1
    assert "is damaged" in told.stdout


@pytest.mark.parametrize("words", [("status",), ("replay", "--check"), ("up", "--for", "1")])
def test_damage_is_told_at_once_with_one_exit_code(run: Path, flyball: Flyball, words: tuple[str, ...]) -> None:
    spoil(run, "UPDATE frames SET bodies = x'00' WHERE first = 1")
    refused(flyball(*words), 1, "Damaged journal: its length is wrong in the record at position 1.")
    (run / "journal.sqlite").write_bytes(bytes(range(256)) * 64)
    refused(flyball(*words), 1, "journal.sqlite is damaged or not a")


BESIDE = {
    "INSERT INTO marks VALUES ('a', 1, 2, 3, 4)": "the checksum of",
    "DELETE FROM landmarks": "its table landmarks lacks the record at 1",
    "UPDATE landmarks SET bodies = x'00'": "the record at 1 in its table landmarks is damaged",
}


@pytest.mark.parametrize(("change", "what"), BESIDE.items())
def test_up_refuses_damage_beside_the_records(run: Path, flyball: Flyball, change: str, what: str) -> None:
    spoil(run, change)
    before = (run / "journal.sqlite").read_bytes()
    refused(flyball("up", "--for", "1"), 1, f"Damaged journal: {what}", " journal rebuild")
    assert (run / "journal.sqlite").read_bytes() == before
    assert flyball("journal", "verify").exit_code == 1
    succeeded(flyball("journal", "rebuild"), "kept as")
    assert flyball("journal", "verify").exit_code == 0


def test_what_damage_says_to_do_exists(run: Path, flyball: Flyball) -> None:
    """Every hint about damage names a command that exists."""
    spoil(run, "UPDATE frames SET bodies = x'00' WHERE first = 3")
    hint = flyball("tail").stderr
    command = re.search(r"`flyball (?:--run \S+ )?(.+?)`", hint)
    assert command is not None
    assert flyball(*command[1].split(), "--help").exit_code == 0
