"""Checks whether other programs touched the files of an open database.

SQLite goes on with the files that it has open. Without these checks, a writer would acknowledge transactions that only
a deleted file holds.
"""

import os
from pathlib import Path
from typing import NamedTuple


class Touched(NamedTuple):
    """A file that another program touched; ``in_place``: only its content, or only its times unless ``resized``."""

    path: str
    how: str
    in_place: bool = False
    resized: bool = False


class FileWatch:
    """The files of an open database, as this process left them.

    Only this process writes the database and its WAL. A look takes four calls of stat(2).
    """

    def __init__(self, path: Path) -> None:
        self.main, self.wal = str(path), f"{path}-wal"
        self._left = {name: _stat(name) for name in (self.main, self.wal, f"{path}-shm", f"{path}.lock")}

    def look(self) -> Touched | None:
        """Return a file that was touched since ``note``, or None."""
        for path, left in self._left.items():
            now = _stat(path)
            if left is None:
                continue
            if now is None:
                return Touched(path, "was deleted or moved away")
            if not os.path.samestat(left, now):
                return Touched(path, "was replaced by another file")
            resized = now.st_size < left.st_size if path == self.wal else now.st_size != left.st_size
            if path in (self.main, self.wal) and resized:
                return Touched(path, "was overwritten", in_place=True, resized=True)
            if path == self.main and now.st_mtime_ns != left.st_mtime_ns:
                return Touched(path, "was changed", in_place=True)
        return None

    def note(self) -> None:
        """Accept the present content of the files as written by this process."""
        for path in (self.main, self.wal):
            left, now = self._left[path], _stat(path)
            if left and now and os.path.samestat(left, now):
                self._left[path] = now

    def has_wal(self) -> bool:
        """Return whether the WAL still has its name."""
        left, now = self._left[self.wal], _stat(self.wal)
        return left is not None and now is not None and os.path.samestat(left, now)


def _stat(path: str) -> os.stat_result | None:
    try:
        return os.stat(path)  # noqa: PTH116 - every commit does this, and a Path costs more than the call
    except OSError:
        return None
