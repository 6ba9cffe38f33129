"""Opponents as ``--against`` names them: ``recent:3`` stands for members of a run's league."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import cast

import click

from app.cli.models import AGAINST, fetch_player
from app.cli.output import note
from app.cli.place import Place
from app.cli.selecting import open_journal
from app.config import GameConfig
from app.core import FlyballError
from app.dashboard import LEAGUES_READ, read_leagues
from app.journal import history
from app.league import STRATEGIES, Agent, League, Strategy, Wanted, select
from app.store import BlobStore

NAMES = ("random", "champion")
"""Strategies whose names mean something without a count too: the random bot, the current model."""


class NobodyToPlay(FlyballError):
    """A strategy finds no opponent in the league."""


def fetch_rivals(
    against: Sequence[str], hero: str, place: Place, config: GameConfig, store: BlobStore, *, seed: int
) -> dict[str, str]:
    """Return by name what ``load_player`` calls the opponents, having copied the models into ``store``.

    Strategies may choose the same member: whoever is there already is there once.

    Raises ``NobodyToPlay``, ``click.UsageError`` for a name that can be none, and what ``fetch_player`` raises.
    """
    players: dict[str, str] = {}
    for name in _named(against, hero, place, config.key, seed):
        player = fetch_player(name, AGAINST, place, config, store)
        if player in players.values():
            note(f"{AGAINST}: {name} is there already, and is played once.")
        else:
            players[name] = player
    return players


def _named(against: Sequence[str], hero: str, place: Place, config_key: str, seed: int) -> Iterator[str]:
    """Iterate over opponents by name or hash; ``STRATEGY:COUNT`` stands for members of the run's league.

    The count is 1 where nothing follows the colon.
    """
    league: League | None = None
    for name in against:
        strategy, colon, count = name.partition(":")
        if not _is_strategy(name, strategy, colon):
            yield name
            continue
        league = league or _league(place, config_key)
        wanted = Wanted(_hero(league, hero), _count(name, count), seed)
        chosen = select(league, cast("Strategy", strategy), wanted)
        if not chosen:
            raise NobodyToPlay(
                f"{AGAINST} {name}: the league of {config_key} has no opponents for it yet.",
                hint="See flyball league; name opponents by their hashes or files.",
            )
        if len(chosen) < wanted.count:
            note(f"{AGAINST} {name}: the league of {config_key} has {len(chosen)} of these, not {wanted.count}.")
        yield from (agent.id for agent in chosen)


def _is_strategy(name: str, strategy: str, colon: str) -> bool:
    """Tell a strategy from a player. Raises ``click.UsageError`` for what is neither."""
    if not name:
        raise click.UsageError(f"{AGAINST} names nobody; write for instance {AGAINST} random.")
    if colon and strategy not in STRATEGIES and not Path(name).exists():
        raise click.UsageError(f"{AGAINST} {name}: there is no strategy {strategy!r}, but {', '.join(STRATEGIES)}.")
    if not colon and name in STRATEGIES and name not in NAMES:
        raise click.UsageError(f"{AGAINST} {name}: say how many, for instance {name}:3.")
    return bool(colon) and strategy in STRATEGIES


def _league(place: Place, config_key: str) -> League:
    with open_journal(place) as reader:
        views = read_leagues(history(reader, types=LEAGUES_READ, on_dead=lambda letter: note(letter.error)))
    return views[config_key].league if config_key in views else League()


def _hero(league: League, hero: str) -> Agent:
    """Return the member that a player is; of a stranger only the name is known."""
    return league.agents.get(hero) or Agent(id=hero, kind="checkpoint", step=0)


def _count(name: str, count: str) -> int:
    if not count:
        return 1
    if not count.isdecimal() or int(count) < 1:
        raise click.UsageError(f"{AGAINST} {name}: after the colon comes how many, for instance recent:3.")
    return int(count)
