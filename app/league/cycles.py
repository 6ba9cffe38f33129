"""Cycles: three agents of which each beats the next, and how far one number per agent fails to explain the games.

A rating cannot show rock, paper, scissors. A league whose ratings rise while it runs in circles is found here.
"""

from collections.abc import Iterable, Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.core import expected_score
from app.league.ratings import Ratings
from app.league.totals import PairTotals, total


class Cycle(NamedTuple):
    """The first agent beats the second, the second the third, the third the first.

    Attributes:
        agents: all three, the one first in order of names first.
        scores: mean scores of the first against the second, the second against the third, the third against the first.
        p_value: probability that chance makes any cycle look so clear where there is none; at most this.
    """

    agents: tuple[str, str, str]
    scores: tuple[float, float, float]
    p_value: float


class Misfit(NamedTuple):
    """How badly ratings explain the games between all pairs.

    Attributes:
        chi_squared: sum over pairs of the squared surplus of the score over its variance.
        freedom: pairs less the ratings fitted to them.
        p_value: probability of so much where the ratings are all there is.
    """

    chi_squared: float
    freedom: int
    p_value: float


def find_cycle(pairs: Iterable[PairTotals], significance: float = 0.05) -> Cycle | None:
    """Return the clearest cycle, if each of its three scores is above one half beyond chance; else ``None``.

    An edge's p-value is that of Student's test of its mean score against 1/2, both sides, with the rotations as
    observations, at the variance that the null hypothesis gives it. All edges together are corrected after Holm, so
    that with probability 1 - ``significance`` no edge is wrong, and then no cycle is. Source: S. Holm, Scandinavian
    Journal of Statistics 6 (1979), 65-70.
    """
    merged = total(pairs)
    agents = sorted({agent for pair in merged for agent in (pair.first, pair.second)})
    index = {agent: number for number, agent in enumerate(agents)}
    scores, doubts = np.full((len(agents),) * 2, 0.5), np.ones((len(agents),) * 2)
    for pair, p_value in zip(merged, _corrected([_p_value(pair) for pair in merged]), strict=True):
        first, second, mean = index[pair.first], index[pair.second], pair.score / pair.games
        scores[first, second], scores[second, first] = mean, 1 - mean
        winner, loser = (first, second) if mean > 0.5 else (second, first)
        doubts[winner, loser] = p_value
    p_value, (a, b, c) = _clearest(doubts)
    if p_value > significance:
        return None
    means = (float(scores[a, b]), float(scores[b, c]), float(scores[c, a]))
    return Cycle((agents[a], agents[b], agents[c]), means, p_value)


def misfit(pairs: Iterable[PairTotals], ratings: Ratings) -> Misfit:
    """Return how badly ratings explain totals: Pearson's chi-squared. Raises ``NotRated``."""
    from scipy.special import chdtrc

    merged = total(pairs)
    surplus = [_standardised(pair, ratings) for pair in merged]
    chi_squared = float(sum(value**2 for value in surplus))
    fitted = {agent for pair in merged for agent in (pair.first, pair.second) if ratings.rating(agent).stderr > 0}
    freedom = max(0, len(merged) - len(fitted))
    return Misfit(chi_squared, freedom, float(chdtrc(freedom, chi_squared)) if freedom else 1.0)


def _standardised(pair: PairTotals, ratings: Ratings) -> float:
    expected = expected_score(ratings.difference(pair.first, pair.second).elo)
    variance = pair.dispersion * pair.games * expected * (1 - expected)
    return (pair.score - pair.games * expected) / sqrt(variance)


def _p_value(pair: PairTotals) -> float:
    """Return the p-value of a score that is not 1/2."""
    from scipy.special import stdtr

    surplus = abs(pair.score - pair.games / 2)
    return float(2 * stdtr(max(1, pair.rotations - 1), -surplus / sqrt(pair.dispersion * pair.games / 4)))


def _corrected(p_values: Sequence[float]) -> NDArray[np.float64]:
    """Return p-values that hold for all tests together, after Holm."""
    order = np.argsort(p_values, kind="stable")
    scaled = np.array(p_values)[order] * np.arange(len(p_values), 0, -1)
    corrected = np.empty(len(p_values))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled))
    return corrected


def _clearest(doubts: NDArray[np.float64]) -> tuple[float, tuple[int, int, int]]:
    """Return the cycle whose least certain edge is the most certain, and the p-value of that edge; 1 without any.

    Args:
        doubts: p-value of row beating column [A, A], 1 where it does not.
    """
    best, found = 1.0, (0, 0, 0)
    for second in range(len(doubts)):
        through = np.maximum(doubts[:, second][:, None], doubts[second][None, :])  # first beats second, second third
        edges = np.maximum(through, doubts.T)
        first, third = (int(index) for index in np.unravel_index(int(edges.argmin()), edges.shape))
        if edges[first, third] < best:
            best, found = float(edges[first, third]), (first, second, third)
    lowest = found.index(min(found))
    return best, (found[lowest], found[lowest - 2], found[lowest - 1])
