"""Ratings in Elo over the random bot, with their errors."""

from dataclasses import dataclass
from math import log, sqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from flyball.app.core import Elo
from flyball.app.core.statistics import ELO_SCALE, Z_95

Floats = NDArray[np.float64]

PER_ELO = log(10) / ELO_SCALE  # log-odds of one Elo
LEAST_ERROR = 1.0  # Elo; no rating is published with a smaller error


class RatingPrior(NamedTuple):
    """Normal prior of a rating. The default is worth about a fifth of a game against an equal."""

    mean: Elo = Elo(0.0)
    deviation: float = 800.0


UNKNOWN = RatingPrior()


class Estimate(NamedTuple):
    """A rating, or a difference of two, with its standard error."""

    elo: Elo
    stderr: float

    def interval(self, z: float = Z_95) -> tuple[Elo, Elo]:
        """Return the confidence interval for a normal quantile; 95% two-sided by default."""
        return Elo(self.elo - z * self.stderr), Elo(self.elo + z * self.stderr)


@dataclass(frozen=True, eq=False)
class Ratings:
    """Ratings of A agents from one fit."""

    agents: tuple[str, ...]  # their ids
    elo: Floats  # [A]
    covariance: Floats  # Elo squared [A, A], symmetric; an anchor's are zero

    def rating(self, agent: str) -> Estimate:
        """Return an agent's rating over the anchors."""
        index = self.agents.index(agent)
        return _estimate(self.elo[index], self.covariance[index, index])

    def difference(self, first: str, second: str) -> Estimate:
        """Return how much stronger ``first`` is than ``second``.

        Two agents that were measured against the same others share the errors of these. So their difference is better
        known than either rating.
        """
        a, b = self.agents.index(first), self.agents.index(second)
        variance = self.covariance[a, a] + self.covariance[b, b] - 2 * self.covariance[a, b]
        return _estimate(self.elo[a] - self.elo[b], variance)

    def comparable(self) -> dict[str, Estimate]:
        """Return ratings whose squared errors add up in a difference (quasi-variances).

        These errors hold between any two agents, the anchor included; the anchor's error is that of the scale's zero.
        Errors relative to the anchor would include the zero's error, which all agents share and which says nothing
        about their order. Quasi-variances are the least-squares approximation to the variances of all differences.
        They are at least ``LEAST_ERROR`` squared. Source: D. Firth and R. X. de Menezes, Biometrika 91 (2004), 65-80.
        """
        count, alone = len(self.agents), np.diag(self.covariance)
        differences = alone[:, None] + alone[None, :] - 2 * self.covariance
        if count > 2:
            sums = differences.sum(axis=1)
            own = (sums - sums.sum() / (2 * (count - 1))) / (count - 2)
        else:
            own = differences.sum(axis=1) / 2
        errors = np.sqrt(np.maximum(own, LEAST_ERROR**2))
        pairs = zip(self.agents, self.elo.tolist(), errors.tolist(), strict=True)
        return {agent: Estimate(Elo(elo), error) for agent, elo, error in pairs}


def _estimate(elo: float, variance: float) -> Estimate:
    return Estimate(Elo(float(elo)), sqrt(max(0.0, variance)))
