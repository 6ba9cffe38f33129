"""Match statistics: wins, draws, losses and the score with its interval."""

from collections.abc import Sequence
from hashlib import blake2b
from math import sqrt
from typing import Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from app.config import Settings
from app.core import FlyballError, Rate, rotation_outcomes


class NoGames(FlyballError):
    """Too few games for the requested statistics."""


Verdict = Literal["won", "drawn", "lost", "truncated"]


class Columns(Settings):
    """Base of results that are stored in columns: tuples of equal length."""

    def plus(self, later: Self) -> Self:
        """Return these columns followed by those of ``later``.

        ``later`` must begin with a new rotation.
        """
        return self.replace(**{name: getattr(self, name) + getattr(later, name) for name in type(self).model_fields})


class MatchGames(Columns):
    """Results of a match's games for the hero.

    P consecutive games are a rotation. ``scores`` are from ``game_scores``; ``fingerprints`` are hashes of whole
    histories.
    """

    scores: tuple[float, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    lengths: tuple[int, ...] = ()
    fingerprints: tuple[str, ...] = ()


class MatchStatistics(Settings):
    """Statistics of one hero against one opponent in all other seats.

    A win is the best result alone, a draw is a tie for the best. ``score`` is the mean share of opponents beaten, a tie
    counting half: 1/2 between equals, for any number of players. Its interval is Wilson's. A truncated game counts half
    a point and is neither won, drawn nor lost: wins + draws + losses + truncated = games. ``stderr`` is the standard
    error of the mean score over rotations, because games of one rotation share their deal. ``rotations`` are the
    counts of ``count_rotations``.
    """

    games: int = Field(ge=1)
    wins: int = Field(ge=0)
    draws: int = Field(ge=0)
    losses: int = Field(ge=0)
    truncated: int = Field(ge=0)
    distinct_games: int = Field(ge=1, description="whole histories; a game that is repeated says nothing new")
    score: Rate
    rotations: tuple[int, ...]
    stderr: float | None = Field(description="None with fewer than two rotations")
    mean_length: float = Field(ge=0, description="decisions a game, forced moves not counted")


def game_scores(returns: NDArray[np.float32], heroes: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return each game's score [G] in [0, 1].

    The score is the share of opponents that the hero beat; a tie counts half. ``returns`` [G, P] are the outcomes,
    ``heroes`` [G] the hero's seats.
    """
    own, others = _apart(returns, heroes)
    beaten = (own > others).sum(axis=1) + (own == others).sum(axis=1) / 2
    return np.asarray(beaten / others.shape[1], dtype=np.float64)


def match_games(
    returns: NDArray[np.float32],
    heroes: NDArray[np.int64],
    truncated: NDArray[np.bool_],
    lengths: NDArray[np.int64],
    histories: Sequence[Sequence[int]],
) -> MatchGames:
    """Return the games' results for the hero.

    ``heroes`` [G] are the hero's seats; see ``Outcomes`` for the other columns.
    """
    own, others = _apart(returns, heroes)
    best = others.max(axis=1)
    verdicts = np.select([truncated, own[:, 0] > best, own[:, 0] == best], ["truncated", "won", "drawn"], "lost")
    return MatchGames(
        scores=game_scores(returns, heroes).tolist(),
        verdicts=verdicts.tolist(),
        lengths=np.asarray(lengths).tolist(),
        fingerprints=tuple(
            blake2b(np.asarray(history, dtype=np.int32).tobytes(), digest_size=8).hexdigest() for history in histories
        ),
    )


def match_statistics(games: MatchGames, players: int) -> MatchStatistics:
    """Return the statistics of a match.

    Raises ``NoGames`` for a match without games.
    """
    if not games.scores:
        raise NoGames("A match of 0 games has no statistics.", hint="Play at least one game.")
    count = {verdict: games.verdicts.count(verdict) for verdict in get_args(Verdict)}
    scores = np.array(games.scores)
    means = _by_rotation(scores, players).mean(axis=1)
    return MatchStatistics(
        games=len(scores),
        wins=count["won"],
        draws=count["drawn"],
        losses=count["lost"],
        truncated=count["truncated"],
        distinct_games=len(set(games.fingerprints)),
        score=Rate.of(float(scores.sum()), len(scores)),
        rotations=count_rotations(scores, players),
        stderr=float(means.std(ddof=1)) / sqrt(len(means)) if len(means) > 1 else None,
        mean_length=float(np.mean(games.lengths)),
    )


def count_rotations(scores: NDArray[np.float64], players: int) -> tuple[int, ...]:
    """Count the rotations by their score in half points.

    Entry k is the number of rotations that scored k half points, from 0 to 2 P (P - 1). ``scores`` [G] are from
    ``game_scores``. A beaten opponent gives two half points, a tie gives one. An incomplete rotation is left out.
    """
    sums = _by_rotation(scores, players).sum(axis=1)
    half_points = np.rint(sums * 2 * (players - 1)).astype(np.int64)
    return tuple(np.bincount(half_points, minlength=rotation_outcomes(players)).tolist())


def seat_wins(returns: NDArray[np.float32], truncated: NDArray[np.bool_]) -> tuple[tuple[int, ...], int]:
    """Return each seat's wins, and the number of games without one winner.

    Of the games [G, P], only finished ones count. A win is the best result alone.
    """
    best = returns == returns.max(axis=1, keepdims=True)
    alone = (best.sum(axis=1) == 1) & ~truncated
    wins = tuple(int(count) for count in best[alone].sum(axis=0))
    return wins, int((~truncated).sum()) - sum(wins)


def _by_rotation(scores: NDArray[np.float64], players: int) -> NDArray[np.float64]:
    """Return the scores of whole rotations [R, P]."""
    rotations = len(scores) // players
    return scores[: rotations * players].reshape(rotations, players)


def _apart(returns: NDArray[np.float32], heroes: NDArray[np.int64]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return the outcomes of the hero and of the others.

    Their shapes are [G, 1] and [G, P - 1].
    """
    games, players = returns.shape
    mine = np.arange(players)[None, :] == heroes[:, None]
    return returns[mine].reshape(games, 1), returns[~mine].reshape(games, players - 1)
