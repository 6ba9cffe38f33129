"""Totals of two agents' games. Ratings, matchmaking and the search for cycles use them."""

from collections.abc import Iterable
from typing import Protocol, Self

from flyball.app.core import PLAYERS_OF, GradedScores
from flyball.app.events import MatchResult, Row

PRIOR_VARIANCE = 1.0  # the variance of four games between equals


class PairTotals(Row, frozen=True):
    """Totals of all games between two agents. With more than two players, the second agent has all other seats."""

    first: str  # the agent whose scores these are
    second: str  # its opponent
    games: int  # at least 1
    rotations: int  # independent observations among them: groups of games of one deal or opening, or single games
    score: float  # sum of the games' scores in [0, 1], a tie counting half
    squares: float  # sum over the rotations of the square of a rotation's score

    @classmethod
    def of_rotations(cls, first: str, second: str, counts: tuple[int, ...]) -> Self:
        """Return the totals of some rotations. ``counts[k]`` rotations gave k half points, as in ``MatchResult``."""
        players, rotations = PLAYERS_OF[len(counts)], sum(counts)
        scores = [half_points / (2 * (players - 1)) for half_points in range(len(counts))]
        return cls(
            first=first,
            second=second,
            games=rotations * players,
            rotations=rotations,
            score=sum(count * score for count, score in zip(counts, scores, strict=True)),
            squares=sum(count * score**2 for count, score in zip(counts, scores, strict=True)),
        )

    @classmethod
    def of_grades(cls, first: str, second: str, graded: GradedScores) -> Self:
        """Return the totals of rotations with graded scores; a mean beyond 0 or 1 counts as 0 or 1."""
        players, rotations = graded.players, graded.rotations
        mean = min(1.0, max(0.0, graded.mean))
        return cls(
            first=first,
            second=second,
            games=rotations * players,
            rotations=rotations,
            score=rotations * players * mean,
            squares=rotations * players**2 * (graded.variance + mean**2),
        )

    @property
    def mean(self) -> float:
        """The mean score of a game, in [0, 1]."""
        return min(1.0, self.score / self.games)

    @property
    def flipped(self) -> Self:
        """The same games with the scores of the other agent."""
        size = self.games / self.rotations
        squares = max(0.0, self.games * size - 2 * size * self.score + self.squares)
        score = max(0.0, self.games - self.score)
        return self.replace(first=self.second, second=self.first, score=score, squares=squares)

    def plus(self, other: Self) -> Self:
        """Add games of the same two agents, seen from either side."""
        same = other if other.first == self.first else other.flipped
        return self.replace(
            games=self.games + same.games,
            rotations=self.rotations + same.rotations,
            score=self.score + same.score,
            squares=self.squares + same.squares,
        )

    @property
    def dispersion(self) -> float:
        """The variance of the score, relative to independent games without draws.

        The variance of n such games of mean m is n m (1 - m). Draws, and openings that are played from both sides, make
        the dispersion less than one; games that repeat each other make it more. A few observations hardly move it away
        from one.
        """
        observed = max(0.0, self.squares - self.score**2 / self.rotations)
        binomial = self.score * (1 - self.score / self.games)
        return (observed + PRIOR_VARIANCE) / (binomial + PRIOR_VARIANCE)


class Scored(Protocol):
    """A match's scores, as events and evaluations have them."""

    @property
    def rotations(self) -> tuple[int, ...]:
        """Counts of rotations by half points; empty if the match is graded."""

    @property
    def graded(self) -> GradedScores | None:
        """Moments of the rotations' scores, if outcomes are graded."""


def pair_totals(first: str, second: str, match: Scored) -> PairTotals | None:
    """Return the totals of a match between two agents; None without a finished rotation."""
    if match.graded:
        return PairTotals.of_grades(first, second, match.graded)
    return PairTotals.of_rotations(first, second, match.rotations) if sum(match.rotations) else None


def totals_of(hero: str, matches: Iterable[MatchResult]) -> tuple[PairTotals, ...]:
    """Return an evaluated model's totals of finished rotations against each other opponent, without itself."""
    totals = (pair_totals(hero, match.player, match) for match in matches if match.player != hero)
    return tuple(pair for pair in totals if pair)


def decisive_games(match: MatchResult) -> float:
    """Return the number of won or lost games that tell as much as a match's: by the variance if it is graded."""
    if not match.graded:
        return match.games
    return match.games / PairTotals.of_grades("", "", match.graded).dispersion


def total(pairs: Iterable[PairTotals]) -> tuple[PairTotals, ...]:
    """Add up the totals of the same two agents, seen from either side; ordered by the names."""
    totals: dict[tuple[str, str], PairTotals] = {}
    for pair in pairs:
        ordered = pair if pair.first < pair.second else pair.flipped
        key = (ordered.first, ordered.second)
        totals[key] = totals[key].plus(ordered) if key in totals else ordered
    return tuple(totals[key] for key in sorted(totals))
