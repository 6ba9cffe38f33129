"""Members of the league that a gauntlet is anchored on besides, and how strong they are known to be."""

from collections.abc import Collection, Mapping

from app.core import Elo, ModelHash
from app.events import EvaluationRequested
from app.league import Agent, League, Wanted, select

Known = tuple[float, float] | None
"""A rating and its standard error, if there is one."""


def anchors(
    league: League, request: EvaluationRequested, elo: float | None, taken: Collection[str], count: int
) -> tuple[ModelHash, ...]:
    """Return members that the model is to play, other than those that it plays anyway.

    They are drawn: those whose games tell most about a model as strong as the current one are likelier. Members without
    a rating place nobody and are left out.

    Args:
        league: of the configuration.
        request: whose seed decides.
        elo: of the current model, if there is one.
        taken: who is played anyway.
        count: how many are wanted.
    """
    hero = Agent(
        id=request.model, kind="checkpoint", step=request.step, elo=None if elo is None else Elo(elo), elo_stderr=None
    )
    drawn = select(league, "pfsp", Wanted(hero, len(league.active), request.seed, "var"))
    fit = (agent for agent in drawn if agent.kind == "checkpoint" and agent.elo is not None and agent.id not in taken)
    return tuple(ModelHash(agent.id) for agent in fit)[:count]


def known_ratings(league: League) -> Mapping[str, Known]:
    """Return the ratings of a league's members by name; the random bot's is 0 by definition."""
    members = league.agents.values()
    return {one.id: None if one.elo is None else (one.elo, one.elo_stderr or 0.0) for one in members}
