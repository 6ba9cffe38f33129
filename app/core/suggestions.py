"""Suggestions for names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str]) -> str | None:
    """Return the nearest of ``names``; None if none resembles ``name``."""
    return next(iter(get_close_matches(name, sorted(names), n=1)), None)


def suggest(name: str, names: Iterable[str], otherwise: str = "There are: ") -> str:
    """Return a hint for an unknown name: the nearest of ``names``, or else all of them after ``otherwise``."""
    known = sorted(names)
    near = nearest(name, known)
    return f"Did you mean {near}?" if near else f"{otherwise}{', '.join(known) or 'none'}."
