"""Journals of other runs, and other histories of one, are told apart where they are shipped to (ADR-042)."""

import shutil
from contextlib import closing
from pathlib import Path

import pytest
from archives import record_of
from shipped import (
    MemoryObjects,
    append,
    of_kind,
    records,
    shipper,
    write_archived_journal,
    write_journal,
)

from flyball.app.events.frames import Record
from flyball.app.journal import SqliteJournal
from flyball.app.journal.database import StorageError
from flyball.app.journal.restoring import MixedHistories, NothingShipped, restore
from flyball.app.journal.shipping import OtherHistoryShipped, Shipper


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_archived_journal(tmp_path / "run" / "journal.sqlite")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "journal.sqlite"


@pytest.mark.parametrize("events", [60, 270, 420])
def test_other_history_is_refused_and_nothing_is_deleted(
    objects: MemoryObjects, path: Path, tmp_path: Path, events: int
) -> None:
    """Ship a restored backup that ends earlier than what was shipped, or has other records since."""
    shipper(path, objects).ship()
    before = objects.names("journal")
    backup = tmp_path / "backup" / "journal.sqlite"
    write_journal(backup, records(20))
    if events > 60:
        other = [record_of(at, [b"another", b"b", b"c"]) for at in range(61, events, 3)]
        with closing(SqliteJournal(backup)) as journal:
            journal.append(other)
    current = shipper(backup, objects)
    for _ in range(2):
        with pytest.raises(OtherHistoryShipped, match="goes on to position 300") as error:
            current.ship()
    assert "deployment.journal.ship" in error.value.hint
    assert objects.names("journal") == before


def test_journal_exchanged_under_the_shipper_is_noticed(path: Path, tmp_path: Path) -> None:
    objects, other = MemoryObjects(), tmp_path / "other" / "journal.sqlite"
    write_journal(other, [record_of(1, [b"a"] * 500)])
    current = shipper(path, objects, look_always=False)
    current.ship()
    before = {**objects.content}
    shutil.copyfile(other, path)
    with pytest.raises(OtherHistoryShipped):
        current.ship()
    assert objects.content == before


def test_runs_in_one_place_stay_apart(objects: MemoryObjects, path: Path, target: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "journal.sqlite"
    write_journal(other, [replace_time(record) for record in records(5)])
    for journal in (path, other):
        shipper(journal, objects).ship()
    with pytest.raises(NothingShipped, match="2 runs") as error:
        restore(target, objects)
    first, second = sorted({part.run for part in of_kind(objects, "batches")})
    assert second in error.value.hint
    assert restore(target, objects, second).head == 15
    with pytest.raises(StorageError, match="is there already"):
        restore(target, objects, first)
    with pytest.raises(NothingShipped, match="20200101"):
        restore(target.with_name("none"), objects, "20200101T000000Z-00000000")


def replace_time(record: Record) -> Record:
    """Return a record of another run."""
    return record_of(record.first, [b"other"] * 3, at=record.recorded_us + 10**12)


def append_other(path: Path, first: int) -> None:
    """Append a record that no other journal has."""
    with closing(SqliteJournal(path)) as journal:
        journal.append([record_of(first, [b"another", b"b", b"c"])], marks={("trainer@a", 1): first + 3})


def copy_of(path: Path, objects: MemoryObjects, tmp_path: Path) -> tuple[Path, Shipper, Shipper]:
    """Ship a journal and restore it; return the copy, and a shipper of each that has looked."""
    one = shipper(path, objects, look_always=False)
    one.ship()
    copy = tmp_path / "copy" / "journal.sqlite"
    restore(copy, objects)
    other = shipper(copy, objects, look_always=False)
    other.ship()
    return copy, one, other


def test_parts_of_two_brokers_are_not_mixed(objects: MemoryObjects, path: Path, target: Path, tmp_path: Path) -> None:
    """Restore while the old broker still ships: both go on from position 300."""
    copy, one, other = copy_of(path, objects, tmp_path)
    append(path, 2)
    append_other(copy, 301)
    one.ship()
    other.ship()
    with pytest.raises(MixedHistories, match="several histories"):
        restore(target, objects)
    assert not target.exists()
    before = {**objects.content}
    for journal, position in ((copy, 306), (path, 303)):
        with pytest.raises(OtherHistoryShipped, match=f"goes on to position {position}"):
            shipper(journal, objects).ship()
    assert objects.content == before, "the shorter part has the positions of the longer one, but not its records"


def test_batch_after_another_record_is_not_mixed(
    objects: MemoryObjects, path: Path, target: Path, tmp_path: Path
) -> None:
    """Lose a batch of each of two brokers. The other two continue each other's positions, but not the records."""
    copy, one, other = copy_of(path, objects, tmp_path)
    for _ in range(2):
        append(path, 1)
        one.ship()
    ours = of_kind(objects, "batches")[1:]
    for position in (301, 304):
        append_other(copy, position)
        other.ship()
    theirs = [part for part in of_kind(objects, "batches")[1:] if part not in ours]
    for part in (ours[1], theirs[0]):
        objects.delete(part.name)
    with pytest.raises(MixedHistories, match=theirs[1].name):
        restore(target, objects)
