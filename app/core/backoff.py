"""Exponential backoff: waits that double with each failure, up to a cap."""

MOST_DOUBLINGS = 32
"""Doublings that count, because a power of a larger number would overflow."""


def backoff(first: float, longest: float, doublings: int) -> float:
    """Return ``first`` doubled ``doublings`` times, at most ``longest``; all waits in the same unit."""
    return min(longest, first * 2.0 ** min(doublings, MOST_DOUBLINGS))
