"""Journals as files: concurrent readers, a single writer, full disks, foreign files."""

import errno
import sqlite3
from contextlib import closing
from pathlib import Path
from threading import Event, Thread

import pytest
from archives import record_of

from flyball.app.core import FlyballError
from flyball.app.journal import NotAJournal, SqliteJournal, SqliteJournalReader, database
from flyball.app.journal.database import StorageError, StorageFull, StorageInUse, storage_errors


def record(first, size=10):
    return record_of(first, [b"x" * size])


@pytest.fixture
def journal(tmp_path):
    journal = SqliteJournal(tmp_path / "j.db")
    yield journal
    journal.close()


def test_readers_follow_the_writer_cannot_write_and_outlive_it(journal, tmp_path):
    reader = SqliteJournalReader(tmp_path / "j.db")
    assert reader.head == 0
    for position in range(1, 50):
        journal.append([record(position)])
        assert reader.head == position
        assert reader.read(position - 1).position == position
    assert reader.dead_letters() == []
    reader.close()
    reader = SqliteJournalReader(tmp_path / "j.db")
    with pytest.raises(sqlite3.OperationalError, match="readonly"):
        reader._connection.execute("DELETE FROM frames")
    reader.close()


def test_a_reader_works_without_a_writer(journal, tmp_path):
    journal.append([record(1)])
    journal.close()
    reader = SqliteJournalReader(tmp_path / "j.db")
    assert reader.read(0).position == 1
    reader.close()


def test_backup_beside_the_writer_is_one_moments_journal(journal, tmp_path):
    """Back up while the writer appends and checkpoints. The copy opens as a journal, without files beside it."""
    size, copies, stop = 3000, list[int](), Event()

    def back_up() -> None:
        while not stop.is_set():
            with closing(SqliteJournalReader(tmp_path / "j.db")) as reader:
                copies.append(reader.backup(tmp_path / f"copy{len(copies)}.db"))

    thread = Thread(target=back_up)
    thread.start()
    position = 0
    while position < 200 or len(copies) < 5:
        position += 1
        journal.append([record(position, size)], marks={("p", 1): position + 1})
        journal.maintain()
    stop.set()
    thread.join()
    assert copies == sorted(copies)
    assert copies[-1] > copies[0]
    for number, head in enumerate(copies):
        path = tmp_path / f"copy{number}.db"
        assert [one.name for one in tmp_path.glob(f"{path.name}*")] == [path.name]
        with closing(SqliteJournal(path)) as copy:
            assert copy.head == head
            assert copy.mark("p", 1) == (head + 1 if head else None)


def test_backup_has_the_journal_s_mode_and_replaces_no_file(journal, tmp_path):
    (tmp_path / "j.db").chmod(0o640)
    with closing(SqliteJournalReader(tmp_path / "j.db")) as reader:
        reader.backup(tmp_path / "copy.db")
    assert (tmp_path / "copy.db").stat().st_mode & 0o777 == 0o640
    (tmp_path / "copy.db").write_text("mine")
    with closing(SqliteJournalReader(tmp_path / "j.db")) as reader:
        with pytest.raises(StorageError, match="is there already"):
            reader.backup(tmp_path / "copy.db")
        with pytest.raises(StorageError, match="could not be used"):
            reader.backup(tmp_path / "no" / "folder.db")
    assert (tmp_path / "copy.db").read_text() == "mine"


def test_backup_replaces_what_an_interrupted_one_left(journal, tmp_path):
    journal.append([record(1)])
    (tmp_path / "copy.db.partial").write_text("no database " * 1000)
    with closing(SqliteJournalReader(tmp_path / "j.db")) as reader:
        assert reader.backup(tmp_path / "copy.db") == 1


def test_backup_where_a_folder_has_its_name_is_refused(journal, tmp_path):
    (tmp_path / "copy.db.partial").mkdir()
    with (
        closing(SqliteJournalReader(tmp_path / "j.db")) as reader,
        pytest.raises(StorageError, match=r"copy\.db cannot be written"),
    ):
        reader.backup(tmp_path / "copy.db")


