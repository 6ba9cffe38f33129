"""Statistics of ratings, proportions, and the sequential test of promotions."""

from collections.abc import Sequence
from math import log, log10, sqrt
from typing import Literal, NewType, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

Elo = NewType("Elo", float)
"""A rating difference of 400 means odds of 10 to 1; the random bot of each configuration is at 0."""

EloPerHour = NewType("EloPerHour", float)
"""A rate of improvement."""

ELO_SCALE = 400.0
CERTAIN_ELO = 10_000.0

PSEUDO_COUNT = 1.5
"""Observations added before a test, spread evenly over the outcomes, because identical outcomes have zero variance."""

MOST_PLAYERS = 7

MOST_OUTCOME = 1e9
"""Largest size of an outcome in a game's own units."""

LEAST_P = 1e-300
"""Smaller p-values are shown as "< 1e-300", because computed ones soon underflow to 0."""

Verdict = Literal["accept", "reject", "continue"]


def student(mean: float, stderr: float, freedom: int) -> tuple[float, float]:
    """Return a mean's 95% half-width and two-sided p-value for a mean of zero, by Student's t."""
    from scipy.special import stdtr, stdtrit  # imported late, because few processes need it

    if stderr == 0:  # the same value in every sample
        return 0.0, float(mean == 0)
    reach = float(stdtrit(freedom, 0.975)) * stderr
    return reach, 2 * float(stdtr(freedom, -abs(mean) / stderr))


def expected_score(difference: float) -> float:
    """Return the expected score against an opponent.

    The player is ``difference`` Elo stronger than the opponent. The model is logistic: 400 Elo mean odds of 10 to 1.
    """
    bounded = max(-CERTAIN_ELO, min(CERTAIN_ELO, difference))  # otherwise the power overflows
    return float(1 / (1 + 10 ** (-bounded / ELO_SCALE)))


def elo_lead(score: float) -> float:
    """Return the difference in Elo at which ``score``, in (0, 1), is expected; the inverse of ``expected_score``."""
    return ELO_SCALE * log10(score / (1 - score))


def p_text(p_value: float) -> str:
    """Return a p-value as text."""
    return f"{p_value:.2g}" if p_value >= LEAST_P else f"< {LEAST_P:.0e}"


def rotation_outcomes(players: int) -> int:
    """Return the number of scores that a rotation can have.

    A rotation is one deal, played with the hero in each seat. A game's score is the share of opponents beaten, ties
    half: 2 (P - 1) + 1 values. The sum over a rotation's P games has 2 P (P - 1) + 1 values: five with two players,
    which makes their test pentanomial.
    """
    return 2 * players * (players - 1) + 1


PLAYERS_OF = {rotation_outcomes(players): players for players in range(2, MOST_PLAYERS + 1)}
"""The number of players, by their ``rotation_outcomes``."""


def gsprt_llr(counts: Sequence[float], elo0: float, elo1: float, graded: "GradedScores | None" = None) -> float:
    """Return the generalised log-likelihood ratio of H1 against H0.

    The model is multinomial, and the ratio is N / 2 ln(r0 / r1), where r is the mean squared distance of the
    observations from the score that a hypothesis expects. To first order it is N (s1 - s0) (2 s - s0 - s1) / (2 v) with
    the mean score s and variance v observed, but few observations weigh less, which keeps both error rates within alpha
    and beta from the first game on. Source: M. Van den Bergh, support_MLE_multinomial.pdf among the documents of
    Fishtest, whose ``LLR_alt`` it is.

    Args:
        counts: how many observations had each outcome, worst first; their scores are spaced evenly from 0 to 1. Three
            outcomes: games lost, drawn and won. Five: pairs of games of one opening, colours swapped (pentanomial).
            ``rotation_outcomes(players)``: rotations of more players. Games of one opening or deal are one
            observation: they are not independent, and comparing within them costs fewer games.
        elo0: difference in strength under H0.
        elo1: under H1, above ``elo0``.
        graded: further observations, of games whose scores are no half points. Only their moments matter.
    """
    best = len(counts) - 1
    smoothed = [count + PSEUDO_COUNT / len(counts) for count in counts]
    distances = [
        sum(count * (outcome / best - score) ** 2 for outcome, count in enumerate(smoothed))
        + (graded.squared_distance(score) if graded else 0)
        for score in (expected_score(elo0), expected_score(elo1))
    ]
    return (sum(smoothed) + (graded.rotations if graded else 0)) / 2 * log(distances[0] / distances[1])


