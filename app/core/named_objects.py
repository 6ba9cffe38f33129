"""The port to objects that have names, such as the shipped parts of a journal."""

from typing import Protocol


class NamedObjects(Protocol):
    """Objects by name, in a folder or an object store.

    Names are relative paths of letters, digits, ``-``, ``_`` and ``.``. An object appears whole or not at all. All
    methods may raise ``FlyballError``.
    """

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with ``prefix`` and a slash, in no particular order."""

    def put(self, name: str, data: bytes) -> None:
        """Write an object durably. It replaces an earlier one of this name."""

    def get(self, name: str) -> bytes | None:
        """Return an object's content; None without such an object."""

    def delete(self, name: str) -> None:
        """Delete an object, if it is there."""
