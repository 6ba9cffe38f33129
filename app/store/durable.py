"""Files that are there whole or not at all, whatever dies in between."""

import os
import tempfile
from pathlib import Path


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
