"""Ratings with their whole covariance: what a batch fit comes to, and what is kept of it."""

from bisect import bisect_left
from collections.abc import Sequence
from math import hypot, log, sqrt
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from app.core import Elo, FlyballError
from app.core.statistics import Z_95
from app.events import Value

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


LEAST_ERROR = 1.0
"""Elo; no rating is published with a smaller error."""


class NotRated(FlyballError):
    """An agent was asked for that is not among the rated ones."""


class Estimate(NamedTuple):
    """A rating, or a difference of two, with its standard error."""

    elo: Elo
    stderr: float

    def interval(self, z: float = Z_95) -> tuple[Elo, Elo]:
        """Return the confidence interval for a normal quantile; 95% two-sided by default."""
        return Elo(self.elo - z * self.stderr), Elo(self.elo + z * self.stderr)


class Ratings(Value):
    """Ratings of A agents. Lossless as JSON: they survive a restart bit for bit.

    Attributes:
        agents: their names, in order.
        elo: of each.
        covariance: Elo squared, the lower triangle row by row: A (A + 1) / 2 numbers. An anchor's are zero.
    """

    agents: tuple[str, ...]
    elo: tuple[float, ...]
    covariance: tuple[float, ...]

    @model_validator(mode="after")
    def _whole(self) -> Self:
        count = len(self.agents)
        if list(self.agents) != sorted(set(self.agents)):
            raise ValueError("agents are named once each, in order")
        if (len(self.elo), len(self.covariance)) != (count, count * (count + 1) // 2):
            raise ValueError(f"{count} agents have {count} ratings and {count * (count + 1) // 2} covariances")
        return self

    @classmethod
    def of(cls, agents: Sequence[str], elo: NDArray[np.float64], covariance: NDArray[np.float64]) -> Self:
        """Build from ratings [A] and a symmetric covariance [A, A]."""
        lower = covariance[np.tril_indices(len(agents))]
        return cls(agents=tuple(agents), elo=tuple(elo.tolist()), covariance=tuple(lower.tolist()))

    def rating(self, agent: str) -> Estimate:
        """Return an agent's rating over the anchors. Raises ``NotRated``."""
        index = self._index(agent)
        return Estimate(Elo(self.elo[index]), sqrt(max(0.0, self._covariance(index, index))))

    def difference(self, first: str, second: str) -> Estimate:
        """Return how much stronger ``first`` is than ``second``. Raises ``NotRated``.

        Its error comes from the covariance: two agents that were measured against the same others share the errors of
        these, and their difference is better known than either.
        """
        a, b = self._index(first), self._index(second)
        variance = self._covariance(a, a) + self._covariance(b, b) - 2 * self._covariance(a, b)
        return Estimate(Elo(self.elo[a] - self.elo[b]), sqrt(max(0.0, variance)))

    def comparable(self) -> dict[str, Estimate]:
        """Return ratings with quasi-variances: squared errors add up in a difference.

        These errors hold between any two agents, the anchor too, whose own is what is unknown of the scale's zero. An
        error over the anchor would contain that zero, which all agents share, and tell nothing of their order. They
        are the least-squares approximation to the variances of all differences, and at least ``LEAST_ERROR``. Source:
        D. Firth and R. X. de Menezes, Biometrika 91 (2004), 65-80 (quasi-variances).
        """
        count = len(self.agents)
        covariance = np.zeros((count, count))
        covariance[np.tril_indices(count)] = self.covariance
        covariance += np.tril(covariance, -1).T
        alone = np.diag(covariance)
        differences = alone[:, None] + alone[None, :] - 2 * covariance
        if count > 2:
            sums = differences.sum(axis=1)
            own = (sums - sums.sum() / (2 * (count - 1))) / (count - 2)
        else:
            own = differences.sum(axis=1) / 2
        errors = np.sqrt(np.maximum(own, LEAST_ERROR**2)).tolist()
        return {name: Estimate(Elo(elo), error) for name, elo, error in zip(self.agents, self.elo, errors, strict=True)}

    def _index(self, agent: str) -> int:
        index = bisect_left(self.agents, agent)
        if index == len(self.agents) or self.agents[index] != agent:
            raise NotRated(f"{agent} has no rating.", hint="Ask for one of those that were in the fit.")
        return index

    def _covariance(self, a: int, b: int) -> float:
        low, high = min(a, b), max(a, b)
        return self.covariance[high * (high + 1) // 2 + low]
