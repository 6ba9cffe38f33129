"""Numba kernels for one thread, compiled once and cached on disk.

A cached kernel includes the kernels that it calls and the constants that it reads, some of them from other files. But
numba checks only the kernel's own file for changes. So kernels call only kernels of their own package, and a hash of
all the package's files names the cache folder. Changed code starts with an empty cache, and processes that start during
an upgrade never read each other's stale code.
"""

from collections.abc import Callable
from functools import cache
from hashlib import sha256
from inspect import getfile
from os import environ
from pathlib import Path
from typing import Literal, ParamSpec, TypeVar, cast

from numba import config, njit
from numba.core.registry import cpu_target

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")
_APP = Path(__file__).parents[1]


def kernel(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compile a function of numbers and arrays on its first call.

    It releases the GIL, divides as NumPy does, and checks bounds only if ``NUMBA_BOUNDSCHECK`` is set. Without a
    writable cache folder, every process compiles it again.
    """
    return _compiled(function, "never")


def inlined(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Compile a function into each kernel that calls it; see ``kernel``.

    Use this for small functions of arrays, because a call would count references with atomic operations. The compiler
    then also sees which tables and indices are constant, so that it can vectorise.
    """
    return _compiled(function, "always")


def _compiled(
    function: Callable[_Arguments, _Result], inline: Literal["never", "always"]
) -> Callable[_Arguments, _Result]:
    parent = environ.get("NUMBA_CACHE_DIR", "")
    config.CACHE_DIR = str(cache_folder(_package(Path(getfile(function))), parent))  # type: ignore[attr-defined]
    try:
        compiled = njit(function, cache=True, nogil=True, error_model="numpy", inline=inline)
    except RuntimeError:  # numba found no writable folder
        compiled = njit(function, nogil=True, error_model="numpy", inline=inline)
    return cast("Callable[_Arguments, _Result]", compiled)


@cache
def cache_folder(package: Path, parent: str) -> Path:
    """Return the folder for a package's kernels: in ``parent`` if that is set, otherwise beside the code."""
    contents = sha256()
    for source in sorted(package.rglob("*.py")):
        contents.update(source.read_bytes())
    base = Path(parent) if parent else package / "__pycache__"
    return base / f"kernels-{contents.hexdigest()[:16]}"


def _package(source: Path) -> Path:
    """Return the top-level package in ``app`` of a source file, or its own folder if it lies outside of ``app``."""
    if source.is_relative_to(_APP):
        return _APP / source.relative_to(_APP).parts[0]
    return source.parent


def load_compiler() -> None:
    """Load what numba otherwise loads at a process's first kernel: 0.3 s and 25 MB, which forks share."""
    cpu_target.typing_context.refresh()
    cpu_target.target_context.refresh()
