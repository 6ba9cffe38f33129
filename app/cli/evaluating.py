"""``flyball eval --config``: a model against other players of one of our games."""

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from app.arena import EvaluationManager
from app.arena.match import IN_FLIGHT
from app.cli.models import AGAINST, CURRENT, fetch_player
from app.cli.output import note
from app.cli.place import Place
from app.cli.rivals import fetch_rivals
from app.config import GameConfig
from app.core import FlyballError, ModelHash
from app.engine import Engine, InlineEngine, JsonObject, LocalEngine
from app.evaluation import GauntletResult, GauntletSpec, Opponent
from app.games import open_table
from app.store import FileStore


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
        settings = config.evaluation.model_copy(update={"temperature": request.temperature})
        config = config.model_copy(update={"evaluation": settings})
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
    settings = config.evaluation.model_copy(update={"batch_games": min(share, IN_FLIGHT)})
    return config.model_copy(update={"evaluation": settings})


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
