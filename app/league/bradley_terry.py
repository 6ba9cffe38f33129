"""Bradley-Terry: the ratings that explain all games of two at once.

P(first beats second) = 1 / (1 + 10 ** (-(difference in Elo) / 400)); the maximum a posteriori ratings under a
weak normal prior, with their covariance, measured from anchors. Source: R. A. Bradley and M. E. Terry, Biometrika 39
(1952), 324-345.

A draw counts as half a win. Elo is about expected scores everywhere else (``expected_score``), and half wins keep that
meaning, however draws come about; in Davidson's model the scale is that of the decided games alone, and an Elo would be
worth less the more draws there are. What half wins would get wrong, the errors, comes from the observed variance of the
scores instead (quasi-likelihood: R. W. M. Wedderburn, Biometrika 61 (1974), 439-447).

No number per agent explains all scores. Models learn to beat their parents in particular, and the more one-sided a pair
is, the less logistic are its scores: openings and noise keep the weaker one off 0. So a pair's true mean score may
deviate from the expected one p, with a standard deviation of m between equals (``misfit``) and m / (2 sqrt(p (1 - p)))
elsewhere. However many games were played, a pair then counts as 4 (p (1 - p) / m)² games at most: with m = 0.03 as 278
between equals, 114 at a score of 80%, 36 at 90%, 10 at 95%. Source of such weights: D. A. Williams, Applied Statistics
31 (1982), 144-148. Where scores deviate by more still, all errors grow by the square root of chi-squared over its
degrees of freedom (R. T. Birge, Physical Review 40 (1932), 207-227).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np
from numpy.typing import NDArray

from app.core import Elo
from app.league.newton import Floats, Point, maximise, sums
from app.league.ratings import Ratings
from app.league.scale import ANCHORS, PER_ELO, UNKNOWN, RatingPrior, Scale
from app.league.totals import PairTotals, total

Indices = NDArray[np.int64]

TELLING = 0.09
"""p (1 - p) at a score of 90%; pairs below it are too one-sided for the chi-squared test."""

LEAST_VARIANCE = 1e-6

ROUNDS = 100
SETTLED = 0.001 * PER_ELO
"""Largest change of a strength at convergence; a pair's weight depends on the strengths."""


def fit_bradley_terry(
    pairs: Iterable[PairTotals],
    anchors: Mapping[str, Elo] = ANCHORS,
    prior: RatingPrior = UNKNOWN,
    agents: Iterable[str] = (),
    misfit: float = 0.0,
) -> Ratings:
    """Return the ratings of all agents named in some totals, of the anchors and of others.

    The same totals give the same ratings, bit for bit, in whatever order they come; on other machines, where the
    linear algebra adds up in another order, they may differ in the last digits.

    Args:
        pairs: totals; those of the same two agents are added up.
        anchors: ratings that are given, by default that of the random bot.
        prior: of the others; agents that no games connect to an anchor keep it as their rating.
        agents: others, who may have no games.
        misfit: standard deviation of the true mean score of two equals about 1/2.
    """
    merged = total(pairs)
    named = sorted({agent for pair in merged for agent in (pair.first, pair.second)} | {*anchors, *agents})
    scale = Scale(named, anchors, prior)
    games, free = _Games.of(merged, scale), scale.start[scale.free]
    for _ in range(ROUNDS):
        counted, before = games.counted(scale.strengths(free), misfit), free
        free, top = maximise(partial(_posterior, scale, counted), before)
        if np.all(np.abs(free - before) <= SETTLED):
            break
    strengths = scale.strengths(free)
    information = counted.information(strengths) * games.excess(strengths, misfit)
    return scale.ratings(strengths, top.curvature, information)


def _posterior(scale: Scale, games: "_Games", free: Floats) -> Point:
    strengths = scale.strengths(free)
    return scale.with_prior(strengths, games.likelihood(strengths))