def sprt_bounds(alpha: float, beta: float) -> tuple[float, float]:
    """Return Wald's bounds on a log-likelihood ratio: (H1 rejected, H1 accepted)."""
    return log(beta / (1 - alpha)), log((1 - beta) / alpha)


def sprt_verdict(llr: float, alpha: float, beta: float) -> Verdict:
    """Return Wald's verdict on a log-likelihood ratio."""
    rejected, accepted = sprt_bounds(alpha, beta)
    if llr >= accepted:
        return "accept"
    return "reject" if llr <= rejected else "continue"


Z_95 = 1.959963984540054
"""The 97.5% quantile of the normal distribution: two-sided 95% intervals."""

ROUNDING = 1e-9
"""Relative rounding error by which a sum of shares may exceed its count."""


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
    """A proportion with its sample size and 95% Wilson interval.

    A rate with n = 0 cannot be constructed.
    """

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
        """Build a rate from the successes among ``n`` >= 1 observations; a draw counts as half a success.

        Raises:
            ValueError: nothing was observed, or there are more successes than observations.
        """
        if not (n >= 1 and 0 <= successes <= n * (1 + ROUNDING)):
            raise ValueError(f"a rate needs n >= 1 and from 0 to n successes, not {successes} of {n}")
        mean = min(1.0, successes / n)
        lower, upper = wilson_interval(mean, n)
        return cls(mean=mean, n=n, lower=min(lower, mean), upper=max(upper, mean))

    @classmethod
    def of_mean(cls, mean: float, reach: float, n: int) -> Self:
        """Build a rate from the mean of ``n`` scores and the half-width of its interval.

        What lies beyond 0 or 1 is cut off: a score so one-sided says no more than that.
        """
        lower, centre, upper = (min(1.0, max(0.0, bound)) for bound in (mean - reach, mean, mean + reach))
        return cls(mean=centre, n=n, lower=lower, upper=upper)


class MeanOutcome(BaseModel):
    """The mean outcome of a game in the game's own units, with its error and 95% interval.

    The interval is Student's t over rotations, whose games share their deal. ``stderr`` and the interval are ``None``
    with fewer than two rotations.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    mean: float = Field(ge=-MOST_OUTCOME, le=MOST_OUTCOME)
    stderr: float | None = Field(ge=0, le=MOST_OUTCOME)
    lower: float | None = Field(ge=-2 * MOST_OUTCOME, le=2 * MOST_OUTCOME)
    upper: float | None = Field(ge=-2 * MOST_OUTCOME, le=2 * MOST_OUTCOME)

    def others(self, players: int) -> Self:
        """Return the mean outcome of each other seat; all outcomes of a game add up to 0."""

        def share(value: float | None) -> float | None:
            return None if value is None else -value / (players - 1)

        stderr = None if self.stderr is None else self.stderr / (players - 1)
        return type(self)(
            mean=-self.mean / (players - 1), stderr=stderr, lower=share(self.upper), upper=share(self.lower)
        )


class GradedScores(BaseModel):
    """Moments of the scores of rotations whose games are more than won, drawn or lost.

    A rotation's score is the mean of its games' scores. It may lie outside [0, 1], where a game was won or lost by more
    than usual.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    players: int = Field(ge=2, le=MOST_PLAYERS)
    rotations: int = Field(ge=1, le=10**12)
    total: float = Field(ge=-1e12, le=1e12, description="sum of the rotations' scores")
    squares: float = Field(ge=0, le=1e12, description="sum of their squares")

    @model_validator(mode="after")
    def _variance_is_not_negative(self) -> Self:
        least = self.total**2 / self.rotations
        if self.squares < least * (1 - ROUNDING):
            raise ValueError(f"{self.rotations} scores with the sum {self.total} have squares of at least {least}")
        return self

    @property
    def mean(self) -> float:
        """The mean score; it may lie outside [0, 1]."""
        return self.total / self.rotations

    @property
    def variance(self) -> float:
        """The variance of a rotation's score about the mean."""
        return max(0.0, self.squares / self.rotations - self.mean**2)

    def squared_distance(self, score: float) -> float:
        """Return the sum of the squared distances of the rotations' scores from ``score``."""
        return self.rotations * (self.variance + (self.mean - score) ** 2)

    @property
    def as_one(self) -> Self:
        """The same mean from a single rotation, for rotations that repeat the same games."""
        return self.model_copy(update={"rotations": 1, "total": self.mean, "squares": self.mean**2})

    def plus(self, other: Self | None) -> Self:
        """Add the scores of further rotations."""
        if other is None:
            return self
        return self.model_copy(
            update={
                "rotations": self.rotations + other.rotations,
                "total": self.total + other.total,
                "squares": self.squares + other.squares,
            }
        )
