"""Commands on a run whose journal was moved into a PostgreSQL database: they answer as before (ADR-040)."""

import json
import shutil
import sys
from contextlib import closing
from pathlib import Path
from unittest.mock import Mock

import pytest
from archives import record_of
from bus_rig import StepClock
from click.testing import Result
from commands import invoke, refused, succeeded
from generated_run import generated, hasty, write_generated
from postgres_server import execute, new_schema

pytest.importorskip("psycopg")

from flyball.app.cli.up import _check_journal
from flyball.app.config import GAMES, RunFolder, RunSettings
from flyball.app.config.deployment import JournalSettings
from flyball.app.journal import postgres_journal
from flyball.app.journal.database import StorageError, StorageInUse
from flyball.app.journal.opening import PostgresLocation, SqliteLocation
from flyball.app.journal.ports import Chunk, JournalLocation
from flyball.app.journal.postgres_journal import PostgresJournalReader
from flyball.daemons.run_folder import LostJournal, check_history
from flyball.daemons.upkeep import Upkeep

EVENTS = 3_000


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a run in a file, some of it archived."""
    folder = tmp_path_factory.mktemp("before")
    write_generated(folder / "journal.sqlite", list(generated(EVENTS, settings=hasty(), seed=3)))
    succeeded(invoke("journal", "archive", "--keep", 1000, run=folder), "Took a snapshot", "Archived events")
    return folder


@pytest.fixture(scope="module")
def url(before: Path, postgres: str) -> str:
    url = new_schema(postgres)
    succeeded(invoke("journal", "copy", before / "journal.sqlite", url), "without damage")
    return url


@pytest.fixture
def moved(before: Path, url: str, tmp_path: Path) -> Path:
    """Return a folder of the same run, with the journal in a database."""
    return folder_of(url, tmp_path)


def folder_of(url: str, folder: Path) -> Path:
    (folder / "flyball.toml").write_text(f'[deployment]\njournal = "{url}"\n')
    return folder


def content(location: JournalLocation) -> tuple[object, ...]:
    """Return all that a copy has to keep."""
    with closing(location.reader()) as reader:
        raw, position = list[bytes](), reader.first - 1
        while (chunk := reader.read(position)).position > position:
            raw += [record.raw for record in chunk.records]
            position = chunk.position
        landmarks = [record.raw for record in reader.landmarks()]
        return reader.first, raw, landmarks, set(reader.marks()), reader.dead_letters()


def test_copies_into_a_database_and_out_of_it_are_equal(before: Path, url: str, tmp_path: Path) -> None:
    original, back = SqliteLocation(before / "journal.sqlite"), tmp_path / "back.sqlite"
    succeeded(invoke("journal", "copy", url, back), f"up to position {EVENTS}")
    assert content(PostgresLocation(url)) == content(original) == content(SqliteLocation(back))
    refused(invoke("journal", "copy", before / "journal.sqlite", url), 1, "holds events already")
    refused(invoke("journal", "copy", url, back), 1, "is there already")


@pytest.mark.parametrize(
    "words",
    [
        ("tail", "--json", "-n", "200"),
        ("replay", "--check", "--json"),
        ("replay", "--what-if", "--set", "feedback.stall.velocity=30", "--json"),
        ("replay", "MODEL_PROMOTED"),
        ("state", "tic_tac_toe_2p", "--json"),
        ("report", "--json"),
        ("journal", "verify", "--json"),
        ("journal", "repair", "--json"),
        ("journal", "dead-letters", "list", "--json"),
        ("journal", "export", "-"),
    ],
    ids=lambda words: " ".join(words[:3]),
)
def test_command_answers_as_with_a_file(before: Path, moved: Path, words: tuple[str, ...]) -> None:
    expected, found = invoke(*words, run=before), invoke(*words, run=moved)
    assert (found.exit_code, timeless(found)) == (expected.exit_code, timeless(expected))


def timeless(result: Result) -> list[str]:
    """Return the output without the lines that measure time."""
    return [line for line in result.stdout.splitlines() if "seconds" not in line]


def test_status_is_that_of_the_file(before: Path, moved: Path) -> None:
    (expected, found) = (invoke("status", "--json", run=folder) for folder in (before, moved))
    assert found.exit_code == 3, "not running"
    now, was = json.loads(found.stdout), json.loads(expected.stdout)
    assert (now["position"], now["head"]) == (was["position"], was["head"])
    for name in ("key", "games", "rows", "step", "elo", "model", "promotions"):
        assert [config[name] for config in now["configs"]] == [config[name] for config in was["configs"]]


def test_backup_of_a_database_is_a_run_in_a_file(before: Path, moved: Path, tmp_path: Path) -> None:
    succeeded(invoke("journal", "backup", tmp_path / "copy.sqlite", run=moved), f"up to position {EVENTS}")
    assert content(SqliteLocation(tmp_path / "copy.sqlite")) == content(SqliteLocation(before / "journal.sqlite"))


def test_backup_during_a_run_is_of_one_moment(before: Path, postgres: str, tmp_path: Path, monkeypatch) -> None:
    url = new_schema(postgres)
    succeeded(invoke("journal", "copy", before / "journal.sqlite", url))
    expected = content(PostgresLocation(url))
    with closing(PostgresLocation(url).writer()) as writer:
        read = PostgresJournalReader.read

        def interfere(reader: PostgresJournalReader, after: int, **how: object) -> Chunk:
            first = writer.head + 1
            writer.append([record_of(first, [b"x"])], marks={("trainer@a", 1): first + 1})
            return read(reader, after, **how)

        monkeypatch.setattr(PostgresJournalReader, "read", interfere)
        succeeded(invoke("journal", "backup", tmp_path / "copy.sqlite", run=folder_of(url, tmp_path)))
    assert content(SqliteLocation(tmp_path / "copy.sqlite")) == expected


def test_export_is_imported_into_a_database(before: Path, postgres: str, tmp_path: Path) -> None:
    exported = tmp_path / "events.jsonl"
    succeeded(invoke("journal", "export", exported, run=before))
    folder = folder_of(new_schema(postgres), tmp_path)
    succeeded(invoke("journal", "import", exported, run=folder), f"Imported {EVENTS} events")
    succeeded(invoke("journal", "verify", run=folder), "No damage")
    again = invoke("journal", "export", "-", run=folder)
    assert again.stdout_bytes == exported.read_bytes()
    refused(invoke("journal", "import", exported, run=folder), 1, "holds events already")


def test_damage_in_a_database_is_found(before: Path, postgres: str, tmp_path: Path) -> None:
    url = new_schema(postgres)
    succeeded(invoke("journal", "copy", before / "journal.sqlite", url))
    execute(url, "UPDATE frames SET bodies = '\\x00' WHERE first = (SELECT min(first) FROM frames WHERE first > 900)")
    folder = folder_of(url, tmp_path)
    assert invoke("journal", "verify", run=folder).exit_code == 1
    assert invoke("replay", "--check", run=folder).exit_code != 0
    refused(invoke("journal", "rebuild", run=folder), 1, "is not rebuilt")


def test_snapshot_and_deletion_in_a_database(before: Path, postgres: str, tmp_path: Path, monkeypatch) -> None:
    url = new_schema(postgres)
    succeeded(invoke("journal", "copy", before / "journal.sqlite", url))
    folder = folder_of(url, tmp_path)
    succeeded(invoke("journal", "archive", run=folder), "Took a snapshot", "nothing to archive")
    file = SqliteLocation(before / "journal.sqlite")
    with closing(PostgresLocation(url).reader()) as moved, closing(file.reader()) as original:
        assert moved.snapshot(EVENTS) == original.snapshot(EVENTS)
    succeeded(invoke("journal", "delete", "--before", 500, "--yes", run=folder), "Nothing ends")
    monkeypatch.setattr(postgres_journal, "LIVE_EVENTS", 100)
    succeeded(invoke("journal", "delete", "--before", 500, "--yes", run=folder), "Deleted the events 1 to")
    succeeded(invoke("journal", "verify", run=folder), "No damage")
    refused(invoke("replay", "--check", run=folder), 1, "deleted for good")
    back = tmp_path / "shorter.sqlite"
    succeeded(invoke("journal", "copy", url, back), "without damage")
    assert content(SqliteLocation(back)) == content(PostgresLocation(url))


def test_upkeep_deletes_old_events_of_a_database(before: Path, postgres: str, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(postgres_journal, "LIVE_EVENTS", 100)
    url, archiving, clock = new_schema(postgres), Mock(), StepClock()
    succeeded(invoke("journal", "copy", before / "journal.sqlite", url))
    succeeded(invoke("journal", "archive", run=folder_of(url, tmp_path)), "Took a snapshot")
    with closing(PostgresLocation(url).writer()) as journal:
        clock.seconds = 10 * 365 * 24 * 3600.0
        Upkeep(journal, archiving, JournalSettings(delete_days=1), clock).look()
        (covered, *_) = journal.snapshot_positions()
        assert journal.first == covered + 1
    archiving.look.assert_called_once_with(wanted=False)


# A folder and its journal ----------------------------------------------------------------------------------------


def opened(folder: Path) -> Path:
    """Open a run's journal for writing once, as each start does."""
    succeeded(invoke("journal", "migrate", run=folder))
    return folder


