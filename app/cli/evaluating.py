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
from app.cli.models import fetch_model
from app.cli.output import note
from app.cli.place import Place
from app.cli.rivals import named
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
    """What to play; ``games`` against each opponent and ``temperature`` None for what the configuration says."""

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
        UnknownModel: a model is not there.
        LostGames: not all games could be played.
    """
    config = place.load({"configs": [request.config_key]}).run.config(request.config_key)
    if request.temperature is not None:
        settings = config.evaluation.model_copy(update={"temperature": request.temperature})
        config = config.model_copy(update={"evaluation": settings})
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        model = fetch_model(request.model, place, config.key, store)
        if model is None:
            raise click.UsageError(f"{request.model!r} is what models are measured by: name a model.")
        opponents = tuple(_opponents(request, model, place, config, store))
        games = sum(opponent.games for opponent in opponents)
        spec = GauntletSpec(
            store=Path(folder),
            config=_spread(config, games, request.workers),
            model=model,
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
        "model": model,
        "seed": request.seed,
        "device": request.device,
        "temperature": config.evaluation.temperature,
        "opening_plies": config.evaluation.opening_plies,
        "results": [match.model_dump(mode="json") for match in result.results],
    }


def _opponents(
    request: GameRequest, model: ModelHash, place: Place, config: GameConfig, store: FileStore
) -> Iterator[Opponent]:
    seen: dict[str, str] = {model: "the model itself"}
    for name in named(request.against, model, place, config.key, request.seed):
        found = fetch_model(name, place, config.key, store)
        settings = config.evaluation
        asked = request.games or (settings.random_games if found is None else settings.model_games)
        games = -(-asked // config.players) * config.players  # every seat equally often
        if games != asked:
            note(f"{games} games against {name} instead of {asked}: every seat is taken equally often.")
        opponent = Opponent.model_validate(
            {"name": name, "kind": "model" if found else name, "model": found, "games": games}
        )
        if opponent.player in seen:
            raise click.UsageError(f"--against {name} is the same as {seen[opponent.player]}.")
        seen[opponent.player] = name
        yield opponent


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
