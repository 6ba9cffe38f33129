"""The blob store's port and its in-memory adapter: bytes under their own SHA-256."""

import hashlib
import re
from collections.abc import Iterator
from typing import Protocol

from app.core import FlyballError

_KEY = re.compile(r"[0-9a-f]{64}")


class MissingBlob(FlyballError):
    """No blob has this key."""


class DamagedBlob(FlyballError):
    """A blob's content is not what its key or its format promises."""


class BlobStore(Protocol):
    """Keeps bytes under their own SHA-256, 64 hexadecimal digits. Safe to share between processes and threads."""

    def put(self, data: bytes) -> str:
        """Store ``data`` durably and return its key. Storing it twice changes nothing; it repairs a damaged copy."""
        ...

    def get(self, key: str) -> bytes:
        """Return the blob. Raises ``MissingBlob``, or ``DamagedBlob`` when the content has another hash."""
        ...

    def has(self, key: str) -> bool:
        """Tell whether a blob is there; its content is not checked."""
        ...

    def delete(self, key: str) -> None:
        """Delete the blob, if it is there."""
        ...

    def keys(self) -> Iterator[str]:
        """Yield all keys, in no particular order."""
        ...


def key_of(data: bytes) -> str:
    """Return the key of ``data``: its SHA-256 in hexadecimal digits."""
    return hashlib.sha256(data).hexdigest()


def checked_key(key: str) -> str:
    """Return ``key`` when it has the form of one; a key is never a path. Raises ``MissingBlob``."""
    if not _KEY.fullmatch(key):
        raise MissingBlob(f"{key!r} is no blob key.", hint="A key is a SHA-256: 64 lowercase hexadecimal digits.")
    return key


def verified(key: str, data: bytes) -> bytes:
    """Return ``data`` when its hash is ``key``. Raises ``DamagedBlob``."""
    if key_of(data) != key:
        raise DamagedBlob(
            f"Blob {key} is damaged: its {len(data)} bytes have the hash {key_of(data)}.",
            hint="Check the disk, then put the blob back from a copy, or delete it and repeat the work that made it.",
        )
    return data


def missing(key: str) -> MissingBlob:
    """Return the error for a key that nothing is stored under."""
    return MissingBlob(
        f"Blob {key} is not in the store.",
        hint="It was deleted by retention, or the store's folder is not the one the run writes to.",
    )


class MemoryStore:
    """A blob store that lives and dies with its process."""

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
