"""The command that starts this program in another process."""

import sys


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of this program.

    Without ``-P`` Python would look into the working directory first, and would run a folder named ``app`` there.
    """
    return (sys.executable, "-P", "-m", module, *arguments)
