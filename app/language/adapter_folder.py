"""The folder out of which servers load adapters; processes share it.

A process holds a lock on each adapter that it uses. One that nobody holds is unloaded from all servers, and only then
deleted, because a server reads an adapter again whenever its memory was needed for another. Locks end with their
process, whatever ends it.
"""

import fcntl
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import IO

from app.core import writing
from app.language.adapters import export_adapter
from app.language.generator import Adapter

_LOCKS = ".locks"
_ALL = "all"
_DELETED = ".deleted"
_OURS = re.compile(rf"[^@]+@[0-9a-f]{{64}}(\.part|\{_DELETED})?")


class AdapterFolder:
    """Adapters as folders of PEFT, named by their hash.

    Args:
        path: the folder, which is made.
        base: what the base model is called where adapters are loaded.
    """

    def __init__(self, path: Path, base: str) -> None:
        self.path, self._base = path, base
        self._held: dict[str, IO[str]] = {}
        with writing(path):
            (path / _LOCKS).mkdir(parents=True, exist_ok=True)

    def take(self, adapter: Adapter) -> None:
        """Export an adapter unless it is there, and hold it. Raises ``UnusableFile``."""
        if adapter.name in self._held:
            return
        with self.alone():
            export_adapter(adapter, self.path, self._base)
            file = (self.path / _LOCKS / adapter.name).open("a")
            fcntl.flock(file, fcntl.LOCK_SH)
            self._held[adapter.name] = file

    def release(self, name: str) -> None:
        """Give up the hold on an adapter."""
        self._held.pop(name).close()

    def close(self) -> None:
        """Release all adapters."""
        for name in [*self._held]:
            self.release(name)

    def remove_unused(self, unload: Callable[[str], bool]) -> None:
        """Unload and delete the adapters that nobody holds any more.

        Those that nobody ever took stay, and those that a server keeps: ``unload`` returns whether none has one any
        more. Raises ``UnusableFile``.
        """
        with self.alone():
            for path in self.path.glob("*@*"):
                if (ours := _OURS.fullmatch(path.name)) is None:
                    continue
                if ours[1]:
                    rmtree(path)  # of a process that was killed while it exported or deleted
                    continue
                lock = self.path / _LOCKS / path.name
                if not lock.exists():  # somebody exported it for other purposes
                    continue
                with lock.open("a") as file, suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not unload(path.name):
                        return
                    gone = path.rename(path.with_suffix(_DELETED))  # at once, so that no half of it is ever loaded
                    rmtree(gone)
                    lock.unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from adding and deleting in the context. Raises ``UnusableFile``."""
        with writing(self.path), (self.path / _LOCKS / _ALL).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
