"""User-defined objects, named 'package.module:name' or by an entry point."""

import sys
from collections.abc import Iterable
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from flyball.app.core.errors import FlyballError
from flyball.app.core.suggestions import suggest

ALIKE = 0.85
"""Similarity from which a name counts as misspelt: that of ``heuristics`` and ``heuristic`` is 0.95."""


FORMER_PACKAGES = ("app", "daemons")
"""Names that ``flyball.app`` and ``flyball.daemons`` had at the top level, and that old settings may hold."""


class UnknownPlugin(FlyballError, code="usage"):
    """A user-defined object that is unknown or cannot be imported."""


def allow_modules_in(folder: Path) -> None:
    """Let modules in a folder be imported. Modules of Flyball and of installed packages take precedence."""
    path = str(folder.absolute())
    if path not in sys.path:
        sys.path.append(path)


def current_name(module: str) -> str:
    """Return the module's name, or its present one if it is a former name of a module of Flyball.

    A module of the user's own that has the name takes precedence.
    """
    current = f"flyball.{module}"
    is_former = module.partition(".")[0] in FORMER_PACKAGES and not _exists(module) and _exists(current)
    return current if is_former else module


def _exists(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ImportError:
        return False


def import_modules(names: Iterable[str]) -> None:
    """Import modules for what they register. Raises ``UnknownPlugin``."""
    for name in names:
        try:
            import_module(current_name(name))
        except Exception as error:  # a module of the user's may raise anything
            raise UnknownPlugin(
                f"The module {name!r} cannot be imported: {type(error).__name__}: {error}.",
                hint="Look at the setting import. The module has to be installed, or lie beside flyball.toml.",
            ) from error


def load_plugin(group: str, name: str, ours: Iterable[str] = ()) -> Any:
    """Return the object called ``name``: 'package.module:attribute', or an entry point of ``group``.

    ``ours`` are the names of built-in objects, which the error lists beside the entry points. Raises ``UnknownPlugin``.
    """
    module, colon, attribute = name.partition(":")
    entries = {} if colon else {point.name: point for point in entry_points(group=group)}  # takes 10 ms
    if not colon and name not in entries:
        hint = f"{suggest(name, {*ours, *entries})} One of your own is written package.module:name, or is an"
        raise UnknownPlugin(
            f"There is no {name!r} among the {group.replace('.', ' ')}.", hint=f"{hint} entry point of {group}."
        )
    try:
        return getattr(import_module(current_name(module)), attribute) if colon else entries[name].load()
    except Exception as error:  # a module of the user's may raise anything
        raise UnknownPlugin(
            f"{name!r} cannot be imported: {type(error).__name__}: {error}.",
            hint="Write package.module:name. The module has to be installed, or lie beside flyball.toml.",
        ) from error


def misspelt(plugin: Any, base: type, others: Iterable[str] = ()) -> tuple[str, str] | None:
    """Return a misspelt attribute of a user's class or object, and ours.

    Ours are the public attributes of ``base``, and ``others``. An attribute counts as misspelt if it resembles one of
    ours that the user's class lacks; otherwise the similar name is an addition. None if no attribute looks misspelt.
    """
    classes = plugin.__mro__ if isinstance(plugin, type) else type(plugin).__mro__
    ours = {*dir(base), *others}.union(*(vars(cls).get("__annotations__", ()) for cls in base.__mro__))
    theirs = [cls for cls in classes if cls not in base.__mro__ and not cls.__module__.startswith("flyball.")]
    names = {name for cls in theirs for name in vars(cls)} | set(
        () if isinstance(plugin, type) else getattr(plugin, "__dict__", ())
    )
    absent = sorted(name for name in ours - names if not name.startswith("_"))
    for name in sorted(names - ours):
        near = [] if name.startswith("_") else get_close_matches(name, absent, n=1, cutoff=ALIKE)
        if near:
            return name, near[0]
    return None


def misspelling_hint(theirs: str, ours: str) -> str:
    """Return the hint for an attribute that looks misspelt."""
    return f"Did you mean {ours}? An attribute of your own needs another name, for instance _{theirs}."
