"""One configuration's league as its keeper knows it, and the line of its promoted models."""

from collections.abc import Iterable
from typing import Literal

from app.core import ModelHash
from app.events import (
    AgentRating,
    CheckpointRetired,
    EvaluationCompleted,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    Value,
)
from app.league.agents import Agent
from app.league.league import League

Leaving = Literal["expired", "evicted", "rolled_back"]


class LeagueRow(Value):
    """One configuration's league.

    Attributes:
        league: its members, and what they have played.
        rated: the model that was rated last; not known is only its parent.
        promoted: the latest current models, the present one last, members or not. Their parents are their nearest
            ancestors in the league.
        told: what was decided last about whom the current model meets.
    """

    league: League = League()
    rated: Agent | None = None
    promoted: tuple[Agent, ...] = ()
    told: MatchmakingUpdated | None = None


FIRST = LeagueRow()
"""The row of a configuration of whose league nothing is known."""


def rated_agent(data: EvaluationCompleted) -> Agent:
    """Return a model as its rating games show it."""
    return Agent(
        id=data.model,
        kind="checkpoint",
        step=data.step,
        elo=data.elo,
        elo_stderr=data.elo_stderr,
        matches=sum(match.games for match in data.results),
    )


def promoted_agent(row: LeagueRow, data: ModelPromoted) -> Agent:
    """Return a promoted model, with its rating if it was the last to be rated, and its nearest ancestor that is known.

    It was trained from the model before it: of others no candidate is promoted.
    """
    before = next((agent for agent in row.promoted if agent.id == data.previous), None)
    ancestors = (data.previous, before and before.parent)
    parent = next((name for name in ancestors if name in row.league.agents and name != data.model), None)
    if row.rated is not None and row.rated.id == data.model:
        return row.rated.model_copy(update={"parent": parent})
    return Agent(id=data.model, kind="checkpoint", step=data.step, parent=parent)


def with_ratings(promoted: tuple[Agent, ...], ratings: Iterable[AgentRating]) -> tuple[Agent, ...]:
    """Return the promoted models with newer ratings, those that have one."""
    newer = {one.agent: one for one in ratings}
    return tuple(
        agent.rated(one.elo, one.elo_stderr, one.games) if (one := newer.get(agent.id)) else agent for agent in promoted
    )


def cut_back(promoted: tuple[Agent, ...], data: ModelRolledBack) -> tuple[tuple[Agent, ...], tuple[Agent, ...]]:
    """Return the promoted models up to the one that was gone back to, and those after it."""
    names = [agent.id for agent in promoted]
    if data.to_model in names:
        end = names.index(data.to_model) + 1
        return promoted[:end], promoted[end:]
    bad = tuple(agent for agent in promoted if agent.id == data.from_model)
    return tuple(agent for agent in promoted if agent not in bad), bad


def taken_along(league: League, gone: Iterable[Agent]) -> tuple[CheckpointRetired, ...]:
    """Return the retirements of those members who were promoted after the model that was gone back to."""
    active = {agent.id for agent in league.checkpoints}
    return tuple(retirement_of(agent, "rolled_back") for agent in gone if agent.id in active)


def may_change_matches(before: LeagueRow, row: LeagueRow, data: Payload) -> bool:
    """Return whether an event may change the current model's opponents.

    What it meets follows from who is in the league, and from the games of members, of its ancestors and its own. Those
    of a stranger, mostly a candidate that was just rated, are noted and change nothing.
    """
    if not isinstance(data, EvaluationCompleted) or row.league.agents is not before.league.agents:
        return True
    return any(data.model in (agent.id, agent.parent) for agent in (*row.promoted, *row.league.agents.values()))


def retirement_of(agent: Agent, reason: Leaving) -> CheckpointRetired:
    """Return what is said of a member that leaves."""
    return CheckpointRetired(model=ModelHash(agent.id), step=agent.step or 0, reason=reason)
