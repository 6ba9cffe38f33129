"""Contract of all blob stores, and of checkpoints and shards in them."""

import hashlib
import multiprocessing
import os
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest

from flyball.app.config.store_address import StoreAddress
from flyball.app.store import BlobStore, DamagedBlob, FileStore, MemoryStore, MissingBlob
from flyball.app.store.cache import BlobCache, CachedStore
from flyball.app.store.objects import ObjectStore

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
    """Return an object store in fsspec's memory file system. All tests share that file system."""
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


def test_blobs_are_kept_once_listed_and_deleted(store):
    assert not store.has(ABSENT)
    with pytest.raises(MissingBlob, match=ABSENT) as error:
        store.get(ABSENT)
    assert error.value.hint
    for key in ("", "abc", "../../etc/passwd", "A" * 64, "0" * 63 + "/"):
        with pytest.raises(MissingBlob, match="no blob key"):
            store.get(key)
    key = store.put(b"four")
    assert store.put(b"four") == key
    (entry,) = store.entries()
    assert (entry.key, entry.size_bytes) == (key, 4)
    if not isinstance(store, MemoryStore):
        assert entry.modified.utcoffset() == timedelta(0)
    kept = store.put(b"kept")
    store.delete(key)
    store.delete(key)
    assert not store.has(key)
    assert list(store.keys()) == [kept]


@pytest.mark.parametrize("bad", [b"rome weights", b"some veights", b"some weightr", b"some wei"])
def test_a_damaged_blob_is_refused_and_putting_again_repairs_it(store, damage, bad):
    data = b"some weights"
    key = store.put(data)
    damage(key, bad)
    with pytest.raises(DamagedBlob, match=key):
        store.get(key)
    store.put(data)
    assert store.get(key) == data


def test_blob_is_there_after_opening_and_young_when_put_again(tmp_path):
    key = FileStore(tmp_path).put(b"durable")
    assert FileStore(tmp_path).get(key) == b"durable"
    assert list(FileStore(tmp_path).keys()) == [key]
    store = FileStore(tmp_path)
    os.utime(store.path(key), (0, 0))
    store.put(b"durable")  # garbage collection spares young blobs, because their events may still come
    (entry,) = store.entries()
    assert entry.modified.year > 1970


def test_other_files_and_unfinished_writes_are_no_blobs(tmp_path):
    store = FileStore(tmp_path)
    (tmp_path / "unfinished").mkdir()
    (tmp_path / "unfinished" / "half").write_bytes(b"half a bl")
    assert list(store.keys()) == []
    key = store.put(b"blob")
    store.path(key).with_name(".nfs0001").write_bytes(b"open elsewhere")
    store.path(key).with_name(f"{key}.copy").write_bytes(b"blob")
    assert [entry.key for entry in store.entries()] == [key]


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


def test_file_stores_of_the_same_folder_are_equal(tmp_path):
    """Caches of shards tell stores apart by it."""
    one, same, other = FileStore(tmp_path), FileStore(str(tmp_path)), FileStore(tmp_path / "other")
    assert one == same
    assert hash(one) == hash(same)
    assert one != other
    assert one != tmp_path


def test_object_stores_of_one_address_are_equal(tmp_path: Path) -> None:
    here, there = in_memory(tmp_path), in_memory(tmp_path / "there")
    assert {here, in_memory(tmp_path), there} == {here, there}
