"""How this program starts itself in another process."""

import sys


def python_module(module: str, *arguments: str) -> tuple[str, ...]:
    """Return the command that runs a module of this program.

    Without ``-P`` Python would look into the working directory first, and a folder there that happens to be named
    ``app`` would be run in place of ours.
    """
    return (sys.executable, "-P", "-m", module, *arguments)
