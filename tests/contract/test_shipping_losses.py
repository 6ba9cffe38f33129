"""Shipping and restoring while parts or files are lost, damaged or unreadable (ADR-042)."""

from contextlib import closing
from pathlib import Path

import pytest
from shipped import MemoryObjects, append, archive_until, damage, of_kind, raws, shipper, write_archived_journal

from flyball.app.events.frames import DeadLetter
from flyball.app.journal import SqliteJournal, SqliteJournalReader, shipping
from flyball.app.journal.archiving import archive
from flyball.app.journal.restoring import restore
from flyball.app.journal.segments import MissingEvents
from flyball.app.journal.snapshots import snapshot_path


@pytest.fixture
def objects() -> MemoryObjects:
    return MemoryObjects()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write_archived_journal(tmp_path / "run" / "journal.sqlite")


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return tmp_path / "new" / "journal.sqlite"


def test_damaged_batch_ends_what_is_restored(objects: MemoryObjects, path: Path, target: Path) -> None:
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
def test_lost_segment_leaves_a_hole_in_the_archive(objects: MemoryObjects, path: Path, target: Path, harm: str) -> None:
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


def test_lost_batches_make_the_last_segment_live(objects: MemoryObjects, path: Path, target: Path) -> None:
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


def test_lost_batch_is_shipped_again(objects: MemoryObjects, path: Path, target: Path) -> None:
    """A shipper goes on after the first gap, also if later parts are there."""
    current = shipper(path, objects)
    for _ in range(3):
        current.ship()
        append(path, 1)
    objects.delete(of_kind(objects, "batches")[1].name)
    current.ship()
    restored = restore(target, objects)
    assert (restored.head, restored.problems) == (309, [])


def test_batches_that_fill_a_gap_are_merged_whole(
    objects: MemoryObjects, path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch that fills a gap ends after the batches behind the gap."""
    current = shipper(path, objects)
    for _ in range(3):
        current.ship()
        append(path, 1)
    objects.delete(of_kind(objects, "batches")[1].name)
    monkeypatch.setattr(shipping, "FAN", 3)
    current.ship()
    assert [(part.first, part.last) for part in of_kind(objects, "batches")] == [(241, 309)]
    restored = restore(target, objects)
    assert (restored.head, restored.problems) == (309, [])


def harm_segment(path: Path, first: int, harm: str) -> None:
    """Damage or remove the segment that begins at a position, beside the journal."""
    segment = next((path.parent / "archive").glob(f"{first:012}-*"))
    segment.write_bytes(b"damaged") if harm == "damaged" else segment.unlink()


@pytest.mark.parametrize("harm", ["damaged", "missing"])
@pytest.mark.parametrize(("first", "last"), [(1, 120), (121, 240)])
def test_lost_local_segment_is_reported_and_the_rest_shipped(
    objects: MemoryObjects, path: Path, target: Path, first: int, last: int, harm: str
) -> None:
    harm_segment(path, first, harm)
    current = shipper(path, objects)
    current.ship()
    assert f"Events {first} to {last} cannot be shipped" in current.problem
    assert current.shipped.position == 300
    assert restore(target, objects).head == 300


@pytest.mark.parametrize("harm", ["damaged", "missing"])
@pytest.mark.parametrize("fan", [3, shipping.FAN])
def test_batches_of_a_lost_local_segment_stay(
    objects: MemoryObjects, path: Path, target: Path, harm: str, fan: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the segment, which they replace, their history cannot be checked, and they cannot be merged."""
    current = shipper(path, objects)
    for _ in range(2):
        current.ship()
        append(path, 30)
    archive_until(path, 330)
    harm_segment(path, 241, harm)
    monkeypatch.setattr(shipping, "FAN", fan)
    current.ship()
    assert "Events 241 to 330 cannot be shipped" in current.problem
    assert [(part.first, part.last) for part in of_kind(objects, "batches")] == [(241, 300), (301, 390), (391, 480)]
    assert restore(target, objects).head == 480


def test_unreadable_snapshot_is_reported_and_the_rest_shipped(objects: MemoryObjects, path: Path) -> None:
    snapshot_path(path.parent / "archive", 120).mkdir()
    current = shipper(path, objects)
    current.ship()
    assert "The snapshot at 120 cannot be shipped" in current.problem
    assert current.shipped.position == 300
    assert [part.first for part in of_kind(objects, "snapshots")] == [240]


def test_archive_that_grows_during_a_look_leaves_no_gap(
    objects: MemoryObjects, path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer takes a segment over after the list of segments was read."""
    append(path, 40)
    archive(path, 390)
    put = objects.put

    def adopt_and_put(name: str, data: bytes) -> None:
        with closing(SqliteJournal(path)) as journal:
            assert journal.adopt() == 390
        put(name, data)

    monkeypatch.setattr(objects, "put", adopt_and_put)
    shipper(path, objects).ship()
    restored = restore(target, objects)
    assert (restored.archived, restored.head, restored.problems) == (240, 420, [])


def test_tables_stay_while_a_restoration_reads_them(
    objects: MemoryObjects, path: Path, target: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New tables are shipped after the restoration has listed the parts."""
    current = shipper(path, objects)
    current.ship()
    listed = objects.names("journal")
    with closing(SqliteJournal(path)) as journal:
        journal.append(dead_letters=[DeadLetter(300, "trainer@a", "feedback", "unreadable", b"{}")])
    current.ship()
    monkeypatch.setattr(objects, "names", lambda _: listed)
    assert restore(target, objects).problems == []
