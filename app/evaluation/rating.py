"""Performance rating: the strength that explains a gauntlet best."""

from collections.abc import Sequence
from math import hypot, log, sqrt
from typing import NamedTuple

from app.core import Elo

PER_ELO = log(10) / 400
"""A difference of 400 Elo means odds of 10 to 1."""

_BOUND = 10_000.0  # no rating lies outside; the prior keeps it far from here
_ITERATIONS = 60  # bisections: the interval of 20,000 Elo shrinks below 1e-13


class OpponentScore(NamedTuple):
    """How a match went, for the rating."""

    elo: Elo
    score: float
    """Mean score in [0, 1]."""
    games: int
    stderr: float = 0.0
    """Standard error of the opponent's own rating; the random bot's is 0 by definition."""


class Prior(NamedTuple):
    """Prior of a rating: a normal distribution."""

    mean: Elo = Elo(0.0)
    deviation: float = 800.0


def performance_rating(results: Sequence[OpponentScore], prior: Prior | None = None) -> tuple[Elo, float]:
    """Return the rating of most posterior probability, and its standard error.

    The likelihood is the logistic model's with the opponents' ratings taken as known (maximum likelihood in one
    dimension, Bradley and Terry 1952); the weak prior keeps a perfect score finite. The standard error adds up

    - 1 / sqrt(Fisher information), the prior's included; a draw is half a win, which overstates it;
    - the errors of the opponents' ratings, each by its share of the information. They are taken as fully correlated,
      for opponents are mostly ancestors of each other: a rating far along a chain is as uncertain as the chain.

    Args:
        results: (opponent's elo, mean score, games, opponent's stderr) of each match; none leaves the prior.
        prior: by default 0 ± 800 Elo, worth about a fifth of a game against an equal.
    """
    mean, deviation = prior or Prior()
    low, high = -_BOUND, _BOUND
    for _ in range(_ITERATIONS):
        middle = (low + high) / 2
        slope = sum(n * (score - _expected(middle - elo)) for elo, score, n, _ in results) * PER_ELO
        if slope > (middle - mean) / deviation**2:
            low = middle
        else:
            high = middle
    rating = (low + high) / 2
    parts = [n * p * (1 - p) * PER_ELO**2 for p, n in ((_expected(rating - elo), n) for elo, _, n, _ in results)]
    information = sum(parts) + 1 / deviation**2
    inherited = sum(part * match.stderr for part, match in zip(parts, results, strict=True)) / information
    return Elo(rating), hypot(1 / sqrt(information), inherited)


def _expected(difference: float) -> float:
    return float(1 / (1 + 10 ** (-difference / 400)))
