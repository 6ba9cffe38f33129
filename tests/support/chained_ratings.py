"""Ratings in a chain, each relative to earlier ratings: what the fit of a pool is compared with."""

from collections.abc import Sequence
from math import hypot, sqrt
from typing import NamedTuple

from flyball.app.core import Elo, expected_score
from flyball.app.core.statistics import CERTAIN_ELO
from flyball.app.league.ratings import PER_ELO, UNKNOWN, Estimate, RatingPrior

BISECTIONS = 60  # halvings of 20,000 Elo: the remaining width is below 1e-13


class OpponentScore(NamedTuple):
    """Result of a match, with the opponent's rating."""

    elo: Elo  # the opponent's
    score: float  # mean score in [0, 1]
    games: float
    stderr: float = 0.0  # of the opponent's rating; the random bot's is 0 by definition


def performance_rating(results: Sequence[OpponentScore], prior: RatingPrior = UNKNOWN) -> Estimate:
    """Return the maximum a posteriori rating against opponents of known ratings.

    The likelihood is logistic (Bradley and Terry 1952, in one dimension); the prior keeps a perfect score finite. The
    standard error is the root of the sum of squares of

    - 1 / sqrt(Fisher information), the prior's included; a draw is half a win, which overstates this term;
    - the opponents' errors, weighted by their shares of the information. They are taken as fully correlated, because
      opponents are mostly ancestors of each other: a rating far along a chain is as uncertain as the chain.
    """
    low, high = -CERTAIN_ELO, CERTAIN_ELO
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        slope = sum(n * (score - expected_score(middle - elo)) for elo, score, n, _ in results) * PER_ELO
        if slope > (middle - prior.mean) / prior.deviation**2:
            low = middle
        else:
            high = middle
    rating = (low + high) / 2
    chances = [(match.games, expected_score(rating - match.elo)) for match in results]
    parts = [n * p * (1 - p) * PER_ELO**2 for n, p in chances]
    information = sum(parts) + 1 / prior.deviation**2
    inherited = sum(part * match.stderr for part, match in zip(parts, results, strict=True)) / information
    return Estimate(Elo(rating), hypot(1 / sqrt(information), inherited))
