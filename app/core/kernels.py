"""Compiled kernels: numba's, for one thread, kept in a cache from start to start.

A cached kernel holds the code of the kernels it calls and the constants it reads, which may stand in other files, and
numba looks only at its own. So kernels use those of their own package alone, and the cache lies in a folder named by
the contents of all its files: changed code finds an empty one, and processes that start at once, be it in the middle
of an upgrade, never read each other's stale code.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getfile
from os import environ
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar, cast

from numba import config, njit

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_APP = Path(__file__).parents[1]


def kernel(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compile a function of numbers and arrays on its first call.

    It lets go of the interpreter's lock, divides as NumPy does, and does not check bounds unless
    ``NUMBA_BOUNDSCHECK`` is set. Where no folder can be written to, it is compiled anew by every process.
    """
    return _compiled(function, "never")


def inlined(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compile a function as a part of each kernel that calls it; see ``kernel``.

    It is for small functions of arrays. A call counts references to them, in atomic operations; and only a caller knows
    which arguments are constant tables and places, of which the compiler makes vectors.
    """
    return _compiled(function, "always")


def _compiled(
    function: Callable[_Arguments, _Result], inline: Literal["never", "always"]
) -> Callable[_Arguments, _Result]:
    given = environ.get("NUMBA_CACHE_DIR", "")
    config.CACHE_DIR = str(cache_folder(_package(Path(getfile(function))), given))  # type: ignore[attr-defined]
    try:
        compiled = njit(function, cache=True, nogil=True, error_model="numpy", inline=inline)
    except RuntimeError:  # numba found no place for its cache
        compiled = njit(function, nogil=True, error_model="numpy", inline=inline)
    return cast("Callable[_Arguments, _Result]", compiled)


@cache
def cache_folder(package: Path, given: str) -> Path:
    """Return where to keep a package's kernels: under the folder that was given, else beside its code."""
    contents = sha256()
    for source in sorted(package.rglob("*.py")):
        contents.update(source.read_bytes())
    base = Path(given) if given else package / "__pycache__"
    return base / f"kernels-{contents.hexdigest()[:16]}"


def _package(source: Path) -> Path:
    """Return the folder of a source: that of its package of ours, or the one it lies in."""
    if source.is_relative_to(_APP):
        return _APP / source.relative_to(_APP).parts[0]
    return source.parent
