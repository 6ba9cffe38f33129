"""Leagues of a run. This module is separate, because leagues load NumPy and players load OpenSpiel."""

from flyball.app.api.runs import RunLocation, Say, check_config, check_played, complaint, open_run
from flyball.app.core import FlyballError
from flyball.app.journal import JournalReader, history
from flyball.app.status.league import LEAGUES_READ, LeagueView, read_leagues


class NoLeague(FlyballError, code="unknown"):
    """A configuration has no league yet."""


def leagues_in(reader: JournalReader, say: Say) -> dict[str, LeagueView]:
    """Read the leagues of all configurations from a journal."""
    return read_leagues(history(reader, types=LEAGUES_READ, on_dead=complaint(say)))


def league_views(location: RunLocation, config_key: str | None, say: Say) -> dict[str, LeagueView]:
    """Read the league of a configuration, or of all that have one. Raises ``UnknownConfig`` or ``NoLeague``."""
    with open_run(location) as reader:
        check_config(reader, config_key)
        views = leagues_in(reader, say)
        if config_key is None:
            return views
        if config_key not in views:
            check_played(reader, location, config_key)
            raise NoLeague(
                f"{config_key} has no league in the run in {location.folder.path} yet.",
                hint="It begins when the first model has been evaluated, soon after flyball up: look again then.",
            )
    return {config_key: views[config_key]}
