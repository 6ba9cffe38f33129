"""Admission to a league, and retention: two rules, not one.

With the seed's single rule every tenth checkpoint stayed for ever. Here recent checkpoints expire; anchors and elites
stay, and so do the current model and the one that a rollback would go back to.
"""

from typing import Literal, NamedTuple

from app.config import AdmissionSettings
from app.events import LeagueRole
from app.league.league import Agent, League


class Retirement(NamedTuple):
    """Members that leave, with reasons."""

    agent: Agent
    reason: Literal["expired", "evicted"]


def admission(step: int, elo: float | None, league: League, settings: AdmissionSettings) -> tuple[LeagueRole, ...]:
    """Return the roles in which a new checkpoint enters; none keeps it out.

    The first ones are always recent: until they are there self-play meets built-in players only, and that would last
    where ratings rise slowly. A new high score is above everybody, and by the margin above those who stay for ever:
    recents that creep up must not raise the bar that they will not hold. The unrated hold none.
    """
    latest = league.latest_step
    in_time = latest is None or not _expired(step, latest, settings)
    due = len(league.checkpoints) < settings.founders or step % settings.recent_every == 0
    wanted: dict[LeagueRole, bool] = {
        "recent": in_time and due,
        "anchor": step % settings.anchor_every == 0,
        "elite": elo is not None and _high_score(elo, league, settings.elite_margin),
        "lasting": elo is not None and elo >= _newest_lasting(league) + settings.lasting_elo,
    }
    return tuple(role for role, entitled in wanted.items() if entitled)


def retirements(league: League, settings: AdmissionSettings) -> tuple[Retirement, ...]:
    """Return who has to leave, oldest first: recents whose time is over, then the oldest above the capacity."""
    kept, latest, checkpoints = {league.champion, league.last_good}, league.latest_step or 0, league.checkpoints
    mortal = [agent for agent in checkpoints if not agent.permanent and agent.id not in kept]
    expired = [agent for agent in mortal if _expired(agent.step or 0, latest, settings)]
    staying = [agent for agent in mortal if agent not in expired]
    excess = max(0, len(checkpoints) - len(expired) - settings.capacity)
    return (
        *(Retirement(agent, "expired") for agent in expired),
        *(Retirement(agent, "evicted") for agent in staying[:excess]),
    )


def _newest_lasting(league: League) -> float:
    """Return the rating of the newest lasting anchor; before there is one the random bot's."""
    ratings = [agent.elo for agent in league.lasting if agent.elo is not None]
    return ratings[-1] if ratings else 0.0


def _expired(step: int, latest: int, settings: AdmissionSettings) -> bool:
    return step <= latest - settings.recent_for


def _high_score(elo: float, league: League, margin: float) -> bool:
    rated = [(agent.elo, agent.permanent) for agent in league.checkpoints if agent.elo is not None]
    return bool(rated) and all(elo > other + margin * permanent for other, permanent in rated)
