"""A node's cache of blobs: bounded, verified and shared by processes. Pinned models are never evicted."""

import errno
import multiprocessing
import os
import random
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.store import MemoryStore, MissingBlob
from flyball.app.store.blobs import key_of
from flyball.app.store.cache import BlobCache, CachedStore


def blob(number: int, size: int = 100) -> bytes:
    return bytes([number]) * size


class Cached:
    """A cache whose uses of blobs are one second apart."""

    def __init__(self, folder: Path, capacity: int) -> None:
        self.folder, self.cache, self.seconds = folder, BlobCache(folder, capacity), 0

    def add(self, *blobs: bytes) -> list[str]:
        keys = [key_of(data) for data in blobs]
        for key, data in zip(keys, blobs, strict=True):
            self.cache.add(key, data)
            self.use(key)
        return keys

    def use(self, key: str) -> None:
        self.seconds += 1
        if (path := self.folder / key).exists():
            os.utime(path, (self.seconds, self.seconds))

    def has(self, *keys: str) -> list[bool]:
        return [self.cache.get(key) is not None for key in keys]

    @property
    def size(self) -> int:
        return sum(path.stat().st_size for path in self.folder.iterdir() if path.name not in ("pinned", "lock"))


@pytest.fixture
def cached(tmp_path: Path) -> Cached:
    return Cached(tmp_path / "cache", 350)


def test_least_recently_used_blobs_are_evicted(cached):
    keys = cached.add(*map(blob, range(3)))
    cached.use(keys[0])
    keys += cached.add(blob(3))
    assert cached.has(*keys) == [True, False, True, True]


def test_reading_a_blob_counts_as_use(cached):
    keys = cached.add(*map(blob, range(3)))
    assert cached.cache.get(keys[0]) == blob(0)  # now, long after 1970
    cached.add(blob(3))
    assert cached.cache.get(keys[0]) == blob(0)


def test_pinned_models_are_never_evicted(cached):
    (model,) = cached.add(blob(0))
    cached.cache.pin([model])
    cached.add(*map(blob, range(1, 20)))
    assert cached.cache.get(model) == blob(0)
    cached.cache.pin([])
    os.utime(cached.folder / model, (0, 0))
    cached.add(*map(blob, range(1, 21)))
    assert cached.has(model) == [False]


def test_pinned_models_beyond_capacity_stay_and_keep_others_out(cached):
    models = cached.add(*map(blob, range(3)))
    cached.cache.pin(models)
    assert cached.has(*cached.add(blob(3)), *models) == [False, True, True, True]


def test_what_a_killed_process_left_is_evicted(cached):
    cached.add(blob(0))
    left = cached.folder / "tmpleft"
    left.write_bytes(bytes(100))
    os.utime(left, (0, 0))
    cached.add(*map(blob, range(1, 4)))
    assert not left.exists()


@pytest.mark.parametrize("count", [b"", b"\0\0", b"many"])
def test_a_lost_count_is_made_again(cached, count):
    keys = cached.add(*map(blob, range(3)))
    (cached.folder / "lock").write_bytes(count)
    cached.add(blob(3))
    assert cached.has(keys[0]) == [False]
    assert cached.size <= 350


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 200)), max_size=30), st.integers(0, 500))
def test_a_cache_never_grows_beyond_its_capacity(tmp_path_factory, blobs, capacity):
    cached = Cached(tmp_path_factory.mktemp("cache"), capacity)
    for number, size in blobs:
        (key,) = cached.add(blob(number, size))
        assert cached.size <= capacity
        assert cached.cache.get(key) in (None, blob(number, size))


def test_second_read_asks_nothing_unless_damaged(tmp_path):
    store = CachedStore(MemoryStore(), BlobCache(tmp_path, 1000))
    key = store.put(b"weights")
    (tmp_path / key).write_bytes(b"weighty")
    assert store.get(key) == b"weights"
    assert (tmp_path / key).read_bytes() == b"weights"
    behind = MemoryStore()
    store = CachedStore(behind, BlobCache(tmp_path, 1000))
    key = behind.put(b"weights")
    assert store.get(key) == b"weights"
    behind.delete(key)
    assert store.get(key) == b"weights"
    store.delete(key)
    with pytest.raises(MissingBlob):
        store.get(key)


def test_a_folder_that_cannot_be_written_only_costs_time(tmp_path):
    (tmp_path / "cache").write_text("a file")
    behind = MemoryStore()
    assert CachedStore(behind, BlobCache(tmp_path / "cache" / "here", 1000)).get(behind.put(b"weights")) == b"weights"


def test_blob_that_a_full_disk_interrupts_leaves_no_file(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    cache = BlobCache(tmp_path, 1000)
    monkeypatch.setattr(Path, "replace", full)
    cache.add(key_of(b"weights"), b"weights")
    assert cache.get(key_of(b"weights")) is None
    assert [path.name for path in tmp_path.iterdir() if path.name != "lock"] == []


def read_and_write(folder: Path, seed: int) -> None:
    cache, rng = BlobCache(folder, 3000), random.Random(seed)
    for _ in range(300):
        data = blob(rng.randrange(20), 500)
        cache.add(key_of(data), data)
        key = key_of(blob(rng.randrange(20), 500))
        found = cache.get(key)
        assert found is None or key_of(found) == key


def test_processes_share_a_cache(tmp_path):
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=read_and_write, args=(tmp_path, seed)) for seed in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert [worker.exitcode for worker in workers] == [0, 0, 0]
    assert sum(path.stat().st_size for path in tmp_path.iterdir() if path.name != "lock") <= 3000
