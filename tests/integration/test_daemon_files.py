"""Damaged files of a daemon are set aside, and nothing is lost. An error is logged."""

from pathlib import Path

import pytest

from flyball.app.events.frames import Draft, FrameBuilder
from flyball.app.journal import SqliteOutbox, SqliteStateStore
from flyball.app.journal.database import PAGE_BYTES
from flyball.daemons.process import migrated_path, opened

ROWS = {("feedback", f"config {number}"): bytes(200) + b"%d" % number for number in range(60)}


def state(path: Path) -> None:
    store = SqliteStateStore(path)
    store.save(7, ROWS)
    store.close()


def outbox(path: Path) -> None:
    box, builder = SqliteOutbox(path), FrameBuilder("p")
    builder.add([Draft(1, "a", "", b"x" * 300)])
    box.put([builder.build(1, number) for number in range(60)])
    box.close()


def flipped(sound: bytes, at: int) -> bytes:
    return sound[:at] + bytes([sound[at] ^ 1 << at % 8]) + sound[at + 1 :]


@pytest.mark.parametrize(("kind", "fill"), [(SqliteStateStore, state), (SqliteOutbox, outbox)], ids=["state", "outbox"])
def test_flips_are_found_or_change_nothing(tmp_path, kind, fill, capsys):
    """Guarantee (ADR-005): a daemon never starts from damaged files."""
    path = tmp_path / "file.sqlite"
    fill(path)
    sound, store = path.read_bytes(), kind(path)
    content, empty = store.load(), kind(tmp_path / "empty.sqlite").load()
    store.close()
    used = [at for at in range(PAGE_BYTES, len(sound)) if sound[at] or at % PAGE_BYTES < 12]
    aside = 0
    for number in range(150):
        path.write_bytes(flipped(sound, used[number * len(used) // 150]))
        store = opened(kind, path, "rebuilt")
        found = store.load()
        store.close()
        assert found in (content, empty)
        aside += found == empty
        assert ("damaged file set aside" in capsys.readouterr().out) == (found == empty)
    assert aside > 100
    assert (tmp_path / "file.sqlite.damaged").is_file()


@pytest.mark.parametrize("renamed", [(), ("-wal",), ("-wal", "-shm")])
def test_file_without_a_node_in_its_name_is_renamed_with_content(tmp_path, renamed):
    """Rename the files, also after a crash between two renamings."""
    older, path = tmp_path / "training.sqlite", tmp_path / "training@gpu1.sqlite"
    store = SqliteStateStore(older)
    store.save(7, ROWS)
    copies = {rest: older.with_name(older.name + rest).read_bytes() for rest in ("", "-wal", "-shm")}
    store.close()
    for rest, content in copies.items():  # as a killed process leaves them
        (path if rest in renamed else older).with_name((path if rest in renamed else older).name + rest).write_bytes(
            content
        )
    store = SqliteStateStore(migrated_path(path, "training"))
    assert store.load() == (7, ROWS)
    store.close()
    assert not older.exists()
    assert migrated_path(path, "training") == path
