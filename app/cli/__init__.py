"""The command ``flyball``. Each command is imported only when used, so ``flyball --help`` loads click alone."""

from flyball.app.cli.group import main

__all__ = ["main"]
