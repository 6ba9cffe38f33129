"""Processes of one test run that compile each kernel once."""

import fcntl
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.compiler_lock import global_compiler_lock
from numba.core.dispatcher import Dispatcher


def compile_in_turns(folder: Path) -> None:
    """Let one process compile a kernel while others wait, and then load its code from the cache beside the kernel.

    The processes have ``folder`` in common. A kernel that calls others holds its lock while these are compiled. Only
    calls of itself have a cycle, and they do not lock again. Threads of a process compile one after the other anyway.
    """
    compile_alone, compiling = Dispatcher.compile, set[str]()

    def compile_in_turn(self: Any, signature: Any) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}{signature}"
        with global_compiler_lock:
            if name in compiling:
                return compile_alone(self, signature)
            with (folder / sha256(name.encode()).hexdigest()).open("w") as lock:
                fcntl.flock(lock, fcntl.LOCK_EX)
                compiling.add(name)
                try:
                    return compile_alone(self, signature)
                finally:
                    compiling.remove(name)

    Dispatcher.compile = compile_in_turn
