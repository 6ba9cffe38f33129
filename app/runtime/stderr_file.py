"""The file that a supervised process writes its stderr to: bounded, however long and often the process runs."""

import os
from contextlib import suppress
from pathlib import Path
from typing import IO

MAX_BYTES = 1 << 20
LAST_BYTES = 8192


class StderrFile:
    """A file that processes append to. Their descriptor is their own: the file can be emptied, but not replaced.

    Args:
        path: the file. The end of what was in it when it was emptied last is kept in ``NAME.1``.
        max_bytes: beyond it, ``bound`` empties the file; so much is kept.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path, self._max_bytes = path, max_bytes
        self._began_at = 0

    def open(self) -> IO[bytes]:
        """Open it for a process that starts now."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = self._path.open("ab")
        self.bound()
        self._began_at = file.seek(0, os.SEEK_END)
        return file

    def bound(self) -> None:
        """Empty it when it has grown too long. What is written in that moment is lost."""
        if self._path.stat().st_size > self._max_bytes:
            with suppress(OSError):  # a full disk is no reason to let it grow
                self._path.with_name(f"{self._path.name}.1").write_bytes(self._end(self._max_bytes))
            os.truncate(self._path, 0)
            self._began_at = 0

    def last_line(self) -> str:
        """Return the last line that the latest process wrote; an empty string when it wrote none."""
        lines = [line.strip() for line in self._end(LAST_BYTES, self._began_at).decode(errors="replace").splitlines()]
        return next((line for line in reversed(lines) if line), "")

    def _end(self, count: int, after: int = 0) -> bytes:
        with self._path.open("rb") as said:
            said.seek(max(after, said.seek(0, os.SEEK_END) - count))
            return said.read()