@dataclass(frozen=True, eq=False)
class _Games:
    """Totals of M pairs of A agents, who are numbered.

    Attributes:
        first: [M].
        second: [M].
        games: [M].
        score: of the first agent [M].
        dispersion: variance of the score, as a multiple of that of independent games without draws [M].
        agents: A.
    """

    first: Indices
    second: Indices
    games: Floats
    score: Floats
    dispersion: Floats
    agents: int

    @classmethod
    def of(cls, pairs: Sequence[PairTotals], scale: Scale) -> Self:
        return cls(
            first=np.array([scale.index[pair.first] for pair in pairs], dtype=np.int64),
            second=np.array([scale.index[pair.second] for pair in pairs], dtype=np.int64),
            games=np.array([pair.games for pair in pairs], dtype=np.float64),
            score=np.array([pair.score for pair in pairs], dtype=np.float64),
            dispersion=np.array([pair.dispersion for pair in pairs], dtype=np.float64),
            agents=len(scale.agents),
        )

    @cached_property
    def sides(self) -> Indices:
        """Both agents of all pairs [2 M]."""
        return np.concatenate((self.first, self.second))

    @cached_property
    def cells(self) -> Indices:
        """Flat indices of the pairs in a matrix of agents: diagonal, then opponents [4 M]."""
        turned = np.concatenate((self.second, self.first))
        return np.concatenate((self.sides * (self.agents + 1), self.sides * self.agents + turned))

    def counted(self, strengths: Floats, misfit: float) -> Self:
        """Return the games with each pair's number reduced by the misfit."""
        share = 1 / (1 + self.games * self._misfit(strengths, misfit) / self._variance(strengths))
        return replace(self, games=share * self.games, score=share * self.score)

    def excess(self, strengths: Floats, misfit: float) -> float:
        """Return chi-squared over its degrees of freedom, given the misfit; at least 1."""
        if not misfit:
            return 1.0
        expected = self._expected(strengths)
        variance = self._variance(strengths) / self.games + self._misfit(strengths, misfit)
        squared = (self.score / self.games - expected) ** 2 / variance
        telling = expected * (1 - expected) >= TELLING
        freedom = int(telling.sum()) - len(np.union1d(self.first[telling], self.second[telling]))
        return max(1.0, float(squared[telling].sum()) / freedom) if freedom > 0 else 1.0

    def likelihood(self, strengths: Floats) -> Point:
        """Return the logarithm of the likelihood as a function of all strengths [A]."""
        difference = strengths[self.first] - strengths[self.second]
        expected = _logistic(difference)
        lost = self.games - self.score
        value = -float(self.score @ np.logaddexp(0, -difference) + lost @ np.logaddexp(0, difference))
        surplus = self.score - self.games * expected
        gradient = sums(self.sides, np.concatenate((surplus, -surplus)), self.agents)
        return Point(value, gradient, self._laplacian(self.games * expected * (1 - expected)))

    def information(self, strengths: Floats) -> Floats:
        """Return the variance of the likelihood's gradient [A, A], draws and shared openings regarded."""
        expected = self._expected(strengths)
        return self._laplacian(self.dispersion * self.games * expected * (1 - expected))

    def _expected(self, strengths: Floats) -> Floats:
        return _logistic(strengths[self.first] - strengths[self.second])

    def _variance(self, strengths: Floats) -> Floats:
        """Return the variance of one game's score in each pair [M], off 0."""
        expected = self._expected(strengths)
        return np.asarray(np.maximum(self.dispersion * expected * (1 - expected), LEAST_VARIANCE))

    def _misfit(self, strengths: Floats, misfit: float) -> Floats:
        """Return the variance of each pair's true mean score [M]."""
        expected = self._expected(strengths)
        return np.asarray(misfit**2 / np.maximum(4 * expected * (1 - expected), LEAST_VARIANCE))

    def _laplacian(self, weights: Floats) -> Floats:
        both = np.concatenate((weights, weights))
        matrix = sums(self.cells, np.concatenate((both, -both)), self.agents**2)
        return matrix.reshape(self.agents, self.agents)


def _logistic(difference: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0, -difference)))
