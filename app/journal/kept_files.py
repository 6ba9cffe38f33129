"""Files beside a database that are kept: copies of lost ones, and files of other histories."""

import os
from itertools import count
from pathlib import Path

OTHER_HISTORY = ".other-history"
"""Suffix of files that belong to another history of the journal, and are kept for inspection."""

RESCUED = ".rescued"
"""Suffix of the copy of a database that lost its name while it was open."""


def unused_path(path: Path) -> Path:
    """Return an unused path, by adding a number if necessary."""
    numbered = (path.with_name(f"{path.name}.{number}") for number in count(2))
    return path if not path.exists() else next(candidate for candidate in numbered if not candidate.exists())


def set_aside(path: Path) -> Path:
    """Rename a file of another history; return its new path."""
    return path.rename(unused_path(path.with_name(path.name + OTHER_HISTORY)))


def rescued_copy(path: Path) -> Path | None:
    """Return the latest copy that was made of a lost database."""
    copies = path.parent.glob(f"{path.name}{RESCUED}*")
    return max(copies, key=lambda copy: copy.stat().st_mtime, default=None)


def sync(path: Path) -> None:
    """Make a file or the entries of a folder durable. Raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