def test_folder_meets_only_its_own_journal(moved: Path, before: Path, postgres: str) -> None:
    opened(moved)
    other = new_schema(postgres)
    succeeded(invoke("journal", "copy", before / "journal.sqlite", other))
    folder_of(other, moved)
    refused(invoke("journal", "migrate", run=moved), 2, "belongs to the journal")
    refused(invoke("tail", run=moved), 2, "belongs to the journal")


def test_folder_of_a_database_does_not_go_on_with_a_file(moved: Path, before: Path) -> None:
    opened(moved)
    (moved / "flyball.toml").write_text("")
    shutil.copy(before / "journal.sqlite", moved)
    refused(invoke("tail", run=moved), 2, "is in a database", "journal.id")


def test_second_folder_may_share_the_journal(moved: Path, url: str, tmp_path: Path) -> None:
    """A second head has a run folder of its own."""
    opened(moved)
    second = tmp_path / "second"
    second.mkdir()
    opened(folder_of(url, second))
    assert (second / "journal.id").read_text() == (moved / "journal.id").read_text()


def test_second_head_only_reads_a_journal_before_it_starts(url: str) -> None:
    """Its ``flyball up`` looks at the journal, which the other head's broker has locked."""
    location, settings = PostgresLocation(url), RunSettings(configs=(GAMES["hex7_2p"],))
    with closing(location.writer()) as journal:
        assert _check_journal(location, settings, shared=True) == journal.head
        with pytest.raises(StorageInUse):
            _check_journal(location, settings)


