"""Match statistics: wins, draws, losses and the score with its interval."""

from collections.abc import Sequence
from hashlib import blake2b
from math import inf, sqrt
from typing import get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from flyball.app.config import FrozenModel
from flyball.app.core import FlyballError, GradedScores, MeanOutcome, Rate, rotation_outcomes
from flyball.app.core.statistics import student
from flyball.app.job_specs import MatchGames, Verdict

SAME = 1e-6
"""Leads that differ by a smaller share are equal: float32 outcomes like 1/3 are rounded."""


class NoGames(FlyballError):
    """Too few games for the requested statistics."""


class MatchStatistics(FrozenModel):
    """Statistics of one hero against one opponent in all other seats.

    ``score`` is the mean of the games' scores (see ``game_scores``): 1/2 between equals, for any number of players. It
    is linear in the outcome, so it orders players as their mean outcomes do. ``outcome`` is the mean outcome itself.

    A win is the best result alone, a draw is a tie for the best. A truncated game scores 1/2 and is neither won, drawn
    nor lost: wins + draws + losses + truncated = games. ``won`` is the share of games won, a tie for the best and a
    truncated game counting half.

    Where every game is won, drawn or lost, ``rotations`` are the counts of ``count_rotations``, and the score's
    interval is Wilson's. Otherwise ``graded`` has the moments of the rotations' scores, and the interval follows from
    their variance. ``stderr`` is the standard error of the mean score over rotations, because games of one rotation
    share their deal. Undecided games say nothing about the players.
    """

    games: int = Field(ge=1)
    wins: int = Field(ge=0)
    draws: int = Field(ge=0)
    losses: int = Field(ge=0)
    truncated: int = Field(ge=0)
    distinct_games: int = Field(ge=1, description="whole histories; a game that is repeated says nothing new")
    score: Rate
    won: Rate
    outcome: MeanOutcome | None = Field(description="in the game's own units; None if the backend does not know it")
    rotations: tuple[int, ...]
    graded: GradedScores | None
    stderr: float | None = Field(description="None with fewer than two rotations")
    undecided: int = Field(ge=0, description="games in which no player had a decision to make")
    mean_length: float = Field(ge=0, description="decisions a game, forced moves not counted")


def game_scores(returns: NDArray[np.float32], heroes: NDArray[np.int64], margin: float) -> NDArray[np.float64]:
    """Return each game's score [G].

    A score is the mean over the opponents of 1/2 + lead / (2 margin), where the lead is the difference between the
    hero's outcome and the opponent's. A lead of ``margin`` (``win_margin``) is a won game, and scores 1. So games that
    are won, drawn or lost score 1, 1/2 or 0; with more players, the share of opponents beaten. In games with graded
    outcomes single scores may lie outside [0, 1]. ``returns`` [G, P] are the outcomes, ``heroes`` [G] the hero's seats.
    """
    own, others = _apart(returns, heroes)
    leads = (own.astype(np.float64) - others) / margin
    whole = np.rint(leads)
    leads = np.where(np.abs(leads - whole) < SAME, whole, leads)  # float32 outcomes like 1/3 are not exact
    return np.asarray(((1 + leads) / 2).sum(axis=1) / others.shape[1], dtype=np.float64)


def decisive_margin(players: int) -> float:
    """Return the lead of a winner, whose outcome is 1, over the others, who share the loss."""
    return players / (players - 1)


def win_margin(returns: NDArray[np.float32]) -> float:
    """Return the lead that counts as a won game, from the outcomes [G, P] of a sample of games.

    It is the root mean square of the leads of one seat over another, ties left out. If all leads are of the same size,
    as in games that are only won or lost, it is that size. Otherwise scores deviate from 1/2 by as much as in a game of
    wins and losses, so that a difference in Elo is as hard to see in one game as in the other. Without any lead it is
    ``decisive_margin``.
    """
    seats = returns.astype(np.float64)
    leads = np.abs(seats[:, :, None] - seats[:, None, :])
    largest = float(leads.max(initial=0.0))
    if not largest:
        return decisive_margin(returns.shape[1])
    leads = leads[leads > SAME * largest]
    return largest if largest - leads.min() < SAME * largest else float(np.sqrt(np.mean(leads**2)))


def match_games(
    returns: NDArray[np.float32],
    heroes: NDArray[np.int64],
    truncated: NDArray[np.bool_],
    lengths: NDArray[np.int64],
    histories: Sequence[Sequence[int]],
    *,
    openings: NDArray[np.int64],
    margin: float,
    unit: float = 1.0,
) -> MatchGames:
    """Return the games' results for the hero.

    ``heroes`` [G] are the hero's seats, ``margin`` is the ``win_margin`` of the game. An outcome of 1 is ``unit`` of
    the game's own units. See ``Outcomes`` for the other columns.
    """
    own, others = _apart(returns, heroes)
    best = others.max(axis=1)
    verdicts = np.select([truncated, own[:, 0] > best, own[:, 0] == best], ["truncated", "won", "drawn"], "lost")
    return MatchGames(
        scores=game_scores(returns, heroes, margin).tolist(),
        verdicts=verdicts.tolist(),
        lengths=np.asarray(lengths).tolist(),
        decided=(np.asarray(lengths) > openings).tolist(),
        fingerprints=tuple(
            blake2b(np.asarray(history, dtype=np.int32).tobytes(), digest_size=8).hexdigest() for history in histories
        ),
        outcomes=(own[:, 0].astype(np.float64) * unit).tolist(),
    )


