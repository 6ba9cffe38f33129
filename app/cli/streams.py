"""The standard streams of a command.

Python's own streams raise errors where an operator closes a stream, fills its disk, or has a terminal of another
encoding. A command must survive all of these.
"""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BufferedWriter, FileIO, TextIOWrapper
from typing import Any, TextIO

GONE = (errno.EPIPE, errno.EIO)
"""Errors of writing to a closed pipe or terminal."""


class OutputFailed(OSError):
    """Stdout cannot be written."""


class _Output(FileIO):
    """Stdout; its errors are raised as ``OutputFailed``."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError as error:
            raise OutputFailed(error.errno, error.strerror) from error


class _Messages(FileIO):
    """Stderr that drops what cannot be written, because a command must not fail for a message."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except OSError:
            return len(data)


def set_up_streams() -> None:
    """Replace Python's standard streams, unless a test has replaced them already.

    Closed streams are opened on the null device, because otherwise the next file that is opened, such as the journal,
    would be taken for the stream. Characters that a terminal cannot show are replaced.
    """
    if (sys.stdin, sys.stdout, sys.stderr) != (sys.__stdin__, sys.__stdout__, sys.__stderr__):
        return
    while (fd := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(fd, True)  # noqa: FBT003 - the standard library's signature
    os.close(fd)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a descriptor for the whole process
    sys.stdout = _text(_Output(1, "wb", closefd=False), sys.stdout)
    sys.stderr = _text(_Messages(2, "wb", closefd=False), sys.stderr, line_buffering=True)


def _text(file: FileIO, before: TextIO | None, *, line_buffering: bool = False) -> TextIOWrapper:
    encoding = "utf-8" if before is None else before.encoding
    return TextIOWrapper(BufferedWriter(file), encoding, "replace", line_buffering=line_buffering or file.isatty())


def shows_all(stream: TextIO) -> bool:
    """Return whether a stream can show every character."""
    return (stream.encoding or "utf-8").lower().startswith("utf")


@contextmanager
def tolerate_closed_output(on_closed: Callable[[], None] | None = None) -> Iterator[None]:
    """Skip the rest of the block once nobody reads stdout. All later output is dropped, and ``on_closed`` is called."""
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise
        discard_output()
        if on_closed is not None:
            on_closed()


def discard_output() -> None:
    """Redirect stdout to the null device. Redirects stderr too if it goes to the same file."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    together = os.path.sameopenfile(1, 2)
    os.dup2(nowhere, 1)
    if together:
        os.dup2(nowhere, 2)
    os.close(nowhere)