def test_empty_database_beside_a_journal_is_refused(before: Path, postgres: str, tmp_path: Path) -> None:
    folder, empty = RunFolder(tmp_path), PostgresLocation(new_schema(postgres), tmp_path / "journal.id")
    check_history(folder, empty)
    shutil.copy(before / "journal.sqlite", tmp_path)
    with pytest.raises(LostJournal, match="has no events") as lost:
        check_history(folder, empty)
    assert "flyball journal copy" in lost.value.hint
    folder.journal.rename(tmp_path / "away.sqlite")
    (tmp_path / "journal.id").write_text("id")
    with pytest.raises(LostJournal, match=r"journal\.id belongs"):
        check_history(folder, empty)


def test_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("flyball.app.journal.postgres")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    for opening in (PostgresLocation("postgresql:///x").reader, PostgresLocation("postgresql:///x").writer):
        with pytest.raises(StorageError, match="needs the package psycopg") as missing:
            opening()
        assert missing.value.hint == "pip install 'flyball[postgres]'"


def test_doctor_names_a_server_that_is_away(moved: Path) -> None:
    assert "journal-server" not in invoke("doctor", run=moved).stdout
    folder_of("postgresql:///x?host=/nonexistent", moved)
    shown = invoke("doctor", run=moved)
    assert "critical journal-server" in " ".join(shown.stdout.split())
    assert "failed: No such file" in " ".join(shown.stdout.split())
