"""Contract of all state stores and all outboxes."""

import pytest
from memory_outbox import MemoryOutbox

from flyball.app.events.frames import DamagedFrame, Draft, FrameBuilder
from flyball.app.journal import SqliteOutbox, SqliteStateStore
from flyball.app.journal.database import DamagedState, StorageFull, StorageInUse
from flyball.app.journal.memory import MemoryStateStore


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    store = MemoryStateStore() if request.param == "memory" else SqliteStateStore(tmp_path / "state.db")
    yield store
    store.close()


def test_rows_are_changed_and_deleted_with_the_cursor(store):
    assert store.load() == (0, {})
    store.save(4, {})
    assert store.load() == (4, {})
    store.save(5, {("feedback", "hex7_2p"): b"1", ("league", "x"): b"2", ("league", "y"): b""})
    store.save(9, {("feedback", "hex7_2p"): b"3", ("league", "x"): None, ("league", "none"): None})
    assert store.load() == (9, {("feedback", "hex7_2p"): b"3", ("league", "y"): b""})


def test_state_survives_in_its_file(tmp_path):
    store = SqliteStateStore(tmp_path / "s.db")
    store.save(3, {("a", "b"): b"c"})
    with pytest.raises(StorageInUse):
        SqliteStateStore(tmp_path / "s.db")
    store.close()
    again = SqliteStateStore(tmp_path / "s.db")
    assert again.load() == (3, {("a", "b"): b"c"})
    again.close()


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("UPDATE state SET value = x'00'", "a 'b'"),
        ("UPDATE state SET name = 'z'", "a 'z'"),
        ("UPDATE cursor SET position = 4", "the cursor"),
    ],
)
def test_damaged_state_is_refused(tmp_path, change, named):
    store = SqliteStateStore(tmp_path / "s.db")
    store.save(3, {("a", "b"): b"c"})
    store._db.connection.execute(change)
    with pytest.raises(DamagedState, match=named):
        store.load()
    store.close()


def frame(base, epoch=1, size=10):
    builder = FrameBuilder("p")
    builder.add([Draft(base, "a", "", b"x" * size)])
    return builder.build(epoch, base)


@pytest.fixture(params=["memory", "sqlite"])
def outbox(request, tmp_path):
    bound = 10_000
    box = (
        MemoryOutbox(max_bytes=bound)
        if request.param == "memory"
        else SqliteOutbox(tmp_path / "outbox.db", max_bytes=bound)
    )
    yield box
    box.close()


def test_an_outbox_keeps_frames_in_order_until_removed(outbox):
    with pytest.raises(DamagedFrame):
        outbox.put([b"junk"])
    outbox.put([frame(0), frame(1)])
    outbox.put([frame(0), frame(0, epoch=2**64 - 1)])
    assert outbox.load() == [frame(0), frame(1), frame(0, epoch=2**64 - 1)]
    with pytest.raises(StorageFull, match="outbox"):
        outbox.put([frame(2), frame(3, size=20_000)])
    rest = 10_000 - sum(map(len, outbox.load())) - len(frame(4, size=0))
    with pytest.raises(StorageFull, match="outbox"):
        outbox.put([frame(4, size=rest + 1)])
    outbox.put([frame(4, size=rest)])
    outbox.remove([(1, 0), (2**64 - 1, 0), (1, 77), (1, 4)])
    assert outbox.load() == [frame(1)]


def test_an_outbox_survives_in_its_file(tmp_path):
    box = SqliteOutbox(tmp_path / "o.db")
    box.put([frame(0)])
    box.close()
    again = SqliteOutbox(tmp_path / "o.db")
    assert again.load() == [frame(0)]
    again.close()
