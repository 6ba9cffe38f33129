"""Changes that other processes make to a league's file. The processes import this module, so it imports little."""

import os
from functools import partial
from pathlib import Path

from leagues import checkpoint, meet, model

from flyball.app.config import AdmissionSettings
from flyball.app.league.admission import admission, retirements
from flyball.app.league.league import League
from flyball.app.store import LeagueFile


def league_file(folder: Path) -> LeagueFile:
    """Return the file in a folder."""
    return LeagueFile(folder / "leagues" / "league.json", "grpo", "x_2p")


def stepped(step: int, league: League) -> League:
    """Add the checkpoint of a step if it is due.

    The checkpoint has played one game; the random bot counts all steps.
    """
    settings = AdmissionSettings()
    bot = league.agents["random"]
    league = league.with_agent(bot.rated(0.0, 0.0, bot.matches + 1))
    roles = admission(step, 0.0, league, settings)
    if roles:
        league = meet(league.with_agent(checkpoint(step, 0.0, roles=roles)), model(step), "random", 1, 1)
        for retirement in retirements(league, settings):
            league = league.without(retirement.agent.id)
    return league


def take_steps(folder: Path, first: int, stride: int, steps: int) -> None:
    """Take every ``stride``-th step."""
    for step in range(first, steps, stride):
        league_file(folder).update(partial(stepped, step))


def hold_and_die(folder: Path, started: Path) -> None:
    """End the process inside a change."""

    def die(_: League) -> League:
        started.touch()
        os._exit(9)

    league_file(folder).update(die)
