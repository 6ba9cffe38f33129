"""Pairings of background tournaments, which connect the ratings of a league."""

from collections.abc import Sequence
from typing import NamedTuple

from app.core import expected_score
from app.league.agents import Agent
from app.league.league import League


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
