"""The blob store in a folder, shared by any number of processes."""

from collections.abc import Iterator
from pathlib import Path

from app.store.blobs import checked_key, key_of, missing, verified
from app.store.durable import flush_folder, replace_durably


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
