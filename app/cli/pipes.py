"""Output whose reader has gone: ``flyball tail | head -1``, a terminal that was closed."""

import errno
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

GONE = (errno.EPIPE, errno.EIO)
"""Errors of writing to a closed pipe or terminal."""


@contextmanager
def though_unread(tell: Callable[[], None] | None = None) -> Iterator[None]:
    """Within it, nobody reading on is no error: the rest of the block is left out, and so is all further output.

    Args:
        tell: called when that has happened.
    """
    try:
        yield
        sys.stdout.flush()
    except OSError as error:
        if error.errno not in GONE:
            raise
        forget_output()
        if tell is not None:
            tell()


def forget_output() -> None:
    """Let stdout, and stderr if it goes the same way, lead nowhere from now on."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    together = os.path.sameopenfile(1, 2)
    os.dup2(nowhere, 1)
    if together:
        os.dup2(nowhere, 2)
    os.close(nowhere)
