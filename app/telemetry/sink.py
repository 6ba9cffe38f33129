"""The file that log lines go to."""

import fcntl
import os
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Self

MAX_BYTES = 64 << 20
FILES = 3


class LogFile:
    """Appends lines to a file, one system call each: lines of several processes don't mix, and none waits in memory.

    A file that has reached its size becomes ``NAME.1``, what was that ``NAME.2``, and the oldest goes. Several
    processes may write and rotate it: one that finds another file under the name than its own follows, and rotates
    only the file that it has locked and that still has the name. A line that cannot be written is lost, and said to be
    on stderr at the first of a row: a full disk must not end a daemon by way of its log.

    Args:
        path: the file; created with its folders when missing.
        max_bytes: its size after which it is rotated.
        files: how many are kept, with the one being written.
    """

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES, files: int = FILES) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path, self._max_bytes, self._files = path, max_bytes, files
        self._descriptor: int | None = _open(path)
        self._failing = False

    def write(self, line: bytes) -> None:
        """Append a line. Does nothing once closed."""
        if self._descriptor is None:
            return
        try:
            with suppress(OSError):  # a file that can't be rotated grows
                self._descriptor = self._present(self._descriptor)
            os.write(self._descriptor, line + b"\n")
        except OSError as error:
            if not self._failing:
                sys.stderr.write(f"{self._path}: log lines are being lost: {error}\n")
            self._failing = True
        else:
            self._failing = False

    def _present(self, descriptor: int) -> int:
        """Return a descriptor of the file that has the name now, and has room."""
        if self._is_named(descriptor):
            if os.fstat(descriptor).st_size < self._max_bytes:
                return descriptor
            self._rotate(descriptor)
        fresh = _open(self._path)
        os.close(descriptor)
        return fresh

    def _rotate(self, descriptor: int) -> None:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            if self._is_named(descriptor):  # nobody else was faster
                self._shift()
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)

    def _shift(self) -> None:
        names = [self._path, *(self._path.with_name(f"{self._path.name}.{n}") for n in range(1, self._files))]
        for newer, older in reversed(list(pairwise(names))):
            with suppress(FileNotFoundError):
                newer.replace(older)

    def _is_named(self, descriptor: int) -> bool:
        try:
            return os.path.samestat(self._path.stat(), os.fstat(descriptor))
        except FileNotFoundError:
            return False

    def close(self) -> None:
        """Close. Twice does nothing."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def _open(path: Path) -> int:
    return os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
