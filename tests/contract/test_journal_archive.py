"""Archived and live records form one sequence, also during archiving (ADR-006)."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from archives import record_of
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from profiles import examples

from flyball.app.bus.hub import Hub
from flyball.app.bus.ports import BrokerLimits
from flyball.app.core import FlyballError
from flyball.app.events import EventVoided, RunConfigured
from flyball.app.events.frames import DamagedRecord, Record
from flyball.app.journal import DamagedDatabase, SqliteJournal, SqliteJournalReader, rebuild
from flyball.app.journal.archiving import archive
from flyball.app.journal.database import StorageFull, StorageInUse
from flyball.app.journal.ports import Snapshot
from flyball.app.journal.segments import MissingEvents
from flyball.app.journal.snapshots import positions, read_snapshot, write_snapshot

KINDS = {1: RunConfigured.event_type, 40: EventVoided.event_type, 150: RunConfigured.event_type}


def records(count: int, first: int = 1) -> list[Record]:
    """Return records of three events each, some of them landmarks."""
    return [
        record_of(at, [b"x" * (at % 50), b"%d" % at, b""], kinds=KINDS) for at in range(first, first + 3 * count, 3)
    ]


def everything(reader: SqliteJournalReader | SqliteJournal) -> list[bytes]:
    found, position = list[bytes](), 0
    while (chunk := reader.read(position)).position > position:
        found += [record.raw for record in chunk.records]
        position = chunk.position
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a journal of 300 events, 240 of them archived and deleted.

    There are two segments: one up to event 120, one up to event 240.
    """
    path = tmp_path / "journal.sqlite"
    with closing(SqliteJournal(path)) as journal:
        for record in records(100):
            journal.append([record], marks={("trainer@a", 1): record.last + 1})
        for until in (120, 240):
            archive(path, until)
            journal.adopt()
        journal.maintain()
    return path


def segments(path: Path) -> list[Path]:
    return sorted((path.parent / "archive").glob("*.segment"))


def test_archived_journal_reads_as_before(path: Path) -> None:
    with closing(SqliteJournalReader(path)) as reader:
        assert everything(reader) == [record.raw for record in records(100)]
        assert list(reader.damage()) == []
        assert reader._connection.execute("SELECT min(first) FROM frames").fetchone() == (241,)
        assert [(row.first, row.last) for row in reader.archive.segments()] == [(1, 120), (121, 240)]


def test_record_deleted_after_its_header_is_read_from_a_segment(tmp_path: Path) -> None:
    path, (one, *rest) = tmp_path / "journal.sqlite", records(100)
    with closing(SqliteJournal(path)) as journal, closing(SqliteJournalReader(path)) as reader:
        journal.append([one, *rest])
        archive(path, 120)
        journal.adopt()
        first, head, bodies = next(reader._rows(0, 1, bodies=False))
        journal.maintain()
        assert (first, head + bodies()) == (1, one.raw)


def test_start_reads_no_segment(path: Path) -> None:
    for segment in segments(path):
        segment.write_bytes(b"damaged")
    with closing(SqliteJournal(path)) as journal:
        assert journal.landmark(RunConfigured.event_type) == 150
        assert [record.first for record in journal.landmarks()] == [148, 40, 1]
        assert journal.read(250).position == 300


