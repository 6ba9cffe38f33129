"""A journal is shipped to a folder or a bucket, and restored from it (ADR-042)."""

import shutil
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from archives import record_of
from s3_server import Gate
from shipped import MemoryObjects, raws, shipper, write_journal

from flyball.app.events import EventVoided, RunConfigured
from flyball.app.events.frames import DeadLetter, Record
from flyball.app.journal import SqliteJournal, SqliteJournalReader, shipping
from flyball.app.journal.archiving import archive
from flyball.app.journal.database import StorageError
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.restoring import MixedHistories, NothingShipped, restore
from flyball.app.journal.segments import MissingEvents
from flyball.app.journal.shipped_parts import Objects, Part, parse_parts, read_batch
from flyball.app.journal.shipping import OtherHistoryShipped
from flyball.app.journal.snapshots import write_snapshot
from flyball.app.store.named import FolderObjects, UrlObjects, open_objects
from flyball.app.store.objects import StoreUnavailable, UnusableStore

SETTING = "deployment.journal.ship"
KINDS = {1: RunConfigured.event_type, 40: EventVoided.event_type}


def records(count: int, first: int = 1) -> list[Record]:
    """Return records of three events each."""
    return [
        record_of(at, [b"x" * (at % 50), b"%d" % at, b""], kinds=KINDS) for at in range(first, first + 3 * count, 3)
    ]


