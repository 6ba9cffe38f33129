"""The command ``flyball``. Commands are imported when they are used: ``flyball --help`` loads click alone."""

from app.cli.group import main

__all__ = ["main"]
