"""The file that log lines go to."""

import os
import sys
from pathlib import Path
from types import TracebackType
from typing import Self


class LogFile:
    """Appends lines to a file, one system call each: lines of several processes don't mix, and none waits in memory.

    A line that cannot be written is lost, and said to be on stderr at the first of a row: a full disk must not end a
    daemon by way of its log. Rotate with copying and truncating.

    Args:
        path: the file; created with its folders when missing.
    """

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._path = path
        self._descriptor: int | None = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o640)
        self._failing = False

    def write(self, line: bytes) -> None:
        """Append a line. Does nothing once closed."""
        if self._descriptor is None:
            return
        try:
            os.write(self._descriptor, line + b"\n")
        except OSError as error:
            if not self._failing:
                sys.stderr.write(f"{self._path}: log lines are being lost: {error}\n")
            self._failing = True
        else:
            self._failing = False

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
