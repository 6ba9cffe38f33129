"""The statistics that several layers decide by: expected scores, and the sequential test of promotions."""

from math import log
from typing import Literal, NamedTuple

ELO_SCALE = 400.0
CERTAIN_ELO = 10_000.0

Verdict = Literal["accept", "reject", "continue"]


def expected_score(difference: float) -> float:
    """Return the score expected of a player ``difference`` Elo stronger than its opponent (logistic, 400 = 10:1)."""
    bounded = max(-CERTAIN_ELO, min(CERTAIN_ELO, difference))  # beyond, the power overflows
    return float(1 / (1 + 10 ** (-bounded / ELO_SCALE)))


class Tally(NamedTuple):
    """Games won, drawn and lost; fractions where a game is a score between them."""

    wins: float
    draws: float
    losses: float

    @property
    def games(self) -> float:
        """How many games there are."""
        return self.wins + self.draws + self.losses

    def plus(self, other: "Tally") -> "Tally":
        """Return both together."""
        return Tally(self.wins + other.wins, self.draws + other.draws, self.losses + other.losses)


def gsprt_llr(tally: Tally, elo0: float, elo1: float) -> float:
    """Return the generalised log-likelihood ratio of H1: ``elo1`` against H0: ``elo0``, trinomial model.

    N (s1 - s0) (2 s - s0 - s1) / (2 v) with the observed mean score s and variance v; half a game of each outcome is
    added, which keeps the variance above zero. Source: M. Van den Bergh, "The generalized sequential probability ratio
    test" as used by Fishtest.
    """
    counts = [count + 0.5 for count in tally]
    total = sum(counts)
    mean = (counts[0] + 0.5 * counts[1]) / total
    variance = (counts[0] * (1 - mean) ** 2 + counts[1] * (0.5 - mean) ** 2 + counts[2] * mean**2) / total
    score0, score1 = expected_score(elo0), expected_score(elo1)
    return total * (score1 - score0) * (2 * mean - score0 - score1) / (2 * variance)


def sprt_verdict(llr: float, alpha: float, beta: float) -> Verdict:
    """Return Wald's verdict on a log-likelihood ratio: bounds ln(beta / (1 - alpha)) and ln((1 - beta) / alpha)."""
    if llr >= log((1 - beta) / alpha):
        return "accept"
    if llr <= log(beta / (1 - alpha)):
        return "reject"
    return "continue"
