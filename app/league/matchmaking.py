"""Matchmaking: a model's opponents in self-play.

The category is drawn first, then the agent in it, because weights per agent would give other shares. A
category without members leaves its share to the others, in proportion. Agents may be in several categories: a baseline
of about the hero's rating is a peer too.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from app.config import Curve, MatchmakingSettings
from app.core import expected_score
from app.events import Category
from app.league.league import Agent, League

Weights = dict[str, float]
"""How much each agent, by id, weighs in its category."""


class Pick(NamedTuple):
    """An opponent that matchmaking chose, and why."""

    category: Category
    agent: str


def win_probability(league: League, hero: Agent, other: Agent, prior_games: float) -> float:
    """Return the score in (0, 1) that the hero may expect of a game against another.

    That of the ratings, where both have one, else 1/2, counted like ``prior_games`` games beside those that the two
    have really played: few games hardly move it, many outweigh it.
    """
    believed = 0.5 if hero.elo is None or other.elo is None else expected_score(hero.elo - other.elo)
    played = league.between(hero.id, other.id)
    games, points = (played.games, played.score) if played else (0, 0.0)
    return (points + prior_games * believed) / (games + prior_games)


def curve_weight(curve: Curve, p: float) -> float:
    """Return the weight of an opponent that the hero beats with probability p.

    ``hard`` prefers those that beat the hero, ``var`` those that are as good as it. Source: Vinyals et al., Nature 575
    (2019), Methods, "Prioritized fictitious self-play".
    """
    match curve:
        case "hard":
            return (1 - p) ** 2
        case "var":
            return p * (1 - p)
        case "even":
            return 1.0


def used_to_lose_to(league: League, hero: Agent, lost_games: int) -> frozenset[str]:
    """Return those against whom an ancestor of the hero scored less than half, in at least ``lost_games`` games."""
    ancestors = set(league.lineage(hero))
    winners = set[str]()
    for one, others in league.games.items():
        for other, played in others.items():
            if played.games < lost_games:
                continue
            mean = played.mean
            if mean > 0.5 and other in ancestors:
                winners.add(one)
            elif mean < 0.5 and one in ancestors:
                winners.add(other)
    return frozenset(winners)


def categories(league: League, hero: Agent, settings: MatchmakingSettings) -> Mapping[Category, Weights]:
    """Return the members of every category; the hero, a member of the league or not, is in none but the mirror.

    With fewer than ``cold_start`` checkpoints everybody but the baselines is left out, the mirror too.
    """
    builtins, checkpoints = league.baselines, league.checkpoints
    baselines = {agent.id: 1.0 for agent in builtins if agent.id != hero.id}
    if len(checkpoints) < settings.cold_start and baselines:
        return {"baselines": baselines}
    others = {agent.id: agent for agent in (*builtins, *checkpoints) if agent.id != hero.id}

    @cache
    def chance(name: str) -> float:
        return win_probability(league, hero, others[name], settings.prior_games)

    beaten_by = used_to_lose_to(league, hero, settings.lost_games)
    peers = [name for name, agent in others.items() if _peers(hero, agent, settings.peer_elo)]
    exploitable = [name for name in others if name in beaten_by and chance(name) > 0.5]
    return {
        "mirror": {hero.id: 1.0},
        "peers": _weighted(peers, chance, settings.curve),
        "exploitable": _weighted(exploitable, chance, settings.curve),
        "baselines": baselines,
        "prioritised": _weighted(others, chance, settings.curve),
    }


def distribution(league: League, hero: Agent, settings: MatchmakingSettings) -> dict[Pick, float]:
    """Return the probability of every pick; they sum to 1. With nobody else to meet the hero meets itself."""
    members = categories(league, hero, settings)
    shares = {category: getattr(settings, category) for category, weights in members.items() if weights}
    if len(shares) == 1:  # a cold start's baselines are met whatever their share
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


def _peers(hero: Agent, other: Agent, within: float) -> bool:
    return hero.elo is not None and other.elo is not None and abs(hero.elo - other.elo) <= within


def _weighted(names: Iterable[str], chance: Callable[[str], float], curve: Curve) -> Weights:
    """Return what a curve makes of some names' chances, which are only asked for where it depends on them."""
    weights = {} if curve == "even" else {name: curve_weight(curve, chance(name)) for name in names}
    return weights if any(weights.values()) else dict.fromkeys(names, 1.0)
