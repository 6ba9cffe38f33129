"""Leagues of a run. This module is separate, because leagues load NumPy and players load OpenSpiel."""

from app.api.runs import Say, complaint
from app.journal import JournalReader, history
from app.status.league import LEAGUES_READ, LeagueView, read_leagues


def leagues_in(reader: JournalReader, say: Say) -> dict[str, LeagueView]:
    """Read the leagues of all configurations from a journal."""
    return read_leagues(history(reader, types=LEAGUES_READ, on_dead=complaint(say)))
