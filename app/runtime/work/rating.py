"""Ratings from an evaluation's games: its model's, and changed ones of others."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from app.core import Elo, ModelHash
from app.evaluation import OpponentScore, performance_rating
from app.events import AgentRating, MatchResult
from app.league import LEAST_ERROR, Estimate, Pool, totals_of

CHANGED_ELO = 1.0
"""Change of a rating that is published."""

CHANGED_ERROR = 0.2
"""Relative change of a rating's error that is published."""


class Rated(NamedTuple):
    """Ratings after an evaluation.

    Attributes:
        hero: of the model that was evaluated.
        opponents: of its rated opponents, by name.
        changed: ratings of known models and built-in players to publish again.
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
        matches: their results.
        pool: games among members of the pool.
        known: latest published ratings of agents that are published again; ``None`` for none yet.
    """
    played = totals_of(hero, matches)
    found, games = pool.ratings(hero, played).comparable(), pool.games(played)
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


def _is_news(published: Estimate | None, found: Estimate) -> bool:
    if published is None:
        return True
    moved = abs(found.elo - published.elo) >= CHANGED_ELO
    return moved or abs(found.stderr - published.stderr) >= max(LEAST_ERROR, CHANGED_ERROR * published.stderr)