@pytest.mark.parametrize("harm", ["missing", "damaged"])
def test_harmed_segment_is_refused_where_it_is_needed(path: Path, harm: str) -> None:
    first, _ = segments(path)
    if harm == "missing":
        first.rename(first.with_suffix(".aside"))
    else:
        raw = bytearray(first.read_bytes())
        raw[len(raw) // 2 : len(raw) // 2 + 2000] = bytes(2000)
        first.write_bytes(raw)
    with closing(SqliteJournalReader(path)) as reader:
        assert reader.read(150).records[0].last == 153
        with pytest.raises((MissingEvents, DamagedRecord, DamagedDatabase)) as told:
            everything(reader)
        assert harm == "damaged" or (first.name in told.value.message and "Put the file back" in str(told.value))
        assert any(first.name in problem.message for problem in reader.damage())


def test_every_flipped_bit_of_a_segment_is_found(path: Path, tmp_path: Path) -> None:
    segment = segments(path)[0]
    sound = segment.read_bytes()
    with closing(SqliteJournalReader(path)) as reader:
        for at in range(0, len(sound), len(sound) // 60):
            segment.write_bytes(sound[:at] + bytes([sound[at] ^ 4]) + sound[at + 1 :])
            assert list(reader.damage()), f"byte {at}"


def test_segment_of_another_journal_is_not_taken_over(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other" / "journal.sqlite"
    with closing(SqliteJournal(other)) as journal:
        journal.append([record_of(1, [b"another"] * 3), record_of(4, [b"x"])])
    foreign = archive(other, 3)[0]
    new = tmp_path / "new" / "journal.sqlite"
    with closing(SqliteJournal(new)) as journal:
        journal.append(records(3))
        shutil.copytree(other.parent / "archive", new.parent / "archive")
        with pytest.raises(DamagedDatabase, match="is not of this journal"):
            journal.adopt()
        aside = new.parent / "archive" / f"{foreign.name}.other-history"
        assert aside.is_file(), "archiving would go on after its end"
        assert segments(new) == []
        assert everything(journal) == [record.raw for record in records(3)]


def test_archiving_goes_alone_needs_room_and_keeps_the_last(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interfere(_: object) -> None:
        with pytest.raises(StorageInUse):
            archive(path, 290)

    assert archive(path, 270, say=interfere)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1 << 20))
    with pytest.raises(StorageFull, match="archiving needs"):
        archive(path, 290)
    monkeypatch.undo()
    with closing(SqliteJournalReader(path)) as reader:
        assert everything(reader) == [record.raw for record in records(100)]
    assert archive(path, 290)
    archive(path, 10_000)
    with closing(SqliteJournal(path)) as journal:
        assert journal.adopt() == 297
        assert journal.head == 300
    with pytest.raises(FlyballError):
        archive(path.with_name("none.sqlite"), 5)


def test_disk_that_fills_while_archiving_leaves_no_file(path: Path) -> None:
    """Limit a child's file sizes, which stands in for a full disk. Its writes then fail with an error of the system."""
    program = f"""
import resource, signal
from pathlib import Path
from flyball.app.journal.archiving import archive
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))
archive(Path({str(path)!r}), 290)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "StorageError" in done.stderr
    assert len(segments(path)) == 2
    assert not list(path.parent.glob("archive/*.partial"))
    with closing(SqliteJournalReader(path)) as reader:
        assert everything(reader) == [record.raw for record in records(100)]


KILLED = """
import sys
from contextlib import closing
from pathlib import Path
from flyball.app.journal import SqliteJournal, archiving
archiving.SEGMENT_EVENTS = 30
path = Path(sys.argv[1])
with closing(SqliteJournal(path)) as journal:
    while True:
        print("turn", flush=True)
        done = archiving.archive(path, 2900, say=lambda _: (print("segment", flush=True), journal.adopt()))
        journal.maintain()
"""


@pytest.mark.parametrize("lines", [1, 2, 5, 9, 14])
def test_kill_9_while_archiving_loses_nothing(tmp_path: Path, lines: int) -> None:
    """Guarantee (ADR-006): a crash at any point loses nothing. Archiving again completes what the crash interrupted."""
    path, expected = tmp_path / "journal.sqlite", records(1000)
    with closing(SqliteJournal(path)) as journal:
        journal.append(expected)
    for turn in range(3):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(path)], stdout=subprocess.PIPE)
        assert process.stdout is not None
        for _ in range(lines + turn):
            process.stdout.readline()
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()
        with closing(SqliteJournalReader(path)) as reader:
            assert everything(reader) == [record.raw for record in expected]
            assert list(reader.damage()) == []
    archive(path, 2900)
    with closing(SqliteJournal(path)) as journal:
        assert journal.adopt() == 2898
        journal.shrink()
        assert everything(journal) == [record.raw for record in expected]
        assert not list(tmp_path.glob("archive/*.partial"))


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(1, 5)),
        st.tuples(st.just("archive"), st.integers(0, 60)),
        st.tuples(st.sampled_from(["adopt", "maintain", "reopen", "shrink"]), st.just(0)),
        st.tuples(st.just("read"), st.integers(0, 60)),
    ),
    max_size=25,
)


@settings(max_examples=examples(60), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_records_archived_in_any_order_read_as_one_sequence(steps, tmp_path_factory) -> None:
    path = tmp_path_factory.mktemp("any") / "journal.sqlite"
    journal, expected = SqliteJournal(path), list[Record]()
    with closing(SqliteJournalReader(path)) as reader:
        for step, number in [*steps, ("read", 0)]:
            match step:
                case "append":
                    new = records(number, first=journal.head + 1)
                    journal.append(new)
                    expected += new
                case "archive":
                    archive(path, number)
                case "adopt":
                    journal.adopt()
                case "maintain" | "shrink":
                    getattr(journal, step)()
                case "reopen":
                    journal.close()
                    journal = SqliteJournal(path)
                case "read":
                    check(journal, expected, number)
                    check(reader, expected, number)
                    ids = [one for first, ids in journal.ids(number) for one in ids]
                    assert ids[-3:] == [journal.head - 2, journal.head - 1, journal.head][: len(ids)] or not ids
        assert list(reader.damage()) == []
    journal.close()


def check(reader: SqliteJournalReader | SqliteJournal, expected: list[Record], after: int) -> None:
    following = [record for record in expected if record.last > after]
    position, found = after, list[Record]()
    while (chunk := reader.read(position, limit=4)).position > position:
        found += [record for record in chunk.records if record.last > position]
        position = chunk.position
    assert [record.raw for record in found] == [record.raw for record in following]
    back = [record.first for record in reader.headers_back(after)]
    assert back == [record.first for record in reversed(expected) if record.first <= after]
    chosen = {RunConfigured.event_type}
    typed = [record for record in following if chosen & set(record.frame.types)]
    position, found = after, []
    while (chunk := reader.read(position, limit=4, types=chosen)).position > position:
        found += chunk.records
        position = chunk.position
    assert [record.raw for record in found] == [record.raw for record in typed]


def test_backup_copies_new_segments_beside_the_copy(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "backups" / "copy.sqlite"
    copy.parent.mkdir()
    with closing(SqliteJournalReader(path)) as reader:
        assert reader.backup(copy) == 300
        before = {one.name: one.stat().st_mtime_ns for one in segments(copy)}
        assert len(before) == 2
        reader.backup(copy.with_name("again.sqlite"))
        assert {one.name: one.stat().st_mtime_ns for one in segments(copy)} == before
    with closing(SqliteJournalReader(copy)) as copied:
        assert everything(copied) == [record.raw for record in records(100)]
        assert list(copied.damage()) == []


@pytest.mark.parametrize("live", [300, 30], ids=["other records", "ended before"])
def test_rebuild_refuses_segments_of_another_journal(path: Path, tmp_path: Path, live: int) -> None:
    """Otherwise they would take the place of the journal's own records."""
    other = tmp_path / "other" / "journal.sqlite"
    other.parent.mkdir()
    own = [record_of(at, [b"own", b"", b""]) for at in range(1, live, 3)]
    with closing(SqliteJournal(other)) as journal:
        journal.append(own)
    shutil.copytree(path.parent / "archive", other.parent / "archive")
    with pytest.raises(DamagedDatabase):
        rebuild(other)
    with closing(SqliteJournalReader(other)) as reader:
        assert everything(reader) == [record.raw for record in own]


def test_rebuild_refuses_a_segment_with_another_name(path: Path, tmp_path: Path) -> None:
    first, *_ = segments(path)
    other = tmp_path / "other" / "journal.sqlite"
    other.parent.mkdir()
    with closing(SqliteJournal(other)) as journal:
        journal.append([record_of(at, [b"own", b"", b""]) for at in range(1, 301, 3)])
        archive(other, 120)
    (theirs,) = segments(other)
    first.unlink()
    shutil.copy(theirs, first.parent)
    with pytest.raises(DamagedDatabase, match="is not of this journal"):
        rebuild(path)


@pytest.mark.parametrize("table", ["segments", "marks", "landmarks"])
def test_rebuild_derives_the_tables_of_an_archived_journal(path: Path, table: str) -> None:
    with closing(SqliteJournal(path)) as journal:
        journal._db.connection.execute(
            f"DELETE FROM {table} WHERE rowid > 1" if table == "segments" else f"DELETE FROM {table}"
        )
    rebuild(path)
    with closing(SqliteJournal(path)) as journal:
        assert everything(journal) == [record.raw for record in records(100)]
        assert [record.first for record in journal.landmarks()] == [148, 40, 1]
        assert journal.mark("trainer@a", 1) == 301 or table == "marks"


def test_deleted_events_are_named_and_newer_ones_are_read(path: Path) -> None:
    with closing(SqliteJournal(path)) as journal:
        assert journal.forget(200 * 1_000_000) == [], "no snapshot covers them"
        head = journal.head_at(240)
        assert head is not None
        write_snapshot(journal.archive.folder, Snapshot(240, {("A", "x"): b"{}"}), head)
        assert [row.last for row in journal.forget(200 * 1_000_000)] == [120]
        assert len(segments(path)) == 1
        assert journal.forget(200 * 1_000_000) == []
        with pytest.raises(MissingEvents, match="The events 1 to 120 were deleted for good"):
            everything(journal)
        assert journal.first == 121
        assert [record.raw for record in journal.read(120).records] == [record.raw for record in records(100)[40:]]
        assert [record.first for record in journal.headers_back(130)][-1] == 121
        assert journal.landmark(RunConfigured.event_type) == 150
    with closing(SqliteJournalReader(path)) as reader:
        assert list(reader.damage()) == []
        assert reader.first == 121


def test_rebuild_keeps_what_is_known_of_deleted_segments(path: Path) -> None:
    with closing(SqliteJournal(path)) as journal:
        write_snapshot(journal.archive.folder, Snapshot(240, {}), journal.head_at(240) or b"")
        assert [row.last for row in journal.forget(200 * 1_000_000)] == [120]
    rebuild(path)
    with closing(SqliteJournal(path)) as journal:
        assert journal.first == 121
        with pytest.raises(MissingEvents):
            everything(journal)
        assert [record.raw for record in journal.read(120).records] == [record.raw for record in records(100)[40:]]


def test_journal_with_its_archived_records_has_no_damage(tmp_path: Path) -> None:
    """A record of one event begins at the last archived position, until archived records are deleted."""
    path = tmp_path / "journal.sqlite"
    with closing(SqliteJournal(path)) as journal:
        journal.append([record_of(at, [b"x"]) for at in (1, 2)])
        archive(path, 1)
        journal.adopt()
    with closing(SqliteJournalReader(path)) as reader:
        assert list(reader.damage()) == []


def test_snapshot_of_another_journal_or_damaged_is_passed_over(path: Path, tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    with closing(SqliteJournalReader(path)) as reader:
        for position in (120, 240, 300):
            write_snapshot(folder, Snapshot(position, {("A", "x"): b"%d" % position}), reader.head_at(position) or b"")
        assert positions(folder) == [300, 240, 120]
        assert reader.snapshot(299) == Snapshot(240, {("A", "x"): b"240"})
        raw = bytearray((folder / f"{240:012}.snapshot").read_bytes())
        raw[-20:] = bytes(20)
        raw = raw.replace(b"240", b"241")
        (folder / f"{240:012}.snapshot").write_bytes(raw)
        assert reader.snapshot(299) == Snapshot(120, {("A", "x"): b"120"})
        assert read_snapshot(folder, 300, lambda _: b"other") is None


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ((100, 260, 270, 510, 520, 530, 540, 550), [550, 540, 530, 520, 270, 100]),
        ((540, 550, 560, 570, 30), [30]),
    ],
    ids=["superseded", "before a restoration"],
)
def test_superseded_snapshots_are_removed(tmp_path: Path, written: tuple[int, ...], kept: list[int]) -> None:
    for thousands in written:
        write_snapshot(tmp_path, Snapshot(thousands * 1000, {}), b"")
    assert positions(tmp_path) == [thousands * 1000 for thousands in kept]


def test_deletion_needs_a_snapshot_of_this_journal(path: Path) -> None:
    with closing(SqliteJournal(path)) as journal:
        write_snapshot(journal.archive.folder, Snapshot(240, {}), b"another record")
        assert journal.forget(240 * 1_000_000) == []
        assert len(segments(path)) == 2
    with closing(SqliteJournal(path)) as journal:
        write_snapshot(journal.archive.folder, Snapshot(240, {}), journal.head_at(240) or b"")
        assert [row.last for row in journal.forget(240 * 1_000_000)] == [120, 240]
        assert next(iter(journal.ids(0)))[0] == 241
        Hub(journal, "broker@a", BrokerLimits()).settle()
