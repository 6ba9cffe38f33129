"""``flyball eval --config``: a model against other players of one of our games."""

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import click

from app.cli.models import AGAINST, CURRENT, fetch_player
from app.cli.options import Place
from app.cli.output import note
from app.cli.selection import open_journal
from app.config import GameConfig
from app.core import FlyballError, ModelHash
from app.engine import Engine, InlineEngine, JsonObject, LocalEngine
from app.games import open_table
from app.journal import history
from app.league import STRATEGIES, Agent, League, Strategy, Wanted, select
from app.play.gauntlet import GauntletResult, GauntletSpec, Opponent
from app.play.matches import IN_FLIGHT, EvaluationManager
from app.status.league import LEAGUES_READ, read_leagues
from app.store import BlobStore, FileStore

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


class LostGames(FlyballError):
    """Games that could not be played: what is left is another sample than was asked for."""


@dataclass(frozen=True, slots=True)
class GameRequest:
    """Options of the command; ``games`` and ``temperature`` ``None``: the configuration's."""

    config_key: str
    model: str
    against: tuple[str, ...]
    games: int | None
    seed: int
    workers: int
    device: str
    temperature: float | None = None


def evaluate_game(place: Place, request: GameRequest) -> dict[str, Any]:
    """Play a gauntlet and return the summary. The models are copied first: a snapshot is played.

    Raises:
        UnknownConfig: no configuration is called so.
        LostGames: not all games could be played.
        and what ``fetch_player`` and ``fetch_rivals`` raise, before any game is played.
    """
    config = place.load({"configs": [request.config_key]}).run.config(request.config_key)
    if request.temperature is not None:
        settings = config.evaluation.replace(temperature=request.temperature)
        config = config.replace(evaluation=settings)
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        hero = fetch_player(request.model, "--model", place, config, store)
        opponents = tuple(_opponents(request, hero, place, config, store))
        games = sum(opponent.games for opponent in opponents)
        spec = GauntletSpec(
            store=Path(folder),
            config=_spread(config, games, request.workers),
            model=hero,
            opponents=opponents,
            seed=request.seed,
            device=request.device,
        )
        result = asyncio.run(_play(spec, request.workers))
    if result.lost_games:
        raise LostGames(f"{result.lost_games} games could not be played: {result.error}", hint="Try again.")
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "model": hero,
        "seed": request.seed,
        "device": request.device,
        "temperature": config.evaluation.temperature,
        "opening_plies": config.evaluation.opening_plies,
        "results": [match.model_dump(mode="json") for match in result.results],
    }


def _opponents(
    request: GameRequest, hero: str, place: Place, config: GameConfig, store: FileStore
) -> Iterator[Opponent]:
    spec = open_table(config, 0).spec
    for name, player in _others(request, hero, place, config, store).items():
        bot, settings = spec.has_bot(player), config.evaluation
        asked = request.games or (settings.random_games if bot else settings.model_games)
        games = -(-asked // config.players) * config.players  # every seat equally often
        if games != asked:
            note(f"{games} games against {name} instead of {asked}: every seat is taken equally often.")
        yield Opponent(
            name=name, kind=player if bot else "model", model=None if bot else ModelHash(player), games=games
        )


def _others(request: GameRequest, hero: str, place: Place, config: GameConfig, store: FileStore) -> dict[str, str]:
    """Return the opponents by name, without the model itself: under the name of the current one it is not asked twice.

    Meanwhile another could have been promoted.
    """
    itself = [name for name in request.against if name in CURRENT and request.model in CURRENT]
    names = tuple(name for name in request.against if name not in itself)
    rivals = fetch_rivals(names, hero, place, config, store, seed=request.seed)
    others = {name: player for name, player in rivals.items() if player != hero}
    for name in (*itself, *(rivals.keys() - others.keys())):
        if not others:
            raise click.UsageError(f"{AGAINST} {name} is the same as --model {request.model}: name somebody else.")
        note(f"{AGAINST}: {name} is the model itself, and is not played.")
    return others


def _spread(config: GameConfig, games: int, workers: int) -> GameConfig:
    """Return the configuration with batches that keep all workers busy; no game depends on its batch."""
    share = -(-games // workers)
    settings = config.evaluation.replace(batch_games=min(share, IN_FLIGHT))
    return config.replace(evaluation=settings)


async def _play(spec: GauntletSpec, workers: int) -> GauntletResult:
    engine: Engine = InlineEngine() if workers == 1 else LocalEngine(workers)
    planned = sum(opponent.games for opponent in spec.opponents)
    played = 0

    def tell(report: JsonObject) -> None:
        nonlocal played
        played += report["games"]
        note(f"{played}/{planned} games")

    try:
        return await EvaluationManager(engine).evaluate(spec, tell)
    finally:
        await engine.close()
