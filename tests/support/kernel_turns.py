"""Processes of one test run that compile each kernel once."""

import fcntl
from hashlib import sha256
from pathlib import Path
from typing import Any

from numba.core.dispatcher import Dispatcher


def compile_in_turns(folder: Path) -> None:
    """Let one process compile a kernel while others wait, and then load its code from the cache beside the kernel.

    The processes have ``folder`` in common. A kernel that calls others holds its lock while these are compiled. Calls
    have no cycles, so waits have none.
    """
    compile_alone = Dispatcher.compile

    def compile_in_turn(self: Any, signature: Any) -> Any:
        name = f"{self.py_func.__module__}.{self.py_func.__qualname__}{signature}"
        with (folder / sha256(name.encode()).hexdigest()).open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            return compile_alone(self, signature)

    Dispatcher.compile = compile_in_turn
