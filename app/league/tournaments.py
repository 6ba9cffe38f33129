"""Background tournaments: matches between members while no other evaluation waits.

They connect the ratings of a league. Gauntlets alone would be biased, because a new model plays opponents that it was
trained against, and a lucky gauntlet makes admission likelier.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from flyball.app.config import TournamentSettings
from flyball.app.core import ModelHash, derive_seed, expected_score
from flyball.app.events import MatchesRequested
from flyball.app.league.league import Agent, League
from flyball.app.league.pool import saturated

OPPONENTS_AT_ONCE = 4  # most opponents of one request: few, because other evaluations wait until it is finished


class Pairing(NamedTuple):
    """Two agents to be matched, by id."""

    first: str
    second: str


def round_robin(names: Sequence[str]) -> tuple[tuple[Pairing, ...], ...]:
    """Return the rounds of a tournament that pairs all agents once.

    The circle method: one agent stays, the others rotate; with an odd number, one pauses in each round.
    """
    circle: list[str | None] = [*names, *([None] if len(names) % 2 else [])]
    rounds = []
    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        pairs = zip(circle[:half], reversed(circle[half:]), strict=True)
        rounds.append(
            tuple(Pairing(first, second) for first, second in pairs if first is not None and second is not None)
        )
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(rounds)


def placement(league: League, newcomer: Agent, count: int) -> tuple[Pairing, ...]:
    """Return the matches that place a newcomer on the ladder.

    A rated newcomer plays the most informative opponents: near in rating, seldom played. An unrated one plays rungs of
    the whole ladder, evenly spaced from the lowest to the highest. Unrated opponents come last, because games against
    them place nobody. Built-in players are left out, because each gauntlet plays them.
    """

    def information(agent: Agent) -> float:
        """Return how informative a match against an agent would be: p (1 - p) / (1 + games already played)."""
        if newcomer.elo is None and agent.elo is None:
            return 0.0
        p = 0.5 if newcomer.elo is None or agent.elo is None else expected_score(newcomer.elo - agent.elo)
        played = league.between(newcomer.id, agent.id)
        return p * (1 - p) / (1 + (played.games if played else 0))

    others = [agent for agent in league.checkpoints if agent.id != newcomer.id]
    ladder = sorted(others, key=lambda agent: (agent.elo is None, agent.elo or 0.0, agent.id))
    rated = [agent for agent in ladder if agent.elo is not None]
    if newcomer.elo is None and count > 1 and len(rated) > count:
        chosen = [rated[number * (len(rated) - 1) // (count - 1)] for number in range(count)]
    else:
        chosen = sorted(ladder, key=lambda agent: (agent.elo is None, -information(agent)))[:count]
    return tuple(Pairing(newcomer.id, agent.id) for agent in chosen)


def tournaments(league: League, newcomer: Agent, settings: TournamentSettings, seed: int) -> Iterator[MatchesRequested]:
    """Yield the match requests that follow a newcomer's admission.

    The new member plays placement matches. When its step is due, a round robin follows, in the order of the circle
    method, so that each member's games are spread evenly. Pairs with a one-sided expected score are skipped, and so
    are two built-in players. Each request derives its seed.
    """
    step = newcomer.step or 0
    pairings = list(placement(league, newcomer, settings.placement)) if settings.placement else []
    if settings.round_robin_every and step and step % settings.round_robin_every == 0:
        placed = {frozenset(pairing) for pairing in pairings}
        rounds = round_robin([agent.id for agent in league.active])
        pairings += [pairing for pairs in rounds for pairing in pairs if frozenset(pairing) not in placed]
    by_hero = defaultdict[Agent, list[str]](list)
    for pairing in pairings:
        first, second = (league.agents[name] for name in pairing)
        if first.elo is not None and second.elo is not None and saturated(expected_score(first.elo - second.elo)):
            continue
        hero, rival = (first, second) if first.kind == "checkpoint" else (second, first)
        if hero.kind == "checkpoint":
            by_hero[hero].append(rival.id)
    for hero, others in by_hero.items():
        for begin in range(0, len(others), OPPONENTS_AT_ONCE):
            yield MatchesRequested(
                purpose="tournament",
                model=ModelHash(hero.id),
                step=hero.step or 0,
                opponents=tuple(others[begin : begin + OPPONENTS_AT_ONCE]),
                games=settings.games,
                seed=derive_seed(seed, "tournament", newcomer.id, hero.id, begin),
            )
