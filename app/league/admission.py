"""Admission to a league, and retention: recent checkpoints expire; anchors, elites and protected models stay."""

from typing import Literal, NamedTuple

from flyball.app.config import AdmissionSettings
from flyball.app.core import Elo
from flyball.app.events import LeagueRole
from flyball.app.league.league import Agent, League


class Retirement(NamedTuple):
    """A member that leaves the league, with the reason."""

    agent: Agent
    reason: Literal["expired", "evicted"]


def admission(step: int, elo: float | None, league: League, settings: AdmissionSettings) -> tuple[LeagueRole, ...]:
    """Return the roles of a new checkpoint.

    A checkpoint without roles does not enter the league. The first ``founders`` checkpoints are always recent, so that
    self-play soon has other opponents than built-in players. An elite is rated above all members, and by a margin above
    the permanent ones. The margin does not apply to recent members, because they leave again. An unrated checkpoint is
    neither elite nor lasting.
    """
    latest, checkpoints = league.latest_step, league.checkpoints
    due = len(checkpoints) < settings.founders or step % settings.recent_every == 0
    rated = [(agent.elo, agent.permanent) for agent in checkpoints if agent.elo is not None]
    lasting = [agent.elo for agent in league.lasting if agent.elo is not None] or [Elo(0.0)]  # or the random bot
    entitled_to: dict[LeagueRole, bool] = {
        "recent": due and (latest is None or not _is_expired(step, latest, settings)),
        "anchor": step % settings.anchor_every == 0,
        "elite": elo is not None
        and bool(rated)
        and all(elo > other + settings.elite_margin * permanent for other, permanent in rated),
        "lasting": elo is not None and elo >= lasting[-1] + settings.lasting_elo,
    }
    return tuple(role for role, entitled in entitled_to.items() if entitled)


def retirements(league: League, settings: AdmissionSettings) -> tuple[Retirement, ...]:
    """Return the members to retire, oldest first.

    Expired recent members come first, then the oldest members above the capacity. The current model and the target of a
    rollback are never retired.
    """
    protected, latest, checkpoints = {league.champion, league.last_good}, league.latest_step or 0, league.checkpoints
    mortal = [agent for agent in checkpoints if not agent.permanent and agent.id not in protected]
    expired = [agent for agent in mortal if _is_expired(agent.step or 0, latest, settings)]
    staying = [agent for agent in mortal if agent not in expired]
    excess = max(0, len(checkpoints) - len(expired) - settings.capacity)
    return (
        *(Retirement(agent, "expired") for agent in expired),
        *(Retirement(agent, "evicted") for agent in staying[:excess]),
    )


def _is_expired(step: int, latest: int, settings: AdmissionSettings) -> bool:
    return step <= latest - settings.recent_for
