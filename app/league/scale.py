"""The scale of ratings: anchors, the prior, and the strengths in which the likelihoods are written."""

from collections.abc import Mapping, Sequence
from math import log
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from app.core import RANDOM, Elo
from app.core.statistics import ELO_SCALE
from app.league.newton import Floats, Point
from app.league.ratings import Ratings

PER_ELO = log(10) / ELO_SCALE
"""Natural logarithm of odds that an Elo stands for."""

ANCHORS: Mapping[str, Elo] = MappingProxyType({RANDOM: Elo(0.0)})
"""Zero of all ratings: the random bot."""


class RatingPrior(NamedTuple):
    """Prior of a rating: a normal distribution, worth a fifth of a game by default."""

    mean: Elo = Elo(0.0)
    deviation: float = 800.0


UNKNOWN = RatingPrior()


class Scale:
    """Agents, some of whose ratings are given.

    Args:
        agents: all of them, in order.
        anchors: ratings that are given; they need not be among the agents.
        prior: of every other rating.
    """

    def __init__(self, agents: Sequence[str], anchors: Mapping[str, Elo], prior: RatingPrior = UNKNOWN) -> None:
        self.agents = agents
        self.index = {agent: number for number, agent in enumerate(agents)}
        self.free = np.array([agent not in anchors for agent in agents], dtype=np.bool_)
        self._both = np.ix_(self.free, self.free)
        self._mean, self._precision = prior.mean * PER_ELO, (prior.deviation * PER_ELO) ** -2
        self.start = np.array([anchors.get(agent, prior.mean) for agent in agents]) * PER_ELO

    def strengths(self, free: Floats) -> Floats:
        """Return all strengths [A] from those that are not given."""
        strengths = self.start.copy()
        strengths[self.free] = free
        return strengths

    def with_prior(self, strengths: Floats, likelihood: Point) -> Point:
        """Add the prior to a likelihood of all strengths, and leave out those that are given."""
        off = strengths[self.free] - self._mean
        curvature = likelihood.curvature[self._both]
        curvature.flat[:: len(off) + 1] += self._precision
        return Point(
            likelihood.value - self._precision / 2 * float(off @ off),
            likelihood.gradient[self.free] - self._precision * off,
            curvature,
        )

    def ratings(self, strengths: Floats, curvature: Floats, information: Floats) -> Ratings:
        """Return ratings with the covariance C^-1 (J + prior) C^-1.

        It is the inverse of the curvature C where the likelihood is right, for then the information J, the variance of
        its gradient, equals C less the prior. Ties and games of one deal make a difference between the two.
        Source: V. P. Godambe, Annals of Mathematical Statistics 31 (1960), 1208-1211.

        Args:
            strengths: all of them [A].
            curvature: of likelihood and prior, in the strengths that are not given.
            information: variance of the likelihood's gradient [A, A], in all strengths.
        """
        inverse = np.linalg.inv(curvature)
        meat = information[self._both] + self._precision * np.eye(len(curvature))
        covariance = np.zeros((len(strengths), len(strengths)))
        covariance[self._both] = inverse @ meat @ inverse / PER_ELO**2
        return Ratings.of(self.agents, strengths / PER_ELO, covariance)
