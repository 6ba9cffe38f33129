"""Contract of all blob stores, and of checkpoints and shards in them."""

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from app.config.store_address import StoreAddress
from app.store import BlobStore, DamagedBlob, FileStore, MemoryStore, MissingBlob
from app.store.cache import BlobCache, CachedStore
from app.store.objects import ObjectStore

ABSENT = "0" * 64
KINDS = ["memory", "files", "objects", "s3", "cached"]


def overwrite(store: BlobStore, key: str, data: bytes) -> None:
    """Change a stored blob behind the store's back."""
    match store:
        case MemoryStore():
            store._blobs[key] = data
        case FileStore():
            store.path(key).write_bytes(data)
        case ObjectStore():
            store._files().pipe_file(store._path(key), data)
        case CachedStore():
            overwrite(store._store, key, data)
            store.cache.remove(key)


def in_memory(folder: Path) -> ObjectStore:
    """Return an object store in fsspec's memory file system.

    All tests share that file system.
    """
    return ObjectStore(StoreAddress("memory", f"memory://{folder}", {}))


@pytest.fixture(params=KINDS)
def store(request, tmp_path: Path) -> BlobStore:
    match request.param:
        case "memory":
            return MemoryStore()
        case "files":
            return FileStore(tmp_path / "store")
        case "objects":
            return in_memory(tmp_path)
        case "s3":
            return ObjectStore(request.getfixturevalue("bucket"))
        case _:
            return CachedStore(in_memory(tmp_path), BlobCache(tmp_path / "cache", 1 << 20))


@pytest.fixture
def damage(store) -> Callable[[str, bytes], None]:
    return lambda key, data: overwrite(store, key, data)


@pytest.mark.parametrize("data", [b"", b"x", bytes(range(256)) * 1000])
def test_a_blob_comes_back_under_its_sha256(store, data):
    key = store.put(data)
    assert key == hashlib.sha256(data).hexdigest()
    assert store.get(key) == data
    assert store.has(key)


def test_putting_twice_keeps_one(store):
    assert store.put(b"same") == store.put(b"same")
    assert list(store.keys()) == [hashlib.sha256(b"same").hexdigest()]


def test_an_absent_blob_is_missing_with_a_hint(store):
    assert not store.has(ABSENT)
    with pytest.raises(MissingBlob) as error:
        store.get(ABSENT)
    assert ABSENT in str(error.value)
    assert error.value.hint


@pytest.mark.parametrize("key", ["", "abc", "../../etc/passwd", "A" * 64, "0" * 63 + "/"])
def test_what_is_no_key_is_never_looked_up(store, key):
    with pytest.raises(MissingBlob, match="no blob key"):
        store.get(key)


@pytest.mark.parametrize("place", [0, 5, -1])
def test_a_flipped_bit_is_refused_and_putting_again_repairs_it(store, damage, place):
    data = b"some weights"
    key = store.put(data)
    bad = bytearray(data)
    bad[place] ^= 1
    damage(key, bytes(bad))
    with pytest.raises(DamagedBlob, match=key):
        store.get(key)
    store.put(data)
    assert store.get(key) == data


def test_a_shortened_blob_is_refused(store, damage):
    key = store.put(b"some weights")
    damage(key, b"some wei")
    with pytest.raises(DamagedBlob):
        store.get(key)


def test_deleting_is_idempotent(store):
    key, kept = store.put(b"gone"), store.put(b"kept")
    store.delete(key)
    store.delete(key)
    assert not store.has(key)
    assert list(store.keys()) == [kept]


def test_entries_have_the_size_and_time_of_a_blob(store):
    key = store.put(b"four")
    (entry,) = store.entries()
    assert (entry.key, entry.size_bytes) == (key, 4)
    if not isinstance(store, MemoryStore):
        assert entry.modified.utcoffset() == timedelta(0)


def test_a_store_opened_again_holds_what_was_put(tmp_path):
    key = FileStore(tmp_path).put(b"durable")
    assert FileStore(tmp_path).get(key) == b"durable"
    assert list(FileStore(tmp_path).keys()) == [key]


def test_an_unfinished_write_is_no_blob(tmp_path):
    store = FileStore(tmp_path)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "half").write_bytes(b"half a bl")
    assert list(store.keys()) == []


def test_other_files_in_its_folders_are_no_blobs(tmp_path):
    store = FileStore(tmp_path)
    key = store.put(b"blob")
    store.path(key).with_name(".nfs0001").write_bytes(b"open elsewhere")
    store.path(key).with_name(f"{key}.copy").write_bytes(b"blob")
    assert [entry.key for entry in store.entries()] == [key]


def test_a_blob_that_is_put_again_is_young(tmp_path):
    """Garbage collection spares young blobs, because their events may still come."""
    store = FileStore(tmp_path)
    key = store.put(b"made again after a restart")
    os.utime(store.path(key), (0, 0))
    store.put(b"made again after a restart")
    (entry,) = store.entries()
    assert entry.modified.year > 1970


def test_a_store_within_another_is_not_part_of_it(tmp_path):
    outer, inner = in_memory(tmp_path), in_memory(tmp_path / "run2")
    key = outer.put(b"ours")
    inner.put(b"theirs")
    assert [entry.key for entry in outer.entries()] == [key]


def put_many(root: Path, worker: int) -> None:
    store = FileStore(root)
    for number in range(40):
        key = store.put(bytes([number]) * 5000)  # the same blobs from every process
        assert store.get(key) == bytes([number]) * 5000
        store.put(b"%d of %d" % (number, worker))


def test_many_processes_write_the_same_blobs_at_once(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=put_many, args=(tmp_path, number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    store = FileStore(tmp_path)
    assert len([store.get(key) for key in store.keys()]) == 40 + 3 * 40  # noqa: SIM118
    assert list((tmp_path / "unfinished").iterdir()) == []


def test_file_store_of_a_moved_run_makes_no_folder(tmp_path: Path) -> None:
    """A job that ends after the move fails. Nested folders that never were are made."""
    (tmp_path / "run").mkdir()
    store = FileStore(tmp_path / "run" / "store")
    store.put(b"before")
    (tmp_path / "run").rename(tmp_path / "moved")
    with pytest.raises(FileNotFoundError):
        store.put(b"after")
    assert not (tmp_path / "run").exists()
    nested = FileStore(tmp_path / "a" / "b" / "store")
    assert nested.get(nested.put(b"nested")) == b"nested"
