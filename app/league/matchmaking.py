"""Matchmaking: a model's opponents in self-play and in evaluations.

Self-play draws by category, evaluations by strategy. In self-play the category is drawn first, then the agent in it,
because otherwise the number of agents would change the shares. A category without members leaves its share to the
others, in proportion. Agents may be in several categories: a baseline of about the hero's rating is a peer too.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Literal, NamedTuple, get_args

from flyball.app.config import Curve, MatchmakingSettings
from flyball.app.core import Wheel, derive_point, expected_score
from flyball.app.events import Category
from flyball.app.league.league import Agent, League

Weights = dict[str, float]  # of each agent in its category, by id


class Pick(NamedTuple):
    """A possible opponent, with the reason for it."""

    category: Category
    agent: str


def win_probability(league: League, hero: Agent, other: Agent, prior_games: float) -> float:
    """Return the hero's expected score, in (0, 1), against another agent.

    The score that ratings predict, 1/2 without ratings, counts as ``prior_games`` games in addition to those really
    played. So a few real games hardly move it, and many outweigh it.
    """
    believed = 0.5 if hero.elo is None or other.elo is None else expected_score(hero.elo - other.elo)
    played = league.between(hero.id, other.id)
    games, points = (played.games, played.score) if played else (0, 0.0)
    return (points + prior_games * believed) / (games + prior_games)


def curve_weight(curve: Curve, p: float) -> float:
    """Return an opponent's weight, where the hero beats it with probability ``p``.

    ``hard`` prefers opponents that beat the hero, ``var`` its equals. Source: Vinyals et al., Nature 575
    (2019), Methods, "Prioritized fictitious self-play".
    """
    match curve:
        case "hard":
            return (1 - p) ** 2
        case "var":
            return p * (1 - p)
        case "even":
            return 1.0


def former_winners(league: League, hero: Agent, lost_games: int) -> frozenset[str]:
    """Return the agents that beat an ancestor of the hero. Only pairs with at least ``lost_games`` games count."""
    ancestors, winners = set(league.lineage(hero)), set[str]()
    for agent, others in league.games.items():
        for other, played in others.items():
            if played.games >= lost_games:
                if played.mean > 0.5 and other in ancestors:
                    winners.add(agent)
                elif played.mean < 0.5 and agent in ancestors:
                    winners.add(other)
    return frozenset(winners)


def categories(league: League, hero: Agent, settings: MatchmakingSettings) -> Mapping[Category, Weights]:
    """Return the weights of the agents in every category.

    The hero is only in the mirror. With fewer than ``cold_start`` checkpoints there are only baselines, not even the
    mirror.
    """
    builtins, checkpoints = league.baselines, league.checkpoints
    baselines = {agent.id: 1.0 for agent in builtins if agent.id != hero.id}
    if len(checkpoints) < settings.cold_start and baselines:
        return {"baselines": baselines}
    others = {agent.id: agent for agent in (*builtins, *checkpoints) if agent.id != hero.id}

    @cache
    def chance(name: str) -> float:
        return win_probability(league, hero, others[name], settings.prior_games)

    def weighted(names: Iterable[str]) -> Weights:
        weights = {} if curve == "even" else {name: curve_weight(curve, chance(name)) for name in names}
        return weights if any(weights.values()) else dict.fromkeys(names, 1.0)

    def is_peer(agent: Agent) -> bool:
        return hero.elo is not None and agent.elo is not None and abs(hero.elo - agent.elo) <= settings.peer_elo

    curve, winners = settings.curve, former_winners(league, hero, settings.lost_games)
    return {
        "mirror": {hero.id: 1.0},
        "peers": weighted([name for name, agent in others.items() if is_peer(agent)]),
        "exploitable": weighted([name for name in others if name in winners and chance(name) > 0.5]),
        "baselines": baselines,
        "prioritised": weighted(others),
    }


def distribution(league: League, hero: Agent, settings: MatchmakingSettings) -> dict[Pick, float]:
    """Return the probability of every pick; probabilities sum to 1. Without other agents the hero plays itself."""
    members = categories(league, hero, settings)
    shares = {category: getattr(settings, category) for category, weights in members.items() if weights}
    if len(shares) == 1:  # at a cold start the baselines are played, whatever their share
        shares = dict.fromkeys(shares, 1.0)
    total = sum(shares.values())
    if not total:
        return {Pick("mirror", hero.id): 1.0}
    widths = {category: sum(members[category].values()) for category in shares}
    return {
        Pick(category, name): share / total * weight / widths[category]
        for category, share in shares.items()
        for name, weight in members[category].items()
        if share > 0 and weight > 0
    }


Strategy = Literal["champion", "top_k", "random", "recent", "round_robin", "pfsp"]
STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)

PRIOR_GAMES = 10.0  # games that the ratings count for in the strategy ``pfsp``


def select(
    league: League, strategy: Strategy, hero: Agent, count: int = 1, *, seed: int = 0, curve: Curve = "hard"
) -> tuple[Agent, ...]:
    """Return up to ``count`` different active members other than the hero.

    The hero need not be a member. The strategies are:

    - ``champion``: the current model, or the first of ``top_k`` if that is the hero or no member; at most one.
    - ``top_k``: the checkpoints of the highest ratings first; the unrated are left out.
    - ``random``: drawn by ``seed``, all equally likely.
    - ``recent``: the newest checkpoints first.
    - ``round_robin``: turn number ``seed`` through all members; it begins where the turn before ended.
    - ``pfsp``: drawn by ``seed``, with the ``curve_weight`` of the win probability.
    """
    others = [agent for agent in league.active if agent.id != hero.id]
    checkpoints = [agent for agent in others if agent.kind == "checkpoint"]
    top = sorted((agent for agent in checkpoints if agent.elo is not None), key=lambda agent: -(agent.elo or 0.0))
    chosen: Sequence[Agent]
    match strategy:
        case "champion":
            chosen = ([agent for agent in others if agent.id == league.champion] or top)[:1]
        case "top_k":
            chosen = top
        case "random":
            chosen = _draw(dict.fromkeys(others, 1.0), count, seed)
        case "recent":
            chosen = checkpoints[::-1]
        case "round_robin":
            first = seed * count % max(1, len(others))
            chosen = [*others[first:], *others[:first]]
        case "pfsp":
            chances = {agent: win_probability(league, hero, agent, PRIOR_GAMES) for agent in others}
            chosen = _draw({agent: curve_weight(curve, chance) for agent, chance in chances.items()}, count, seed)
    return tuple(chosen[:count])


def _draw(weights: dict[Agent, float], count: int, seed: int) -> Sequence[Agent]:
    """Draw without replacement."""
    left, drawn = dict(weights), list[Agent]()
    while len(drawn) < count and any(left.values()):
        agent = Wheel(left).draw(derive_point(seed, "select", len(drawn)))
        drawn.append(agent)
        del left[agent]
    return drawn
