"""The choices that a ranking with ties is made of."""

from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import comb

import numpy as np
from numpy.typing import NDArray

from app.league.newton import Floats


@dataclass(frozen=True, slots=True, eq=False)
class Choices:
    """The sets of seats that were still without a place when one was given out, over all orders of tied seats.

    Without ties there are as many as seats. A group of m tied seats has 2 ** m - 1 instead of m: in each of its orders
    m of them occur.

    Attributes:
        members: [K, P] which seats each set has; seats are in the order of their places.
        shares: [K] of the orders in which a set occurs.
        covariance: [K, K] of the sets' occurrences, in a random order.
    """

    members: NDArray[np.bool_]
    shares: Floats
    covariance: Floats

    def chances(self, strengths: Floats) -> tuple[Floats, Floats]:
        """Return each seat's chance to be chosen from each set [G, K, P], and the log of the sets' strengths [G, K].

        Args:
            strengths: logarithms, of each seat in each game [G, P].
        """
        there = np.where(self.members, strengths[:, None, :], -np.inf)
        highest = there.max(axis=2, keepdims=True)
        powers = np.exp(there - highest)
        sums = powers.sum(axis=2, keepdims=True)
        return powers / sums, (highest + np.log(sums))[:, :, 0]


@cache
def choices_of(sizes: tuple[int, ...]) -> Choices:
    """Return the choices of a ranking whose places, first to last, are shared by so many seats each."""
    sets: list[tuple[int, frozenset[int], frozenset[int]]] = []  # its group, who of it is left, all who are left
    begin = 0
    for group, size in enumerate(sizes):
        later = frozenset(range(begin + size, sum(sizes)))
        tied = range(begin, begin + size)
        for count in range(1, size + 1):
            sets += [(group, frozenset(some), later.union(some)) for some in combinations(tied, count)]
        begin += size
    shares = np.array([1 / comb(sizes[group], len(left)) for group, left, _ in sets])
    together = np.outer(shares, shares)  # groups are ordered independently
    for row, (group, left, _) in enumerate(sets):
        for column, (other, fewer, _) in enumerate(sets):
            if group == other:
                together[row, column] = _together(sizes[group], left, fewer)
    members = np.array([[seat in remaining for seat in range(sum(sizes))] for _, _, remaining in sets])
    return Choices(members, shares, together - np.outer(shares, shares))


def _together(size: int, left: frozenset[int], fewer: frozenset[int]) -> float:
    """Return in which share of the orders of ``size`` seats both sets are at some time those that are left."""
    small, large = sorted((left, fewer), key=len)
    if not small <= large:
        return 0.0
    return 1 / (comb(size, len(large)) * comb(len(large), len(small)))
