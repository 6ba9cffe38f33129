"""Numbers that carry their unit or their uncertainty."""

from math import sqrt
from typing import NewType, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Elo = NewType("Elo", float)
"""A rating difference of 400 means odds of 10 to 1; the random bot of each configuration is at 0."""

EloPerHour = NewType("EloPerHour", float)
"""A rate of improvement."""

Z_95 = 1.959963984540054
"""The 97.5% quantile of the normal distribution: two-sided 95% intervals."""

ROUNDING = 1e-9
"""How far a sum of shares may exceed its count."""


def wilson_interval(mean: float, n: int, z: float = Z_95) -> tuple[float, float]:
    """Return the Wilson score interval of a proportion.

    Args:
        mean: observed proportion in [0, 1]; draws may count one half, which makes the interval conservative.
        n: number of independent observations, at least 1.
        z: normal quantile; 95% two-sided by default.

    Source: E. B. Wilson, JASA 22 (1927), 209-212.
    """
    centre = (mean + z * z / (2 * n)) / (1 + z * z / n)
    half = z / (1 + z * z / n) * sqrt(mean * (1 - mean) / n + z * z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


class Rate(BaseModel):
    """A proportion with its sample size and 95% Wilson interval. One with n = 0 cannot be constructed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    mean: float = Field(ge=0, le=1)
    n: int = Field(ge=1, le=10**12)
    lower: float = Field(ge=0, le=1)
    upper: float = Field(ge=0, le=1)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.lower <= self.mean <= self.upper:
            raise ValueError(f"the interval [{self.lower}, {self.upper}] does not hold the mean {self.mean}")
        return self

    @classmethod
    def of(cls, successes: float, n: int) -> Self:
        """Build the rate of ``successes`` (halves allowed: draws) among ``n`` >= 1 observations.

        Raises:
            ValueError: nothing was observed, or there are more successes than observations.
        """
        if not (n >= 1 and 0 <= successes <= n * (1 + ROUNDING)):
            raise ValueError(f"a rate needs n >= 1 and from 0 to n successes, not {successes} of {n}")
        mean = min(1.0, successes / n)
        lower, upper = wilson_interval(mean, n)
        return cls(mean=mean, n=n, lower=min(lower, mean), upper=max(upper, mean))