@pytest.fixture(params=["memory", "folder", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "memory":
        return MemoryObjects()
    if request.param == "folder":
        (tmp_path / "disk").mkdir()
        return open_objects(str(tmp_path / "disk"), SETTING)
    return open_objects(str(request.getfixturevalue("bucket")), SETTING)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal of 300 events, 240 of them archived in two segments, with a snapshot and a dead letter."""
    path = tmp_path / "run" / "journal.sqlite"
    with closing(SqliteJournal(path)) as journal:
        for record in records(100):
            journal.append([record], marks={("trainer@a", 1): record.last + 1})
        for until in (120, 240):
            archive(path, until)
            journal.adopt()
        journal.maintain()
        write_snapshot(journal.archive.folder, Snapshot(240, {("a", "b"): b"row"}), journal.head_at(240))
        journal.append(dead_letters=[DeadLetter(150, "trainer@a", "feedback", "unreadable", b"{}")])
    return path


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "journal.sqlite"


def of_kind(objects: Objects, *kinds: str) -> list[Part]:
    return [part for part in parse_parts(objects.names("journal")) if part.kind in kinds]


def damage(objects: Objects, part: Part) -> None:
    data = objects.get(part.name)
    objects.put(part.name, data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])


def append(path: Path, count: int) -> None:
    with closing(SqliteJournal(path)) as journal:
        new = records(count, first=journal.head + 1)
        journal.append(new, marks={("trainer@a", 1): new[-1].last + 1})


def test_named_objects_are_listed_replaced_and_deleted(objects: Objects) -> None:
    assert objects.names("a") == []
    assert objects.get("a/b/one-1") is None
    for name, data in (("a/b/one-1", b"1"), ("a/two", b""), ("ab/three", b"3"), ("a/b/one-1", b"one")):
        objects.put(name, data)
    assert sorted(objects.names("a")) == ["a/b/one-1", "a/two"]
    assert [objects.get(name) for name in ("a/b/one-1", "a/two")] == [b"one", b""]
    objects.delete("a/two")
    objects.delete("a/two")
    assert objects.names("a") == ["a/b/one-1"]


def test_restored_journal_is_the_shipped_one(objects: Objects, path: Path, target: Path) -> None:
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


def test_restored_journal_is_shipped_on_to_the_same_place(objects: Objects, path: Path, target: Path) -> None:
    shipper(path, objects).ship()
    restore(target, objects)
    append(target, 3)
    before = of_kind(objects, "segments", "batches")
    shipper(target, objects).ship()
    assert {*before} < {*of_kind(objects, "segments", "batches")}, "nothing is shipped twice"
    again = target.parent.with_name("again") / "journal.sqlite"
    assert restore(again, objects).head == 309
    assert list(raws(again)) == list(raws(target))


def test_segments_replace_batches_and_old_tables_go(objects: Objects, path: Path) -> None:
    shipper(path, objects).ship()
    append(path, 40)
    current = shipper(path, objects)
    current.ship()
    assert [part.first for part in of_kind(objects, "batches")] == [241, 301]
    archive(path, 390)
    with closing(SqliteJournal(path)) as journal:
        journal.adopt()
    current.ship()
    assert [(part.first, part.last) for part in of_kind(objects, "segments")] == [(1, 120), (121, 240), (241, 390)]
    assert [(part.first, part.last) for part in of_kind(objects, "batches")] == [(301, 420)]
    assert len(of_kind(objects, "tables")) == 1


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


def test_events_deleted_for_good_are_deleted_there(objects: Objects, path: Path, target: Path) -> None:
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


@pytest.mark.parametrize("events", [60, 270, 420])
def test_other_history_is_refused_and_nothing_is_deleted(
    objects: Objects, path: Path, tmp_path: Path, events: int
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


def test_runs_in_one_place_stay_apart(objects: Objects, path: Path, target: Path, tmp_path: Path) -> None:
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


def test_nothing_is_restored_from_an_empty_place(objects: Objects, target: Path, tmp_path: Path) -> None:
    with pytest.raises(NothingShipped, match="No journal was shipped there"):
        restore(target, objects)
    empty = tmp_path / "empty" / "journal.sqlite"
    write_journal(empty, [])
    shipper(empty, objects).ship()
    assert objects.names("journal") == []
    assert not target.exists()


def test_damaged_batch_ends_what_is_restored(objects: Objects, path: Path, target: Path) -> None:
    current = shipper(path, objects)
    for _ in range(4):
        current.ship()
        append(path, 2)
    damaged = of_kind(objects, "batches")[2]
    damage(objects, damaged)
    restored = restore(target, objects)
    assert restored.head == damaged.first - 1
    assert [damaged.name in problem for problem in restored.problems] == [True, False]
    assert "Events up to 318 were shipped. Those after 306 cannot be restored" in restored.problems[1]
    assert list(raws(target)) == list(raws(path))[: 306 // 3]


@pytest.mark.parametrize("harm", ["damaged", "missing"])
def test_lost_segment_leaves_a_hole_in_the_archive(objects: Objects, path: Path, target: Path, harm: str) -> None:
    """Newer events matter more than the old ones in the segment, and can be read without it."""
    shipper(path, objects).ship()
    segment = of_kind(objects, "segments")[0]
    damage(objects, segment) if harm == "damaged" else objects.delete(segment.name)
    restored = restore(target, objects)
    assert restored.head == 300
    assert any("1 to 120 are missing" in problem for problem in restored.problems)
    with closing(SqliteJournalReader(target)) as reader:
        assert reader.read(120).position > 120
        assert [record.first for record in reader.landmarks()] == [40, 1]
        with pytest.raises(MissingEvents, match="which is missing"):
            reader.read(0)
    with closing(SqliteJournal(target)) as journal:
        assert journal.head == 300


def test_lost_batches_make_the_last_segment_live(objects: Objects, path: Path, target: Path) -> None:
    """A journal's last record is always live, so the last segment is not archived again before it has a successor."""
    shipper(path, objects).ship()
    for part in of_kind(objects, "batches"):
        objects.delete(part.name)
    restored = restore(target, objects)
    assert (restored.head, restored.archived) == (240, 120)
    assert list(raws(target)) == list(raws(path))[:80]
    append(target, 50)
    archive(target, 300)
    with closing(SqliteJournal(target)) as journal:
        journal.adopt()
        assert journal.archive.end == 300
    current = shipper(target, objects)
    current.ship()
    assert current.shipped.position == 390


def test_parts_of_two_brokers_are_not_mixed(objects: Objects, path: Path, target: Path, tmp_path: Path) -> None:
    """Restore while the old broker still ships: both go on from position 300."""
    one = shipper(path, objects, look_always=False)
    one.ship()
    copy = tmp_path / "copy" / "journal.sqlite"
    restore(copy, objects)
    other = shipper(copy, objects, look_always=False)
    other.ship()
    append(path, 2)
    with closing(SqliteJournal(copy)) as journal:
        journal.append([record_of(301, [b"another"])])
    one.ship()
    other.ship()
    with pytest.raises(MixedHistories, match="several histories"):
        restore(target, objects)
    assert not target.exists()
    other = shipper(copy, objects)
    with pytest.raises(OtherHistoryShipped):
        other.ship()


def test_missing_local_segment_is_reported_and_the_rest_shipped(path: Path, target: Path) -> None:
    objects = MemoryObjects()
    next((path.parent / "archive").glob("000000000001-*")).unlink()
    current = shipper(path, objects)
    current.ship()
    assert "Events 1 to 120 cannot be shipped" in current.problem
    assert current.shipped.position == 300
    assert restore(target, objects).head == 300


def test_batch_says_when_it_was_shipped(path: Path) -> None:
    objects = MemoryObjects()
    shipper(path, objects).ship()
    (part,) = of_kind(objects, "batches")
    batch = read_batch(objects, part)
    assert (batch.interval_ms, batch.previous) == (2000, record_of(238, [b"x" * 38, b"238", b""]).checksum)
    assert part.name.startswith("journal/19700101T000001Z-")


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
