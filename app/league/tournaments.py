"""Background tournaments: matches of members while there is nothing else to evaluate.

They connect the ratings of a league. Gauntlets alone would be biased: a new model plays those it was trained against,
and a member was admitted by a lucky gauntlet.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from app.config import TournamentSettings
from app.core import ModelHash, derive_seed, expected_score
from app.events import MatchesRequested
from app.league.league import Agent, League
from app.league.pool import saturated


class Pairing(NamedTuple):
    """Two agents that shall meet, by id."""

    one: str
    other: str


def round_robin(names: Sequence[str]) -> tuple[tuple[Pairing, ...], ...]:
    """Return the rounds of a tournament in which everybody meets everybody once, nobody twice in one round.

    The circle method: one stays, the others go round; of an odd number somebody pauses in each round.
    """
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append(tuple(Pairing(one, other) for one, other in pairs if one is not None and other is not None))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(rounds)


def placement(league: League, newcomer: Agent, count: int) -> tuple[Pairing, ...]:
    """Return whom a newcomer should meet to be placed on the ladder.

    Once it is rated, those whose games tell most: near in rating, seldom met. Before that, rungs of the whole ladder,
    evenly spaced from the lowest to the highest. The unrated come last: games against them place nobody.
    """
    ladder = sorted((a for a in league.active if a.id != newcomer.id), key=_rung)
    rated = [agent for agent in ladder if agent.elo is not None]
    if newcomer.elo is None and count > 1 and len(rated) > count:
        chosen = [rated[number * (len(rated) - 1) // (count - 1)] for number in range(count)]
    else:
        chosen = sorted(ladder, key=lambda agent: (agent.elo is None, -_worth(league, newcomer, agent)))[:count]
    return tuple(Pairing(newcomer.id, agent.id) for agent in chosen)


def most_telling(league: League, count: int) -> tuple[Pairing, ...]:
    """Return the pairs of active agents whose games would tell most about the ratings, each of the agents once at most.

    A game tells p (1 - p) about the difference of two ratings; each game already played makes the next one tell less.
    """
    members = league.active
    worth = {
        Pairing(one.id, other.id): _worth(league, one, other)
        for place, one in enumerate(members)
        for other in members[place + 1 :]
    }
    chosen: list[Pairing] = []
    busy: set[str] = set()
    for pairing in sorted(worth, key=lambda pairing: -worth[pairing]):
        if len(chosen) < count and not busy & {*pairing}:
            chosen.append(pairing)
            busy |= {*pairing}
    return tuple(chosen)


def _worth(league: League, one: Agent, other: Agent) -> float:
    if one.elo is None and other.elo is None:
        return 0.0
    p = 0.5 if one.elo is None or other.elo is None else expected_score(one.elo - other.elo)
    played = league.between(one.id, other.id)
    return p * (1 - p) / (1 + (played.games if played else 0))


def _rung(agent: Agent) -> tuple[bool, float, str]:
    return agent.elo is None, agent.elo or 0.0, agent.id


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
