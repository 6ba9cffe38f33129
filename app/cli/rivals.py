"""Opponents that a strategy chooses from a run's league: ``--against recent:3`` (seed 000 §3.2)."""

from collections.abc import Iterator, Sequence
from typing import cast

import click

from app.cli.output import note
from app.cli.place import Place
from app.cli.selecting import open_journal
from app.core import FlyballError, ModelHash
from app.dashboard import LEAGUES_READ, read_leagues
from app.journal import history
from app.league import STRATEGIES, Agent, League, Strategy, Wanted, select


class NobodyToPlay(FlyballError):
    """A strategy finds no opponent in the league."""


def named(against: Sequence[str], model: ModelHash, place: Place, config_key: str, seed: int) -> Iterator[str]:
    """Iterate over opponents by name or hash; ``STRATEGY:COUNT`` stands for members of the run's league.

    The count is 1 where nothing follows the colon. Without one, ``random`` is the random bot and ``champion`` the
    current model, as everywhere.

    Raises ``NobodyToPlay``.
    """
    league: League | None = None
    for name in against:
        strategy, colon, count = name.partition(":")
        if not colon or strategy not in STRATEGIES:
            yield name
            continue
        league = league or _league(place, config_key)
        wanted = Wanted(_hero(league, model), _count(name, count), seed)
        chosen = select(league, cast("Strategy", strategy), wanted)
        if not chosen:
            raise NobodyToPlay(
                f"--against {name}: the league of {config_key} has nobody but the model.",
                hint="See flyball league; name opponents by their hashes or files.",
            )
        yield from (agent.id for agent in chosen)


def _league(place: Place, config_key: str) -> League:
    with open_journal(place) as reader:
        views = read_leagues(history(reader, types=LEAGUES_READ, on_dead=lambda letter: note(letter.error)))
    return views[config_key].league if config_key in views else League()


def _hero(league: League, model: ModelHash) -> Agent:
    """Return the member that a model is; of a stranger only the name is known."""
    return league.agents.get(model) or Agent(id=model, kind="checkpoint", step=0)


def _count(name: str, count: str) -> int:
    if not count:
        return 1
    if not count.isdecimal() or int(count) < 1:
        raise click.UsageError(f"--against {name}: after the colon comes how many, for instance recent:3.")
    return int(count)
