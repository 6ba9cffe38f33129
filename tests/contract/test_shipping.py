"""A journal is shipped to a folder or a bucket, and restored from it (ADR-042)."""

import os
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from archives import record_of
from s3_server import Gate
from shipped import (
    MemoryObjects,
    append,
    archive_until,
    of_kind,
    raws,
    records,
    shipper,
    write_archived_journal,
    write_journal,
)

from flyball.app.core.named_objects import NamedObjects
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import SqliteJournal, SqliteJournalReader, shipping
from flyball.app.journal.database import DamagedDatabase, StorageError
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.restoring import NothingShipped, restore
from flyball.app.journal.segments import MissingEvents
from flyball.app.journal.shipped_parts import MAGIC, Batch, DamagedPart, pack_batch, part_of, read_batch
from flyball.app.journal.snapshots import write_snapshot
from flyball.app.store.named import FolderObjects, UrlObjects, open_objects
from flyball.app.store.objects import StoreUnavailable, UnusableStore

SETTING = "deployment.journal.ship"


@pytest.fixture(params=["memory", "folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> NamedObjects:
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "folder":
        (tmp_path / "disk").mkdir()
        return open_objects(str(tmp_path / "disk"), SETTING)
    return open_objects(str(request.getfixturevalue("bucket")), SETTING)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_archived_journal(tmp_path / "run" / "journal.sqlite")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "journal.sqlite"


def test_named_objects_are_listed_replaced_and_deleted(objects: NamedObjects) -> None:
    assert objects.names("a") == []
    assert objects.get("a/b/one-1") is None
    for name, data in (("a/b/one-1", b"1"), ("a/two", b""), ("ab/three", b"3"), ("a/b/one-1", b"one")):
        objects.put(name, data)
    assert sorted(objects.names("a")) == ["a/b/one-1", "a/two"]
    assert [objects.get(name) for name in ("a/b/one-1", "a/two")] == [b"one", b""]
    objects.delete("a/two")
    objects.delete("a/two")
    assert objects.names("a") == ["a/b/one-1"]


def test_restored_journal_is_the_shipped_one(objects: NamedObjects, path: Path, target: Path) -> None:
    shipper(path, objects).ship()
    append(path, 4)
    shipper(path, objects).ship()
    restored = restore(target, objects)
    assert (restored.head, restored.archived, restored.problems) == (312, 240, [])
    assert (restored.recorded_us, restored.interval_ms) == (310_000_000, 2000)
    assert list(raws(target)) == list(raws(path))
    with closing(SqliteJournalReader(path)) as before, closing(SqliteJournalReader(target)) as after:
        assert list(after.damage()) == []
        assert after.archive.segments() == before.archive.segments()
        assert [record.raw for record in after.landmarks()] == [record.raw for record in before.landmarks()]
        assert after.dead_letters() == before.dead_letters()
        assert after.snapshot(312).rows == {("a", "b"): b"row"}
    with closing(SqliteJournal(target)) as journal:
        assert journal.mark("trainer@a", 1) == 313, "derived: the record's own events have the numbers up to 312"
    assert {file.name for file in target.parent.iterdir()} >= {"journal.sqlite", "archive"}
    assert not list(target.parent.glob("*.restore*"))


def test_restored_journal_is_shipped_on_to_the_same_place(objects: NamedObjects, path: Path, target: Path) -> None:
    shipper(path, objects).ship()
    restore(target, objects)
    append(target, 3)
    before = of_kind(objects, "segments", "batches")
    shipper(target, objects).ship()
    assert {*before} < {*of_kind(objects, "segments", "batches")}, "nothing is shipped twice"
    again = target.parent.with_name("again") / "journal.sqlite"
    assert restore(again, objects).head == 309
    assert list(raws(again)) == list(raws(target))


def test_segments_replace_batches_and_old_tables_go(objects: NamedObjects, path: Path) -> None:
    shipper(path, objects).ship()
    append(path, 40)
    current = shipper(path, objects)
    current.ship()
    assert [part.first for part in of_kind(objects, "batches")] == [241, 301]
    archive_until(path, 390)
    current.ship()
    assert [(part.first, part.last) for part in of_kind(objects, "segments")] == [(1, 120), (121, 240), (241, 390)]
    assert [(part.first, part.last) for part in of_kind(objects, "batches")] == [(301, 420)]
    append(path, 1)
    with closing(SqliteJournal(path)) as journal:
        journal.append(dead_letters=[DeadLetter(420, "trainer@a", "feedback", "unreadable", b"{}")])
    current.ship()
    assert [part.first for part in of_kind(objects, "tables")] == [2, 3]


def test_few_objects_are_left_of_many_shipments(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Merge whenever there are four of a level: of 100 batches, 3 + 3 + 3 + 1 may be left, and 64 = 4³ are in one."""
    monkeypatch.setattr(shipping, "FAN", 4)
    objects = MemoryObjects()
    current = shipper(path, objects, look_always=False)
    current.ship()
    for _ in range(99):
        append(path, 1)
        current.ship()
    batches = of_kind(objects, "batches")
    assert len(batches) <= 10
    assert max(part.last - part.first + 1 for part in batches) >= 63 * 3


def test_events_deleted_for_good_are_deleted_there(objects: NamedObjects, path: Path, target: Path) -> None:
    """The first record's settings stay, because a start needs them."""
    current = shipper(path, objects)
    current.ship()
    with closing(SqliteJournal(path)) as journal:
        assert [row.last for row in journal.forget(121_000_000)] == [120]
    current.ship()
    assert [part.first for part in of_kind(objects, "segments")] == [121]
    restored = restore(target, objects)
    assert (restored.deleted, restored.head) == (120, 300)
    with closing(SqliteJournalReader(target)) as reader:
        assert reader.first == 121
        assert [record.first for record in reader.landmarks()] == [40, 1]
        assert list(reader.damage()) == []
        with pytest.raises(MissingEvents, match="were deleted for good"):
            reader.read(0)


def test_run_is_shipped_on_after_what_was_shipped_is_gone(path: Path, target: Path) -> None:
    """Delete for good all that was shipped, while nothing is shipped."""
    objects = MemoryObjects()
    shipper(path, objects).ship()
    append(path, 50)
    archive_until(path, 420)
    with closing(SqliteJournal(path)) as journal:
        write_snapshot(journal.archive.folder, Snapshot(420, {}), journal.head_at(420))
        assert [row.last for row in journal.forget(421_000_000)] == [120, 240, 420]
    shipper(path, objects).ship()
    restored = restore(target, objects)
    assert (restored.deleted, restored.head, restored.problems) == (420, 450, [])


def test_nothing_is_restored_from_an_empty_place(objects: NamedObjects, target: Path, tmp_path: Path) -> None:
    with pytest.raises(NothingShipped, match="No journal was shipped there"):
        restore(target, objects)
    empty = tmp_path / "empty" / "journal.sqlite"
    write_journal(empty, [])
    shipper(empty, objects).ship()
    assert objects.names("journal") == []
    assert not target.exists()


def test_restoring_beside_a_wal_is_refused(path: Path, target: Path) -> None:
    """SQLite would write the WAL of the journal that was there before into the restored one."""
    objects = MemoryObjects()
    shipper(path, objects).ship()
    target.parent.mkdir()
    wal = target.with_name("journal.sqlite-wal")
    wal.write_bytes(b"stale")
    with pytest.raises(StorageError, match="was left by another file") as error:
        restore(target, objects)
    assert f"rm {wal}" in error.value.hint
    assert [file.name for file in target.parent.iterdir()] == [wal.name]


def test_restored_file_is_complete_without_a_wal(path: Path, target: Path) -> None:
    """A WAL that appears beside it is recognised as another file's, as beside a backup."""
    objects = MemoryObjects()
    shipper(path, objects).ship()
    restore(target, objects)
    target.with_name("journal.sqlite-wal").write_bytes(b"stale")
    with pytest.raises(DamagedDatabase, match="was left by another file"):
        SqliteJournal(target)


def test_batch_says_when_it_was_shipped(path: Path) -> None:
    objects = MemoryObjects()
    shipper(path, objects).ship()
    (part,) = of_kind(objects, "batches")
    batch = read_batch(objects, part)
    assert (batch.interval_ms, batch.previous) == (2000, record_of(238, [b"x" * 38, b"238", b""]).checksum)
    assert part.name.startswith("journal/19700101T000001Z-")


def test_batch_without_its_mark_is_refused() -> None:
    objects, (record,) = MemoryObjects(), records(1)
    data = pack_batch(Batch([record], 0, 0, 0)).removeprefix(MAGIC)
    part = part_of("run", "batches", data, 1, 3, checksum=record.checksum)
    objects.put(part.name, data)
    with pytest.raises(DamagedPart, match="is of another format"):
        read_batch(objects, part)


def test_folder_that_cannot_be_read_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise its objects would count as lost."""
    objects = FolderObjects(tmp_path, SETTING)
    objects.put("journal/one/a", b"1")
    scandir = os.scandir

    def refuse(folder: str | Path) -> Iterator[os.DirEntry[str]]:
        if Path(folder).name == "one":
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(StoreUnavailable, match="Permission denied"):
        objects.names("journal")


def test_folder_that_is_not_mounted_is_refused(path: Path, tmp_path: Path) -> None:
    """Otherwise the copies would lie on the disk whose loss they are for."""
    current = shipper(path, FolderObjects(tmp_path / "not mounted", SETTING))
    with pytest.raises(UnusableStore, match="There is no folder") as error:
        current.ship()
    assert SETTING in error.value.hint
    (tmp_path / "not mounted").mkdir()
    current.ship()
    assert current.shipped.position == 300


def test_server_that_comes_back_gets_the_rest(s3: str, bucket, path: Path, target: Path) -> None:
    gate = Gate(s3)
    address = replace(bucket, options={"endpoint_url": gate.endpoint})
    current = shipper(path, UrlObjects(address, (), setting=SETTING))
    with pytest.raises(StoreUnavailable, match="does not answer"):
        current.ship()
    gate.open()
    current.ship()
    assert restore(target, open_objects(str(bucket), SETTING)).head == 300