def test_backup_of_a_damaged_journal_is_refused(journal, tmp_path):
    journal.append([record(1, 100)])
    journal._db.connection.execute("UPDATE frames SET bodies = zeroblob(100)")
    with closing(SqliteJournalReader(tmp_path / "j.db")) as reader, pytest.raises(FlyballError, match="amaged"):
        reader.backup(tmp_path / "copy.db")
    assert not list(tmp_path.glob("copy.db*"))


def test_only_one_writer_is_admitted_at_a_time(journal, tmp_path):
    with pytest.raises(StorageInUse, match="Another process writes"):
        SqliteJournal(tmp_path / "j.db")
    journal.close()
    journal.close()
    SqliteJournal(tmp_path / "j.db").close()


def test_missing_or_empty_file_is_named(tmp_path):
    with pytest.raises(NotAJournal, match="no journal at"):
        SqliteJournalReader(tmp_path / "none.db")
    path = tmp_path / "empty.db"
    path.touch()
    with pytest.raises(NotAJournal, match=r"empty\.db is empty"):
        SqliteJournalReader(path)
    SqliteJournal(path).close()
    SqliteJournalReader(path).close()


@pytest.mark.parametrize("opener", [SqliteJournal, SqliteJournalReader])
def test_a_foreign_file_is_refused_and_left_alone(tmp_path, opener):
    path = tmp_path / "foreign.db"
    with sqlite3.connect(path) as db:
        db.execute("CREATE TABLE mine (a)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(NotAJournal):
        opener(path)
    (tmp_path / "text.db").write_text("no database " * 1000)
    with pytest.raises(NotAJournal):
        opener(tmp_path / "text.db")
    assert path.read_bytes() == before


def test_a_commit_waits_for_the_disk(journal):
    """Guarantee (ADR-004): acknowledged events survive a loss of power."""
    settings = [
        journal._db.connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "synchronous")
    ]
    assert settings == ["wal", 2]


def test_a_full_disk_is_said_clearly_and_loses_nothing(journal, tmp_path):
    """Fill SQLite's page limit, which stands in for a full disk. Both raise SQLITE_FULL."""
    journal.append([record(1)])
    pages = journal._db.connection.execute("PRAGMA page_count").fetchone()[0]
    journal._db.connection.execute(f"PRAGMA max_page_count = {pages + 2}")
    with pytest.raises(StorageFull, match="No room to write"):
        journal.append([record(2, size=100_000)], marks={("p", 1): 2})
    assert (journal.head, journal.mark("p", 1)) == (1, None)
    assert not (tmp_path / "j.db.reserve").exists(), "the reserve makes room for a clean close"
    journal.append([record(2)])
    assert journal.read(0).position == 2


def io_error(journal):
    """Raise the error of SQLite for a broken disk."""
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR_FSYNC
    with storage_errors(journal._db.path):
        raise error


def test_disk_errors_are_told_apart_by_the_room_left(journal, monkeypatch):
    with pytest.raises(StorageError, match="disk I/O error") as caught:
        io_error(journal)
    assert type(caught.value) is StorageError
    monkeypatch.setattr(database, "LEAST_ROOM_BYTES", 1 << 70)
    with pytest.raises(StorageFull):
        io_error(journal)


def test_the_reserve_comes_back_with_the_next_start(journal, tmp_path):
    journal.close()
    (tmp_path / "j.db.reserve").unlink()
    SqliteJournal(tmp_path / "j.db").close()
    assert (tmp_path / "j.db.reserve").stat().st_size == 4 << 20


def test_start_without_room_for_the_reserve_is_refused(journal, tmp_path, monkeypatch):
    journal.close()
    (tmp_path / "j.db.reserve").unlink()

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    with pytest.raises(StorageFull, match="No room for a reserve of 4194304 bytes"):
        SqliteJournal(tmp_path / "j.db")


def test_wal_stays_small_when_its_writer_rests(journal, tmp_path):
    for position in range(1, 200):
        journal.append([record(position, size=60_000)])
        journal.maintain(idle=False)
    assert (tmp_path / "j.db-wal").stat().st_size < 4 << 20
