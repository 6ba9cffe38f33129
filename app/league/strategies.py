"""Strategies of the opponent pool of an evaluation."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from app.config import Curve
from app.core import Wheel, derive_point
from app.league.league import Agent, League
from app.league.matchmaking import curve_weight, win_probability

Strategy = Literal["champion", "top_k", "random", "recent", "round_robin", "pfsp"]
PRIOR_GAMES = 10.0
"""Games that the ratings count for in the strategy ``pfsp``."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Arguments of a strategy.

    Attributes:
        hero: who looks for opponents; a member of the league or not, it is never its own.
        count: how many; fewer when there are no more.
        seed: of the draws of ``random`` and ``pfsp``; for ``round_robin``, the number of the turn.
        curve: the weights of ``pfsp``.
    """

    hero: Agent
    count: int = 1
    seed: int = 0
    curve: Curve = "hard"


def select(league: League, strategy: Strategy, wanted: Wanted) -> tuple[Agent, ...]:
    """Return different opponents, active members all.

    - ``champion``: the current model; where that is no member, or the hero, the first of ``top_k``. Just one.
    - ``top_k``: the checkpoints of the highest ratings first; the unrated are left out.
    - ``random``: drawn, everybody as likely.
    - ``recent``: the newest checkpoints first.
    - ``round_robin``: as many as wanted, going on each turn where the turn before ended, round and round.
    - ``pfsp``: drawn by the win probability; see ``curve_weight``.
    """
    others = [agent for agent in league.active if agent.id != wanted.hero.id]
    chosen = STRATEGIES[strategy](league, others, wanted) if others else ()
    return tuple(chosen[: wanted.count])


def _champion(league: League, others: Sequence[Agent], wanted: Wanted) -> Sequence[Agent]:
    current = [agent for agent in others if agent.id == league.champion]
    return (current or _top(league, others, wanted))[:1]


def _top(_: League, others: Sequence[Agent], __: Wanted) -> Sequence[Agent]:
    rated = (agent for agent in others if agent.kind == "checkpoint" and agent.elo is not None)
    return sorted(rated, key=lambda agent: -(agent.elo or 0.0))


def _random(_: League, others: Sequence[Agent], wanted: Wanted) -> Sequence[Agent]:
    return _drawn(dict.fromkeys(others, 1.0), wanted)


def _recent(_: League, others: Sequence[Agent], __: Wanted) -> Sequence[Agent]:
    return [agent for agent in reversed(others) if agent.kind == "checkpoint"]


def _round_robin(_: League, others: Sequence[Agent], wanted: Wanted) -> Sequence[Agent]:
    first = wanted.seed * wanted.count % len(others)
    return [*others[first:], *others[:first]]


def _pfsp(league: League, others: Sequence[Agent], wanted: Wanted) -> Sequence[Agent]:
    chances = {agent: win_probability(league, wanted.hero, agent, PRIOR_GAMES) for agent in others}
    return _drawn({agent: curve_weight(wanted.curve, chance) for agent, chance in chances.items()}, wanted)


def _drawn(weights: dict[Agent, float], wanted: Wanted) -> Sequence[Agent]:
    """Draw without putting back."""
    left, drawn = dict(weights), list[Agent]()
    while len(drawn) < wanted.count and any(left.values()):
        agent = Wheel(left).draw(derive_point(wanted.seed, "select", len(drawn)))
        drawn.append(agent)
        del left[agent]
    return drawn


STRATEGIES: Mapping[Strategy, Callable[[League, Sequence[Agent], Wanted], Sequence[Agent]]] = {
    "champion": _champion,
    "top_k": _top,
    "random": _random,
    "recent": _recent,
    "round_robin": _round_robin,
    "pfsp": _pfsp,
}
