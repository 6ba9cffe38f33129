"""Objects under names of their own, in a folder or by URL.

All methods raise ``UnusableStore``, ``StoreRefused`` or ``StoreUnavailable``.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from flyball.app.config.store_address import StoreAddress
from flyball.app.core.named_objects import NamedObjects
from flyball.app.store.blobs import flush_folder, replace_durably
from flyball.app.store.objects import RemoteFiles, StoreUnavailable, UnusableStore

UNFINISHED = "unfinished"
"""Folder beside the objects of a folder, for those that are being written."""


class FolderObjects:
    """Objects as files in a folder, which has to exist: a missing one is most often an unmounted disk.

    Args:
        root: the folder.
        setting: that names it, for the hints of errors.
    """

    def __init__(self, root: str | Path, setting: str) -> None:
        self._root, self._setting = Path(root), setting

    def names(self, prefix: str) -> list[str]:
        """See ``NamedObjects.names``."""
        with self._errors():
            folders = os.walk(self._root / prefix, onerror=_raise_unless_missing)
            files = (Path(folder, name) for folder, _, names in folders for name in names)
            return [path.relative_to(self._root).as_posix() for path in files]

    def put(self, name: str, data: bytes) -> None:
        """See ``NamedObjects.put``."""
        path, aside = self._root / name, self._root / UNFINISHED
        with self._errors():
            aside.mkdir(exist_ok=True)
            for folder in reversed(path.relative_to(self._root).parents):
                if folder.name and not (self._root / folder).is_dir():
                    (self._root / folder).mkdir(exist_ok=True)
                    flush_folder((self._root / folder).parent)
            replace_durably(path, data, aside)

    def get(self, name: str) -> bytes | None:
        """See ``NamedObjects.get``."""
        with self._errors():
            try:
                return (self._root / name).read_bytes()
            except FileNotFoundError:
                return None

    def delete(self, name: str) -> None:
        """See ``NamedObjects.delete``."""
        with self._errors():
            (self._root / name).unlink(missing_ok=True)

    @contextmanager
    def _errors(self) -> Iterator[None]:
        if not self._root.is_dir():
            hint = f"Mount it, or make it, or correct {self._setting}."
            raise UnusableStore(f"There is no folder {self._root}.", hint=hint)
        try:
            yield
        except OSError as error:
            hint = "Look at its owner, mode and disk."
            raise StoreUnavailable(f"{self._root} cannot be used: {error}.", hint=hint) from error


def _raise_unless_missing(error: OSError) -> None:
    """Refuse a folder that cannot be read, because otherwise its objects would count as lost."""
    if not isinstance(error, FileNotFoundError):
        raise error


class UrlObjects(RemoteFiles):
    """Objects in an object store; see ``RemoteFiles``."""

    def names(self, prefix: str) -> list[str]:
        """See ``NamedObjects.names``."""
        root = f"{self._stripped}/"
        try:
            paths = self._with_retries(lambda files: files.find(f"{root}{prefix}"))
        except FileNotFoundError:
            return []
        return [name for path in paths if (name := path.removeprefix(root)).startswith(f"{prefix}/")]

    def put(self, name: str, data: bytes) -> None:
        """See ``NamedObjects.put``."""
        self._send(self._path(name), data)

    def get(self, name: str) -> bytes | None:
        """See ``NamedObjects.get``."""
        try:
            data: bytes = self._with_retries(lambda files: files.cat_file(self._path(name)))
        except FileNotFoundError:
            return None
        return data

    def delete(self, name: str) -> None:
        """See ``NamedObjects.delete``."""
        self._remove(self._path(name))

    def _path(self, name: str) -> str:
        return f"{self._address.root}/{name}"


def open_objects(name: str, setting: str, pauses: Sequence[float] = ()) -> NamedObjects:
    """Return the objects at a folder or URL.

    Args:
        name: the folder or URL.
        setting: that names it, for the hints of errors.
        pauses: seconds between attempts at a request to a server.

    Raises ``UnusableStore``.
    """
    try:
        address = StoreAddress.parse(name)
    except ValueError as error:
        raise UnusableStore(f"{name} cannot be opened: {error}.", hint=f"Correct {setting}.") from error
    if address.is_folder:
        return FolderObjects(address.root, setting)
    return UrlObjects(address, pauses, setting=setting)
