"""Background tournaments: matches of members while there is nothing else to evaluate.

They connect the ratings of a league. Gauntlets alone would be biased: a new model plays those it was trained against,
and a member was admitted by a lucky gauntlet.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator

from app.config import TournamentSettings
from app.core import ModelHash, derive_seed, expected_score
from app.events import MatchesRequested
from app.league.agents import Agent
from app.league.league import League
from app.league.pairing import Pairing, placement, round_robin
from app.league.pool import saturated

OPPONENTS_AT_ONCE = 4
"""Most opponents of one request, because other evaluations wait until one that has begun is finished."""


def tournaments(league: League, newcomer: Agent, settings: TournamentSettings, seed: int) -> Iterator[MatchesRequested]:
    """Iterate over the matches that an admission leads to.

    The new member plays placement matches. When its step is due, a round robin follows, in the order of the circle
    method, so that each member's games are spread evenly. Pairs with a one-sided expected score are skipped.

    Args:
        league: with the new member.
        newcomer: that member.
        settings: how many.
        seed: of the configuration; each request derives its own.
    """
    step = newcomer.step or 0
    pairings = list(placement(league, newcomer, settings.placement)) if settings.placement else []
    if settings.round_robin_every and step and step % settings.round_robin_every == 0:
        placed = {frozenset(pairing) for pairing in pairings}
        rounds = round_robin([agent.id for agent in league.active])
        pairings += [pairing for one in rounds for pairing in one if frozenset(pairing) not in placed]
    telling = (pairing for pairing in pairings if not _one_sided(league, pairing))
    for hero, others in _by_hero(league, telling).items():
        for first in range(0, len(others), OPPONENTS_AT_ONCE):
            yield MatchesRequested(
                purpose="tournament",
                model=ModelHash(hero.id),
                step=hero.step or 0,
                opponents=tuple(others[first : first + OPPONENTS_AT_ONCE]),
                games=settings.games,
                seed=derive_seed(seed, "tournament", newcomer.id, hero.id, first),
            )


def _one_sided(league: League, pairing: Pairing) -> bool:
    one, other = (league.agents[name].elo for name in pairing)
    return one is not None and other is not None and saturated(expected_score(one - other))


def _by_hero(league: League, pairings: Iterable[Pairing]) -> dict[Agent, list[str]]:
    """Gather pairings by their checkpoint; two built-in players are of no interest to anybody."""
    found = defaultdict[Agent, list[str]](list)
    for pairing in pairings:
        one, other = (league.agents[name] for name in pairing)
        hero, rival = (one, other) if one.kind == "checkpoint" else (other, one)
        if hero.kind == "checkpoint":
            found[hero].append(rival.id)
    return dict(found)
