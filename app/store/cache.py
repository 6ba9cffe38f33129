"""This node's cache of a store by URL: a bounded folder of verified blobs that processes share."""

import fcntl
import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from flyball.app.store.blobs import BlobStore, StoredBlob, checked_key, key_of, replace_durably

PINNED, LOCK = "pinned", "lock"
"""Names of the cache's files that are no blobs."""

SHRUNK = 0.9
"""Share of its capacity to which a full cache shrinks; at 1, every further blob would need a search of the folder."""


class BlobCache:
    """Copies of blobs in one folder.

    The least recently used copies are evicted, except pinned ones.

    A reader verifies a copy, so that a damaged one counts as missing. A process killed while it adds one leaves a file
    that is evicted like a blob.

    Args:
        folder: where the copies are; created when missing.
        capacity_bytes: most bytes, except for blobs that are being added. Pinned blobs stay: without room beside them,
            nothing is added.
    """

    def __init__(self, folder: Path, capacity_bytes: int) -> None:
        self._folder, self._capacity = folder, capacity_bytes

    def get(self, key: str) -> bytes | None:
        """Return a blob; None if the cache has no sound copy. A returned blob is marked as used."""
        path = self._folder / key
        try:
            data = path.read_bytes()
            os.utime(path)
        except OSError:  # usually, the cache has no copy
            return None
        if key_of(data) != key:
            self.remove(key)
            return None
        return data

    def add(self, key: str, data: bytes) -> None:
        """Add a blob, and evict others to make room. On a full disk, the blob is not added."""
        with suppress(OSError):  # a cache that cannot keep a blob only costs time
            self._folder.mkdir(parents=True, exist_ok=True)
            if not self._reserve(len(data)):
                return
            handle, unfinished = tempfile.mkstemp(dir=self._folder)
            try:
                with os.fdopen(handle, "wb") as file:
                    file.write(data)  # not flushed to the disk, because a damaged copy is fetched again
                Path(unfinished).replace(self._folder / key)
            except BaseException:
                Path(unfinished).unlink(missing_ok=True)
                raise

    def remove(self, key: str) -> None:
        """Remove a blob, if it is there."""
        with suppress(OSError):
            (self._folder / key).unlink()

    def pin(self, keys: Iterable[str]) -> None:
        """Keep these blobs from being evicted, instead of those pinned before."""
        self._folder.mkdir(parents=True, exist_ok=True)
        replace_durably(self._folder / PINNED, "\n".join(keys).encode(), self._folder)

    def _reserve(self, size: int) -> bool:
        """Make room for a blob; return whether there is any.

        The locked file holds an upper bound of the bytes in the folder, because looking at thousands of files for each
        blob would take longer than fetching the blob.
        """
        with (self._folder / LOCK).open("a+b") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            count = file.read()
            before = int(count) if count.isdigit() else self._capacity  # an unreadable count forces a search
            if before + size > self._capacity:
                before = self._evict(SHRUNK * self._capacity - size)
            has_room = before + size <= self._capacity
            file.truncate(0)
            file.write(b"%d" % (before + size if has_room else before))
            return has_room

    def _evict(self, room: float) -> int:
        """Evict blobs until at most ``room`` bytes are left, if possible. Returns the bytes left."""
        files = [file for file in os.scandir(self._folder) if file.is_file() and file.name not in (PINNED, LOCK)]
        blobs = [(status.st_mtime_ns, file.name, status.st_size) for file in files if (status := _stat(file))]
        left, pinned = sum(size for *_, size in blobs), self._pinned_keys()
        for _, name, size in sorted(blobs):
            if left <= room:
                break
            if name not in pinned:
                self.remove(name)
                left -= size
        return left

    def _pinned_keys(self) -> frozenset[str]:
        try:
            return frozenset((self._folder / PINNED).read_text().split())
        except FileNotFoundError:
            return frozenset()


def _stat(entry: os.DirEntry[str]) -> os.stat_result | None:
    try:
        return entry.stat()
    except FileNotFoundError:  # another process removed or renamed it
        return None


class CachedStore:
    """A store that is read through this node's cache."""

    def __init__(self, store: BlobStore, cache: BlobCache) -> None:
        self._store, self.cache = store, cache

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CachedStore) and self._store == other._store

    def __hash__(self) -> int:
        return hash(self._store)

    def put(self, data: bytes) -> str:
        """See ``BlobStore.put``."""
        key = self._store.put(data)
        self.cache.add(key, data)
        return key

    def get(self, key: str) -> bytes:
        """See ``BlobStore.get``."""
        data = self.cache.get(checked_key(key))
        if data is None:
            data = self._store.get(key)
            self.cache.add(key, data)
        return data

    def has(self, key: str) -> bool:
        """See ``BlobStore.has``."""
        return self._store.has(key)

    def delete(self, key: str) -> None:
        """See ``BlobStore.delete``. Other nodes evict their copies in time."""
        self._store.delete(key)
        self.cache.remove(key)

    def keys(self) -> Iterator[str]:
        """See ``BlobStore.keys``."""
        return self._store.keys()

    def entries(self) -> Iterator[StoredBlob]:
        """See ``BlobStore.entries``."""
        return self._store.entries()
