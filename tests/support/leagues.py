"""Leagues for tests, made by hand."""

from independent_games import of_games

from flyball.app.core import Elo
from flyball.app.league.league import Agent, League


def model(step: int) -> str:
    """Return a stand-in for the content hash of a step's model."""
    return f"{step:064x}"


def checkpoint(step: int, elo: float | None = None, parent: int | None = None, **more) -> Agent:
    """Return a checkpoint; without roles it may expire."""
    return Agent(
        id=model(step),
        kind="checkpoint",
        step=step,
        elo=None if elo is None else Elo(elo),
        elo_stderr=None if elo is None else 20.0,
        created_us=step * 1_000_000,
        parent=None if parent is None else model(parent),
        **more,
    )


def league_of(*agents: Agent, baselines=("random",), **more) -> League:
    """Return a league with these checkpoints."""
    league = League().with_baselines(baselines).replace(**more)
    for agent in agents:
        league = league.with_agent(agent)
    return league


def meet(league: League, one: Agent | str, other: Agent | str, games: int, points: float) -> League:
    """Add the games of two agents to a league."""
    first, second = (agent if isinstance(agent, str) else agent.id for agent in (one, other))
    return league.with_games(of_games(first, second, points, 0, games - points))
