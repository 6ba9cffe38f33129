"""Bradley-Terry: the ratings that explain all games of two at once.

P(first beats second) = 1 / (1 + 10 ** (-(difference in Elo) / 400)); the ratings of most posterior probability under a
weak normal prior, with their covariance, measured from anchors. Source: R. A. Bradley and M. E. Terry, Biometrika 39
(1952), 324-345.

A draw counts as half a win. Elo is about expected scores everywhere else (``expected_score``), and half wins keep that
meaning, however draws come about; in Davidson's model the scale is that of the decided games alone, and an Elo would be
worth less the more draws there are. What half wins would get wrong, the errors, comes from the observed variance of the
scores instead (quasi-likelihood: R. W. M. Wedderburn, Biometrika 61 (1974), 439-447).
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from app.core import Elo
from app.league.newton import Floats, Point, maximise, sums
from app.league.ratings import Ratings
from app.league.scale import ANCHORS, UNKNOWN, RatingPrior, Scale
from app.league.totals import PairTotals, total


def fit_bradley_terry(
    pairs: Iterable[PairTotals],
    anchors: Mapping[str, Elo] = ANCHORS,
    prior: RatingPrior = UNKNOWN,
    agents: Iterable[str] = (),
) -> Ratings:
    """Return the ratings of all agents named in some totals, of the anchors and of others.

    The same totals give the same ratings, bit for bit, in whatever order they come; on other machines, where the
    linear algebra adds up in another order, they may differ in the last digits.

    Args:
        pairs: totals; those of the same two agents are added up.
        anchors: ratings that are given, by default that of the random bot.
        prior: of the others; agents that no games connect to an anchor keep it as their rating.
        agents: others, who may have no games.
    """
    merged = total(pairs)
    named = sorted({agent for pair in merged for agent in (pair.first, pair.second)} | {*anchors, *agents})
    scale = Scale(named, anchors, prior)
    games = _Games(merged, scale)

    def posterior(free: Floats) -> Point:
        strengths = scale.strengths(free)
        return scale.with_prior(strengths, games.likelihood(strengths))

    free, top = maximise(posterior, scale.start[scale.free])
    strengths = scale.strengths(free)
    return scale.ratings(strengths, top.curvature, games.information(strengths))


class _Games:
    """Totals as arrays [M], of agents by their numbers."""

    def __init__(self, pairs: Sequence[PairTotals], scale: Scale) -> None:
        self._first = np.array([scale.index[pair.first] for pair in pairs], dtype=np.int64)
        self._second = np.array([scale.index[pair.second] for pair in pairs], dtype=np.int64)
        self._games = np.array([pair.games for pair in pairs], dtype=np.float64)
        self._score = np.array([pair.score for pair in pairs], dtype=np.float64)
        self._dispersion = np.array([pair.dispersion for pair in pairs], dtype=np.float64)
        self._agents = len(scale.agents)
        self._sides = np.concatenate((self._first, self._second))
        turned = np.concatenate((self._second, self._first))
        self._cells = np.concatenate((self._sides * (self._agents + 1), self._sides * self._agents + turned))

    def likelihood(self, strengths: Floats) -> Point:
        """Return the logarithm of the likelihood as a function of all strengths [A]."""
        difference = strengths[self._first] - strengths[self._second]
        expected = _logistic(difference)
        lost = self._games - self._score
        value = -float(self._score @ np.logaddexp(0, -difference) + lost @ np.logaddexp(0, difference))
        surplus = self._score - self._games * expected
        gradient = sums(self._sides, np.concatenate((surplus, -surplus)), self._agents)
        return Point(value, gradient, self._laplacian(self._games * expected * (1 - expected)))

    def information(self, strengths: Floats) -> Floats:
        """Return the variance of the likelihood's gradient [A, A], draws and shared openings regarded."""
        expected = _logistic(strengths[self._first] - strengths[self._second])
        return self._laplacian(self._dispersion * self._games * expected * (1 - expected))

    def _laplacian(self, weights: Floats) -> Floats:
        both = np.concatenate((weights, weights))
        matrix = sums(self._cells, np.concatenate((both, -both)), self._agents**2)
        return matrix.reshape(self._agents, self._agents)


def _logistic(difference: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0, -difference)))
