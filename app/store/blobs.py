"""Blob stores, bytes under their own SHA-256, in memory or in a folder; ``objects`` has those by URL."""

import hashlib
import json
import os
import re
import shlex
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple, Protocol

from flyball.app.core import FlyballError

KEY = re.compile(r"[0-9a-f]{64}")
"""Pattern of a blob's key."""


class MissingBlob(FlyballError, code="lost_blob"):
    """No blob has this key."""


class DamagedBlob(FlyballError, code="lost_blob"):
    """A blob's content does not match its key or its format."""


class StoredBlob(NamedTuple):
    """A stored blob: its key, its size, and when it was stored. ``modified`` is None if the time is unknown."""

    key: str
    size_bytes: int
    modified: datetime | None


class BlobStore(Protocol):
    """Keeps bytes under their own SHA-256, 64 hexadecimal digits. Processes and threads may share a store."""

    def __hash__(self) -> int:
        """Return a hash; stores are keys of caches."""

    def put(self, data: bytes) -> str:
        """Store ``data`` durably and return its key. Storing the data again repairs a damaged copy."""

    def get(self, key: str) -> bytes:
        """Return the blob. Raises ``MissingBlob``, or ``DamagedBlob`` if the content has another hash."""

    def has(self, key: str) -> bool:
        """Return whether a blob is stored; its content is not checked."""

    def delete(self, key: str) -> None:
        """Delete the blob, if it is stored."""

    def keys(self) -> Iterator[str]:
        """Iterate over all keys, in no particular order."""

    def entries(self) -> Iterator[StoredBlob]:
        """Iterate over all blobs without reading them, in no particular order."""


def key_of(data: bytes) -> str:
    """Return the key of ``data``: its SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def checked_key(key: str) -> str:
    """Return ``key`` if it is well-formed. A well-formed key is never a path. Raises ``MissingBlob``."""
    if not KEY.fullmatch(key):
        raise MissingBlob(f"{key!r} is no blob key.", hint="A key is a SHA-256: 64 lowercase hexadecimal digits.")
    return key


def verified(key: str, data: bytes) -> bytes:
    """Return ``data`` when its hash is ``key``. Raises ``DamagedBlob``."""
    if key_of(data) != key:
        raise DamagedBlob(
            f"Blob {key} is damaged: its {len(data)} bytes have the hash {key_of(data)}.",
            hint="Check the disk, then put it back from a copy of the store, or delete it and repeat its work.",
        )
    return data


def model_remedy(config_key: str, model: str) -> str:
    """Return what to do about a configuration's current model that the store has lost."""
    request = json.dumps({"model": model, "reason": "damaged"})
    command = shlex.join(("flyball", "emit", "ROLLBACK_REQUESTED", request, "--config-key", config_key))
    return f"Put it back from a copy of the store, or return to the model before: {command}"


def missing(key: str) -> MissingBlob:
    """Return the error for a key that is not stored."""
    return MissingBlob(
        f"Blob {key} is not in the store.",
        hint="It was deleted by retention, or the store's folder is not the one the run writes to.",
    )


class MemoryStore:
    """A blob store in memory."""

    def __init__(self) -> None:
        self._blobs: dict[str, bytes] = {}

    def put(self, data: bytes) -> str:
        """See ``BlobStore.put``."""
        key = key_of(data)
        self._blobs[key] = bytes(data)
        return key

    def get(self, key: str) -> bytes:
        """See ``BlobStore.get``."""
        data = self._blobs.get(checked_key(key))
        if data is None:
            raise missing(key)
        return verified(key, data)

    def has(self, key: str) -> bool:
        """See ``BlobStore.has``."""
        return key in self._blobs

    def delete(self, key: str) -> None:
        """See ``BlobStore.delete``."""
        self._blobs.pop(key, None)

    def keys(self) -> Iterator[str]:
        """See ``BlobStore.keys``."""
        return iter(list(self._blobs))

    def entries(self) -> Iterator[StoredBlob]:
        """See ``BlobStore.entries``."""
        return iter([StoredBlob(key, len(data), None) for key, data in self._blobs.items()])


class FileStore:
    """Blobs as files ``root/ab/cd/abcd…``, shared by any number of processes.

    A reader sees a whole blob or none. A process killed while writing leaves an unused file in ``root/unfinished``.

    Args:
        root: the folder; created when something is put into it. If the folder around it is there now and missing then,
            it was moved, and a new one under its old name would hide the blob: ``put`` raises ``FileNotFoundError``.
    """

    def __init__(self, root: str | Path) -> None:
        self._root = Path(root)
        self._is_within = self._root.parent.is_dir()
        self._unfinished = self._root / "unfinished"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileStore) and self._root == other._root

    def __hash__(self) -> int:
        return hash(self._root)

    def put(self, data: bytes) -> str:
        """See ``BlobStore.put``."""
        key = key_of(data)
        path = self.path(key)
        if not (_holds(path, data) and _touch(path)):
            self._root.mkdir(parents=not self._is_within, exist_ok=True)
            for folder in (path.parent.parent, path.parent, self._unfinished):
                folder.mkdir(exist_ok=True)
            replace_durably(path, data, self._unfinished)
            for folder in (path.parent.parent, self._root):  # these folders may be new too
                flush_folder(folder)
        return key

    def get(self, key: str) -> bytes:
        """See ``BlobStore.get``."""
        try:
            return verified(key, self.path(checked_key(key)).read_bytes())
        except FileNotFoundError:
            raise missing(key) from None

    def has(self, key: str) -> bool:
        """See ``BlobStore.has``."""
        return self.path(checked_key(key)).exists()

    def delete(self, key: str) -> None:
        """See ``BlobStore.delete``."""
        self.path(checked_key(key)).unlink(missing_ok=True)

    def keys(self) -> Iterator[str]:
        """See ``BlobStore.keys``."""
        names = (path.name for path in self._root.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*"))
        return (name for name in names if KEY.fullmatch(name))  # NFS, too, leaves files in folders

    def entries(self) -> Iterator[StoredBlob]:
        """See ``BlobStore.entries``."""
        for key in self.keys():
            with suppress(FileNotFoundError):  # deleted meanwhile
                status = self.path(key).stat()
                yield StoredBlob(key, status.st_size, datetime.fromtimestamp(status.st_mtime, UTC))

    def total_bytes(self) -> int:
        """Return the size of all blobs."""
        return sum(entry.size_bytes for entry in self.entries())

    def path(self, key: str) -> Path:
        """Return the file of a blob, which may not exist."""
        return self._root / key[:2] / key[2:4] / key


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False


def _touch(path: Path) -> bool:
    """Keep a blob from garbage collection until its event is recorded; return whether the blob is stored."""
    try:
        os.utime(path)
    except FileNotFoundError:  # garbage collection has just deleted it
        return False
    except PermissionError:  # it belongs to another user of a shared store
        return True
    return True


def replace_durably(path: Path, data: bytes, aside: Path) -> None:
    """Replace a file atomically and durably.

    A reader sees the old content or the new.

    Args:
        path: the file.
        data: its new content.
        aside: a folder on the same file system, where the content is written first and flushed. A process killed while
            writing leaves a file there.
    """
    handle, unfinished = tempfile.mkstemp(dir=aside)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(unfinished).replace(path)
    except BaseException:
        Path(unfinished).unlink(missing_ok=True)
        raise
    flush_folder(path.parent)


def flush_folder(folder: Path) -> None:
    """Flush a folder's entries to the disk. Otherwise a power cut may undo a rename in the folder."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
