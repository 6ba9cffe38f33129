"""The one root of all errors that Flyball raises on purpose, and what becomes of those of files."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path


class FlyballError(Exception):
    """An error a reader can act on.

    Args:
        message: what happened, in one sentence.
        hint: what the reader should do about it.
    """

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()


class UnusableFile(FlyballError):
    """A file or folder that somebody named: it is missing, cannot be read or written, or holds something else."""


def reading(path: Path) -> AbstractContextManager[None]:
    """Read a file that somebody named. Raises ``UnusableFile`` where the system does not let it be read."""
    return _usable(path, "read", "Look at its name and mode.")


def writing(path: Path) -> AbstractContextManager[None]:
    """Write a file that somebody named. Raises ``UnusableFile`` where the system does not let it be written."""
    return _usable(path, "written", "Choose another place.")


@contextmanager
def _usable(path: Path, what: str, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnusableFile(f"{path} cannot be {what}: {error.strerror or error}.", hint=hint) from error
