"""How strong good models are, measured by games against one opponent that stays the same: a local level model.

The level is their strength above that opponent in Elo, with the variance of what is known of it. From one model to the
next it may change; the games of good models move it by their weight (Kalman's filter in one dimension), down by half.
No ratings take part, whose errors add up along a chain of champions. The games of a bad model speak against it as far
as the level is certain, too: what is uncertain counts as if fewer games had been played.

Sources: E. S. Page, Biometrika 41 (1954), 100-115 (CUSUM); A. C. Harvey, Forecasting, Structural Time Series Models and
the Kalman Filter (1989), chapter 2 (local level).
"""

from math import log, log10
from typing import NamedTuple, Self

from app.core import ANCHOR, ELO_SCALE, NEWEST_ANCHOR, RANDOM, ModelHash, expected_score
from app.events import EvaluationCompleted, MatchResult, Row

NEVER = 1e-12

FALL = 0.5
"""Share of its weight with which a weaker result counts: a level that followed bad models down would condemn none."""

PER_ELO = log(10) / ELO_SCALE
"""A difference of 400 Elo means odds of 10 to 1."""


def fixed_match(evaluation: EvaluationCompleted) -> MatchResult | None:
    """Return the match against the opponent that stays the same: the newest lasting anchor, or else the random bot.

    A retest has no other. ``None`` when the model is that anchor itself, and plays only older ones.
    """
    if evaluation.purpose == "retest":
        return evaluation.results[0]
    if evaluation.purpose != "rating":
        return None
    by_role = {match.opponent: match for match in evaluation.results}
    if any(role.startswith(ANCHOR) for role in by_role):
        return by_role.get(NEWEST_ANCHOR)
    return by_role.get(RANDOM)


class Games(NamedTuple):
    """Games against one opponent, and the points that they brought, draws one half."""

    number: int
    points: float

    @classmethod
    def of(cls, match: MatchResult) -> Self:
        """Return those of a match."""
        return cls(match.games, match.score.mean * match.games)

    @property
    def elo(self) -> float:
        """Return the strength above the opponent that they say, Elo; half a game of each outcome keeps it finite."""
        return ELO_SCALE * log10((self.points + 0.5) / (self.number - self.points + 0.5))

    @property
    def variance(self) -> float:
        """Return the variance of that, Elo squared."""
        return 1 / information(self.number + 1, (self.points + 0.5) / (self.number + 1))


def information(games: int, score: float) -> float:
    """Return Fisher's information on a difference in strength that games of an expected score hold, per Elo squared."""
    return games * score * (1 - score) * PER_ELO**2


class Level(Row, frozen=True):
    """Estimate of good models' strength above an opponent, Elo and Elo squared.

    It is never below 0: the opponent was the current model once, and however slowly models get worse, they must not
    get worse than it unnoticed.

    Attributes:
        opponent: the reference; ``None``: the random bot.
    """

    opponent: ModelHash | None
    elo: float = 0.0
    variance: float = 0.0

    @property
    def player(self) -> str:
        """The opponent's name in requests and results."""
        return self.opponent or RANDOM

    @classmethod
    def measured(cls, opponent: ModelHash | None, games: Games) -> Self:
        """Return what some games alone say."""
        return cls(opponent=opponent, elo=max(0.0, games.elo), variance=games.variance)

    def drifted(self, elo: float) -> Self:
        """Return it for the next model, whose strength may differ by that standard deviation."""
        return self.model_copy(update={"variance": self.variance + elo**2})

    def after(self, games: Games) -> Self:
        """Take in games of good models."""
        gain, more = self.variance / (self.variance + games.variance), games.elo - self.elo
        elo = max(0.0, self.elo + gain * (more if more > 0 else FALL * more))
        return self.model_copy(update={"elo": elo, "variance": self.variance * (1 - gain)})

    def certainty(self, games: int) -> float:
        """Return which share of what so many games say is left beside what is unknown of the level, in (0, 1]."""
        return 1 / (1 + information(games, possible(expected_score(self.elo))) * self.variance)


def cusum_step(statistic: float, score: float, games: int, difference: float, drop: float) -> float:
    """Add games to Page's statistic: max(0, S + sum of log-likelihood ratios of the drop).

    Args:
        statistic: S so far.
        score: mean score of the games, draws one half.
        games: how many.
        difference: expected strength above the opponent, Elo.
        drop: Elo that the alternative is weaker.
    """
    before, after = possible(expected_score(difference)), possible(expected_score(difference - drop))
    ratio = score * log(after / before) + (1 - score) * log((1 - after) / (1 - before))
    return max(0.0, statistic + games * ratio)


def possible(score: float) -> float:
    """Keep an expected score off 0 and 1, where thousands of Elo round it to: nothing is certain."""
    return min(1 - NEVER, max(NEVER, score))
