"""Errors that Flyball raises on purpose, and faults that its checks report."""

import copyreg
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from traceback import extract_tb
from typing import Any


class FlyballError(Exception):
    """An error a reader can act on.

    Programs decide by its ``code``, which also crosses processes. A class names its code as a class argument, and its
    subclasses inherit it.

    Args:
        message: what happened, in one sentence.
        hint: what the reader should do about it.
        code: another code than the class's.
    """

    code = "failed"

    def __init_subclass__(cls, *, code: str = "") -> None:
        """Set the code of a class."""
        super().__init_subclass__()
        cls.code = code or cls.code

    def __init__(self, message: str, *, hint: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message, self.hint, self.code = message, hint, code or self.code

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        # Without calling the constructor, because those of subclasses take other arguments.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]


def located(error: Exception) -> str:
    """Return an exception's text and the place where it was raised.

    The place is the file and line of the raising function. No place is given for a ``FlyballError``, whose message is
    for the reader of settings, nor for a call that failed in the frame that caught the exception, such as one with too
    few arguments.
    """
    frames = extract_tb(error.__traceback__)
    if isinstance(error, FlyballError) or len(frames) < 2:
        return str(error)
    return f"{error} ({Path(frames[-1].filename).name}, line {frames[-1].lineno})"


@dataclass(frozen=True, slots=True)
class Finding:
    """A fault that a check found.

    Attributes:
        where: the place of the fault.
        what: what is wrong.
        hint: what to do about it.
    """

    where: str
    what: str
    hint: str


class BadUsage(FlyballError, code="usage"):
    """Arguments that do not fit together, or that name nothing."""


class UnusableFile(FlyballError, code="usage"):
    """A named file or folder that is missing, cannot be read or written, or holds something else."""


def reading(path: Path) -> AbstractContextManager[None]:
    """Turn an ``OSError`` while reading a file into ``UnusableFile``."""
    return _usable(path, "read", "Look at its name and mode.")


def writing(path: Path) -> AbstractContextManager[None]:
    """Turn an ``OSError`` while writing a file into ``UnusableFile``."""
    return _usable(path, "written", "Choose another place.")


@contextmanager
def _usable(path: Path, what: str, hint: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnusableFile(f"{path} cannot be {what}: {error.strerror or error}.", hint=hint) from error
