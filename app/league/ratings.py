"""Ratings with their whole covariance: what a batch fit comes to, and what is kept of it."""

from bisect import bisect_left
from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import model_validator

from app.core import Elo, FlyballError
from app.core.units import Z_95
from app.events import Value

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
