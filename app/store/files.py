"""The blob store in a folder, shared by any number of processes."""

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

from app.store.blobs import checked_key, key_of, missing, verified


def replace_durably(path: Path, data: bytes, aside: Path) -> None:
    """Write a file aside, flush it to the disk and rename it into place: a reader sees the old one or the new one.

    Args:
        path: the file.
        data: what it shall hold.
        aside: a folder on the same file system; a process killed while writing leaves a file there.
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
    """Flush a folder: a renamed file survives a power cut only once the folder that names it is on the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class FileStore:
    """Blobs as files ``root/ab/cd/abcd…``, each written aside, flushed to the disk and renamed into place.

    A reader sees a whole blob or none. A process killed while writing leaves a file in ``root/unfinished``
    that nothing refers to.

    Args:
        root: the folder; made when it is not there.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._unfinished = root / "unfinished"
        self._unfinished.mkdir(parents=True, exist_ok=True)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FileStore) and self._root == other._root

    def __hash__(self) -> int:
        return hash(self._root)

    def put(self, data: bytes) -> str:
        """See ``BlobStore.put``."""
        key = key_of(data)
        path = self._path(key)
        if not _holds(path, data):
            path.parent.mkdir(parents=True, exist_ok=True)
            replace_durably(path, data, self._unfinished)
            for folder in (path.parent.parent, self._root):  # they may be new too
                flush_folder(folder)
        return key

    def get(self, key: str) -> bytes:
        """See ``BlobStore.get``."""
        try:
            return verified(key, self._path(checked_key(key)).read_bytes())
        except FileNotFoundError:
            raise missing(key) from None

    def has(self, key: str) -> bool:
        """See ``BlobStore.has``."""
        return self._path(checked_key(key)).exists()

    def delete(self, key: str) -> None:
        """See ``BlobStore.delete``."""
        self._path(checked_key(key)).unlink(missing_ok=True)

    def keys(self) -> Iterator[str]:
        """See ``BlobStore.keys``."""
        return (path.name for path in self._root.glob("[0-9a-f][0-9a-f]/[0-9a-f][0-9a-f]/*"))

    def _path(self, key: str) -> Path:
        return self._root / key[:2] / key[2:4] / key


def _holds(path: Path, data: bytes) -> bool:
    try:
        return path.read_bytes() == data
    except FileNotFoundError:
        return False
