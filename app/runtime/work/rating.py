"""What the games of an evaluation say of strength: its model's, and that of others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.core import Elo, ModelHash
from app.evaluation import OpponentScore, performance_rating
from app.events import AgentRating, MatchResult
from app.league import Estimate, Pool, totals_of

TOLD_ELO = 1.0
"""A rating that changed by less is not worth telling."""


class Rated(NamedTuple):
    """What an evaluation says of strength.

    Attributes:
        hero: of the model that was evaluated.
        opponents: of those it met, by name, as far as they are rated.
        changed: ratings of known models and built-in players that are not what was told before.
    """

    hero: Estimate
    opponents: Mapping[str, Elo]
    changed: tuple[AgentRating, ...] = ()


def rated_together(
    hero: ModelHash, matches: Sequence[MatchResult], pool: Pool, known: Mapping[str, Estimate | None]
) -> Rated:
    """Fit an evaluation's games together with those of the pool.

    Args:
        hero: the model that played them.
        matches: how they went.
        pool: whose games rate models.
        known: the ratings that were told last, of those whom others want to know of; None before there was one.
    """
    played = totals_of(hero, matches)
    ratings, games = pool.ratings(hero, played), pool.games(played)
    found = {agent: ratings.rating(agent) for agent in ratings.agents}
    changed = tuple(
        AgentRating(agent=agent, elo=estimate.elo, elo_stderr=estimate.stderr, games=games[agent])
        for agent, estimate in found.items()
        if agent in known and _is_news(known[agent], estimate)
    )
    return Rated(found[hero], {agent: estimate.elo for agent, estimate in found.items()}, changed)


def rated_alone(matches: Sequence[MatchResult], known: Mapping[str, Estimate | None]) -> Rated:
    """Rate a model by these games alone: those of a gate decide about one pair, and say nothing of other ratings."""
    met = {match.player: estimate for match in matches if (estimate := known.get(match.player))}
    scores = [
        OpponentScore(estimate.elo, match.score.mean, match.games, estimate.stderr)
        for match in matches
        if (estimate := met.get(match.player))
    ]
    return Rated(Estimate(*performance_rating(scores)), {name: estimate.elo for name, estimate in met.items()})


def _is_news(told: Estimate | None, found: Estimate) -> bool:
    return told is None or abs(found.elo - told.elo) >= TOLD_ELO