def match_statistics(games: MatchGames, players: int) -> MatchStatistics:
    """Return the statistics of a match. Raises ``NoGames`` for a match without games."""
    if not games.scores:
        raise NoGames("A match of 0 games has no statistics.", hint="Play at least one game.")
    count = {verdict: games.verdicts.count(verdict) for verdict in get_args(Verdict)}
    scores = np.array(games.scores)
    mean, stderr, reach = _mean(scores, players)
    decided = _are_half_points(scores, players)
    graded = None if decided else grade_rotations(scores, players)
    return MatchStatistics(
        games=len(scores),
        wins=count["won"],
        draws=count["drawn"],
        losses=count["lost"],
        truncated=count["truncated"],
        distinct_games=len(set(games.fingerprints)),
        score=Rate.of(float(scores.sum()), len(scores)) if decided else Rate.of_mean(mean, reach, len(scores)),
        won=Rate.of(count["won"] + (count["drawn"] + count["truncated"]) / 2, len(scores)),
        outcome=_mean_outcome(games.outcomes, players),
        rotations=() if graded else count_rotations(scores, players),
        graded=graded,
        stderr=stderr,
        undecided=games.decided.count(False),
        mean_length=float(np.mean(games.lengths)),
    )


def _mean(values: NDArray[np.float64], players: int) -> tuple[float, float | None, float]:
    """Return the mean of games' values, its error over rotations, and half its 95% interval (infinite below two)."""
    means = _by_rotation(values, players).mean(axis=1)
    if len(means) < 2:
        return float(values.mean()), None, inf
    stderr = float(means.std(ddof=1)) / sqrt(len(means))
    return float(values.mean()), stderr, student(0.0, stderr, len(means) - 1)[0]


def _mean_outcome(outcomes: tuple[float, ...], players: int) -> MeanOutcome | None:
    """Return the mean outcome; None if the backend did not say the games' outcomes."""
    if not outcomes:
        return None
    mean, stderr, reach = _mean(np.array(outcomes), players)
    bounds = (None, None) if stderr is None else (mean - reach, mean + reach)
    return MeanOutcome(mean=mean, stderr=stderr, lower=bounds[0], upper=bounds[1])


def count_rotations(scores: NDArray[np.float64], players: int) -> tuple[int, ...]:
    """Count the rotations by their score in half points.

    Entry k is the number of rotations that scored k half points, from 0 to 2 P (P - 1). ``scores`` [G] are from
    ``game_scores``. A beaten opponent gives two half points, a tie gives one. An incomplete rotation is left out.
    """
    sums = _by_rotation(scores, players).sum(axis=1)
    half_points = np.rint(sums * 2 * (players - 1)).astype(np.int64)
    return tuple(np.bincount(half_points, minlength=rotation_outcomes(players)).tolist())


def grade_rotations(scores: NDArray[np.float64], players: int) -> GradedScores | None:
    """Return the moments of whole rotations' scores, from those of games [G]; None without a whole rotation."""
    means = _by_rotation(scores, players).mean(axis=1)
    if not len(means):
        return None
    total, squares = float(means.sum()), float((means**2).sum())
    return GradedScores(players=players, rotations=len(means), total=total, squares=squares)


def _are_half_points(scores: NDArray[np.float64], players: int) -> bool:
    """Return whether all games are won, drawn or lost against each opponent."""
    half_points = scores * 2 * (players - 1)
    whole = np.abs(half_points - np.rint(half_points)).max() < SAME
    return bool(whole and scores.min() >= 0 and scores.max() <= 1)


def seat_wins(returns: NDArray[np.float32], truncated: NDArray[np.bool_]) -> tuple[tuple[int, ...], int]:
    """Return each seat's wins (sole best results) in finished games [G, P], and the number of games without one."""
    best = returns == returns.max(axis=1, keepdims=True)
    alone = (best.sum(axis=1) == 1) & ~truncated
    wins = tuple(int(count) for count in best[alone].sum(axis=0))
    return wins, int((~truncated).sum()) - sum(wins)


def _by_rotation(scores: NDArray[np.float64], players: int) -> NDArray[np.float64]:
    """Return the scores of whole rotations [R, P]."""
    rotations = len(scores) // players
    return scores[: rotations * players].reshape(rotations, players)


def _apart(returns: NDArray[np.float32], heroes: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the outcomes of the hero [G, 1] and of the others [G, P - 1]."""
    games, players = returns.shape
    mine = np.arange(players)[None, :] == heroes[:, None]
    return returns[mine].reshape(games, 1), returns[~mine].reshape(games, players - 1)
