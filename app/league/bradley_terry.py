"""Bradley-Terry: the ratings that explain all games of two agents at once.

P(first beats second) = 1 / (1 + 10 ** (-(difference in Elo) / 400)). The fit returns the maximum a posteriori ratings
under a weak normal prior, with their covariance, measured from anchors. Source: R. A. Bradley and M. E. Terry,
Biometrika 39 (1952), 324-345.

A draw counts as half a win, because Elo means an expected score everywhere else (``expected_score``), and half wins
keep that meaning at any share of draws. Davidson's model scales by the decided games alone, so that an Elo would be
worth less with more draws. Half wins would misstate the errors, so these come from the observed variance of the scores
(quasi-likelihood: R. W. M. Wedderburn, Biometrika 61 (1974), 439-447).

One number per agent cannot explain all scores. Models learn to beat their parents in particular, and openings and noise
keep the weaker side of a one-sided pair off 0. So a pair's true mean score may deviate from the expected score p. The
standard deviation is m (``misfit``) between equals and m / (2 sqrt(p (1 - p))) elsewhere. A pair then counts as at most
4 (p (1 - p) / m)² games, however many were played: for m = 0.03 as 278 between equals, 114 at a score of 80%, 36 at
90%, 10 at 95%. Source of such weights: D. A. Williams, Applied Statistics 31 (1982), 144-148. If scores deviate even
more, all errors grow by the square root of chi-squared over its degrees of freedom (R. T. Birge, Physical Review 40
(1932), 207-227).
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import RANDOM, Elo, FlyballError
from flyball.app.league.ratings import PER_ELO, UNKNOWN, Floats, RatingPrior, Ratings
from flyball.app.league.totals import PairTotals, total

ANCHORS: Mapping[str, Elo] = MappingProxyType({RANDOM: Elo(0.0)})  # zero of all ratings

ONE_SIDED = 0.09  # p (1 - p) at a score of 90%; pairs below it are too one-sided for the chi-squared test
LEAST_VARIANCE = 1e-6

ROUNDS = 100
UNDAMPED_ROUNDS = 30  # later rounds go half the way; few fits need more than ten, but very one-sided ones swing
SETTLED = 0.001 * PER_ELO  # largest change of a strength at convergence; a pair's weight depends on the strengths

NEWTON_STEPS = 100
TOLERANCE = 1e-16  # relative gain below which Newton's method stops; each step squares the error
ROUNDING = 1e-12  # relative fall of a function that rounding may cause


class NoConvergence(FlyballError):
    """A fit did not reach its maximum."""


def fit_bradley_terry(
    pairs: Iterable[PairTotals],
    anchors: Mapping[str, Elo] = ANCHORS,
    prior: RatingPrior = UNKNOWN,
    agents: Iterable[str] = (),
    misfit: float = 0.0,
) -> Ratings:
    """Return the ratings of ``agents``, the anchors, and all agents with games.

    The same totals give the same ratings, bit for bit, in any order. On other machines, where the linear algebra adds
    up in another order, the last digits may differ.

    Args:
        pairs: totals; those of the same two agents are added up.
        anchors: ratings that are given, by default that of the random bot.
        prior: prior of all ratings that are not given; an agent without games keeps its mean.
        agents: further agents to rate, which may have no games.
        misfit: standard deviation of the true mean score of two equals about 1/2.
    """
    merged = total(pairs)
    named = sorted({agent for pair in merged for agent in (pair.first, pair.second)} | {*anchors, *agents})
    scale = Scale(named, anchors, prior)
    games, free = _Games.of(merged, scale.agents), scale.start[scale.free]
    for number in range(ROUNDS):
        counted, before = games.counted(scale.strengths(free), misfit), free

        def posterior(free: Floats, counted: _Games = counted) -> Quadratic:
            strengths = scale.strengths(free)
            return scale.with_prior(strengths, counted.likelihood(strengths))

        free, top = maximise(posterior, before)
        if np.all(np.abs(free - before) <= SETTLED):
            break
        if number >= UNDAMPED_ROUNDS:
            free = (free + before) / 2
    strengths = scale.strengths(free)
    information = counted.information(strengths) * games.excess(strengths, misfit)
    return scale.ratings(strengths, top.curvature, information)


class Quadratic(NamedTuple):
    """A function at a point: value, gradient [A] and curvature [A, A]. The curvature is the negative Hessian."""

    value: float
    gradient: Floats
    curvature: Floats


def maximise(function: Callable[[Floats], Quadratic], start: Floats) -> tuple[Floats, Quadratic]:
    """Return a concave function's maximum and value there by Newton's damped method. Raises ``NoConvergence``."""
    point, quadratic = start, function(start)
    for _ in range(NEWTON_STEPS):
        step = np.asarray(np.linalg.solve(quadratic.curvature, quadratic.gradient), dtype=np.float64)
        gain, size = float(step @ quadratic.gradient), 1.0
        floor = quadratic.value - ROUNDING * (1 + abs(quadratic.value))
        while (tried := function(point + size * step)).value < floor:
            size /= 2
        point, quadratic = point + size * step, tried
        if gain <= TOLERANCE * (1 + abs(quadratic.value)):
            return point, quadratic
    raise NoConvergence(
        f"A rating fit did not converge in {NEWTON_STEPS} steps.",
        hint="Report it with the games; a prior with a smaller deviation helps meanwhile.",
    )


class Scale:
    """The ratings to fit: all but those of the anchors."""

    def __init__(self, agents: Sequence[str], anchors: Mapping[str, Elo], prior: RatingPrior) -> None:
        self.agents = agents
        self.free = np.array([agent not in anchors for agent in agents], dtype=np.bool_)
        self.start = np.array([anchors.get(agent, prior.mean) for agent in agents]) * PER_ELO
        self._both = np.ix_(self.free, self.free)
        self._mean, self._precision = prior.mean * PER_ELO, (prior.deviation * PER_ELO) ** -2

    def strengths(self, free: Floats) -> Floats:
        """Return all strengths [A] from the fitted ones."""
        strengths = self.start.copy()
        strengths[self.free] = free
        return strengths

    def with_prior(self, strengths: Floats, likelihood: Quadratic) -> Quadratic:
        """Add the prior to a likelihood of all strengths. The anchors are left out."""
        off = strengths[self.free] - self._mean
        curvature = likelihood.curvature[self._both]
        curvature.flat[:: len(off) + 1] += self._precision
        value = likelihood.value - self._precision / 2 * float(off @ off)
        return Quadratic(value, likelihood.gradient[self.free] - self._precision * off, curvature)

    def ratings(self, strengths: Floats, curvature: Floats, information: Floats) -> Ratings:
        """Return ratings with the sandwich covariance C^-1 (J + prior) C^-1.

        C is the curvature, and the information J is the variance of the likelihood's gradient. If the likelihood is
        right, J + prior equals C. Draws and shared openings make the two differ. Source: V. P. Godambe,
        Annals of Mathematical Statistics 31 (1960), 1208-1211.
        """
        inverse = np.linalg.inv(curvature)
        meat = information[self._both] + self._precision * np.eye(len(curvature))
        covariance = np.zeros((len(strengths), len(strengths)))
        covariance[self._both] = inverse @ meat @ inverse / PER_ELO**2
        symmetric = np.tril(covariance) + np.tril(covariance, -1).T
        return Ratings(tuple(self.agents), strengths / PER_ELO, symmetric)


@dataclass(frozen=True, eq=False)
class _Games:
    """Totals of M pairs of A numbered agents."""

    first: NDArray[np.int64]  # [M]
    second: NDArray[np.int64]  # [M]
    games: Floats  # [M]
    score: Floats  # of the first agent [M]
    dispersion: Floats  # [M]; see ``PairTotals.dispersion``
    agents: int  # number of agents A

    @classmethod
    def of(cls, pairs: Sequence[PairTotals], agents: Sequence[str]) -> Self:
        index = {agent: number for number, agent in enumerate(agents)}
        return cls(
            first=np.array([index[pair.first] for pair in pairs], dtype=np.int64),
            second=np.array([index[pair.second] for pair in pairs], dtype=np.int64),
            games=np.array([pair.games for pair in pairs], dtype=np.float64),
            score=np.array([pair.score for pair in pairs], dtype=np.float64),
            dispersion=np.array([pair.dispersion for pair in pairs], dtype=np.float64),
            agents=len(agents),
        )

    @cached_property
    def sides(self) -> NDArray[np.int64]:
        """Both agents of all pairs [2 M]."""
        return np.concatenate((self.first, self.second))

    @cached_property
    def cells(self) -> NDArray[np.int64]:
        """Flat indices [4 M] of the pairs in a matrix of agents. The diagonal comes first, then the opponents."""
        turned = np.concatenate((self.second, self.first))
        return np.concatenate((self.sides * (self.agents + 1), self.sides * self.agents + turned))

    def counted(self, strengths: Floats, misfit: float) -> Self:
        """Return the games with each pair's number reduced by the misfit."""
        expected = self._expected_score(strengths)
        share = 1 / (1 + self.games * _score_variance(expected, misfit) / self._game_variance(expected))
        return replace(self, games=share * self.games, score=share * self.score)

    def excess(self, strengths: Floats, misfit: float) -> float:
        """Return chi-squared over its degrees of freedom, at least 1. It allows for the misfit."""
        if not misfit:
            return 1.0
        expected = self._expected_score(strengths)
        variance = self._game_variance(expected) / self.games + _score_variance(expected, misfit)
        squared = (self.score / self.games - expected) ** 2 / variance
        judged = expected * (1 - expected) >= ONE_SIDED
        freedom = int(judged.sum()) - len(np.union1d(self.first[judged], self.second[judged]))
        return max(1.0, float(squared[judged].sum()) / freedom) if freedom > 0 else 1.0

    def likelihood(self, strengths: Floats) -> Quadratic:
        """Return the log-likelihood as a function of all strengths [A]."""
        difference = strengths[self.first] - strengths[self.second]
        expected = _logistic(difference)
        lost = self.games - self.score
        value = -float(self.score @ np.logaddexp(0, -difference) + lost @ np.logaddexp(0, difference))
        surplus = self.score - self.games * expected
        gradient = _sums(self.sides, np.concatenate((surplus, -surplus)), self.agents)
        return Quadratic(value, gradient, self._laplacian(self.games * expected * (1 - expected)))

    def information(self, strengths: Floats) -> Floats:
        """Return the covariance [A, A] of the log-likelihood's gradient. It allows for draws and shared openings."""
        expected = self._expected_score(strengths)
        return self._laplacian(self.dispersion * self.games * expected * (1 - expected))

    def _expected_score(self, strengths: Floats) -> Floats:
        return _logistic(strengths[self.first] - strengths[self.second])

    def _game_variance(self, expected: Floats) -> Floats:
        """Return the variance, kept above 0, of one game's score in each pair [M]."""
        return np.asarray(np.maximum(self.dispersion * expected * (1 - expected), LEAST_VARIANCE))

    def _laplacian(self, weights: Floats) -> Floats:
        both = np.concatenate((weights, weights))
        cells = _sums(self.cells, np.concatenate((both, -both)), self.agents**2)
        return cells.reshape(self.agents, self.agents)


def _score_variance(expected: Floats, misfit: float) -> Floats:
    """Return the variance of each pair's true mean score [M]."""
    return np.asarray(misfit**2 / np.maximum(4 * expected * (1 - expected), LEAST_VARIANCE))


def _sums(places: NDArray[np.int64], values: Floats, length: int) -> Floats:
    """Add up the values that share a place. Places are below ``length``, which is the length of the result."""
    return np.asarray(np.bincount(places, values, length), dtype=np.float64)


def _logistic(difference: Floats) -> Floats:
    return np.asarray(np.exp(-np.logaddexp(0, -difference)))
