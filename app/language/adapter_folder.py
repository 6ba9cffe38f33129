"""Folder from which servers load adapters, shared by processes.

A process locks each adapter that it uses. An adapter without a lock is unloaded from all servers before it is deleted,
because a server that evicted an adapter reads it from the folder again. Locks end with their process, whatever ends it.
"""

import fcntl
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from shutil import rmtree
from typing import IO

from flyball.app.core import writing
from flyball.app.language.adapters import export_adapter
from flyball.app.language.generator import Adapter

_LOCKS = ".locks"
_ALL = "all"
_DELETED = ".deleted"
_OURS = re.compile(rf"[^@]+@[0-9a-f]{{64}}(\.part|\{_DELETED})?")


class AdapterFolder:
    """Adapters as PEFT folders, each named by its configuration and hash.

    Args:
        path: the folder, created if it is missing.
        base: the base model's name or folder where adapters are loaded.
    """

    def __init__(self, path: Path, base: str) -> None:
        self.path, self._base = path, base
        self._locks: dict[str, IO[str]] = {}
        with writing(path):
            (path / _LOCKS).mkdir(parents=True, exist_ok=True)

    def take(self, adapter: Adapter) -> None:
        """Export an adapter if it is missing, and lock it. Raises ``UnusableFile``."""
        if adapter.name in self._locks:
            return
        with self.alone():
            export_adapter(adapter, self.path, self._base)
            file = (self.path / _LOCKS / adapter.name).open("a")
            fcntl.flock(file, fcntl.LOCK_SH)
            self._locks[adapter.name] = file

    def release(self, name: str) -> None:
        """Release the lock on an adapter."""
        self._locks.pop(name).close()

    def close(self) -> None:
        """Release the locks on all adapters."""
        for name in [*self._locks]:
            self.release(name)

    def remove_unused(self, unload: Callable[[str], bool]) -> None:
        """Unload and delete the adapters that no process uses any more.

        Adapters that no process ever took stay. ``unload`` unloads an adapter by its name, and returns whether no
        server has it any more; the removal stops at the first adapter that a server keeps. Raises ``UnusableFile``.
        """
        with self.alone():
            for path in self.path.glob("*@*"):
                if (ours := _OURS.fullmatch(path.name)) is None:
                    continue
                if ours[1]:
                    rmtree(path)  # left by a process that was killed while exporting or deleting
                    continue
                lock = self.path / _LOCKS / path.name
                if not lock.exists():  # no process took it: it was exported for another purpose
                    continue
                with lock.open("a") as file, suppress(BlockingIOError):
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    if not unload(path.name):
                        return
                    doomed = path.rename(path.with_suffix(_DELETED))  # atomic, so that no server loads a part of it
                    rmtree(doomed)
                    lock.unlink()

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other processes from adding and deleting adapters in the context. Raises ``UnusableFile``."""
        with writing(self.path), (self.path / _LOCKS / _ALL).open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield
