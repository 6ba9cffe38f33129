"""Suggestions for names that do not exist."""

from collections.abc import Iterable
from difflib import get_close_matches


def suggest(name: str, names: Iterable[str], otherwise: str = "There are: ") -> str:
    """Return a hint for an unknown name: the nearest of ``names``, or else all of them after ``otherwise``."""
    known = sorted(names)
    near = get_close_matches(name, known, n=1)
    return f"Did you mean {near[0]}?" if near else f"{otherwise}{', '.join(known) or 'none'}."
