"""Evaluations: a model's games against opponents in one of our games."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar

from flyball.app.api.arguments import Count, Names, Seed, Temperature, check_arguments
from flyball.app.api.opponents import EvaluationRequest, evaluation_request, fetch_opponents
from flyball.app.api.players import fetch_player
from flyball.app.api.runs import Say, silent
from flyball.app.backends import backend_of, describe
from flyball.app.config import FrozenModel, GameConfig, Precision
from flyball.app.config.feedback import MAX_SECONDS
from flyball.app.core import (
    RANDOM,
    ConfigKey,
    FlyballError,
    ModelHash,
    Record,
    Tabular,
    figure_text,
    flat,
    is_model,
    named,
)
from flyball.app.engine import Engine, InlineEngine, JsonObject, LocalEngine, Report, run_coroutine
from flyball.app.job_specs import MODEL, Opponent
from flyball.app.learning.network import threads
from flyball.app.play.gauntlet import GauntletResult, GauntletSpec, OpponentResult
from flyball.app.play.matches import IN_FLIGHT, EvaluationManager
from flyball.app.status.summary import show_rate
from flyball.app.store import open_store


class EvaluationResult(Tabular, FrozenModel):
    """Statistics of a model's games, by opponent. ``to_frame()`` has a row for each opponent."""

    brief_columns: ClassVar = {
        "results": (
            *("opponent", "games", "wins", "draws", "losses", "score_mean", "score_lower", "score_upper"),
            *("outcome_mean", "outcome_lower", "outcome_upper"),
        )
    }

    config: ConfigKey
    rules: str
    model: str
    seed: int
    device: str
    precision: Precision
    temperature: float
    opening_plies: int
    results: tuple[OpponentResult, ...]

    def headline(self) -> str:
        """See ``Tabular``."""
        scores = [f"{match.opponent} {show_rate(match.score)}" for match in self.results]
        return f"evaluation of {self.config}, {figure_text(self.model)}: score against {named(scores)}"

    def tables(self) -> dict[str, Sequence[Record]]:
        """See ``Tabular``."""
        return {"results": [{"opponent": match.opponent, **flat(match.model_dump())} for match in self.results]}


class LostGames(FlyballError):
    """Some games could not be played. The played games are then not the requested sample."""


def evaluate_gauntlet(request: EvaluationRequest) -> EvaluationResult:
    """Play a gauntlet and return its results.

    The models are copied first, so a later promotion has no effect. Unplayable models are refused before any game.
    """
    config = request.config
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = open_store(folder)
        hero = fetch_player(request.model, "model", request.location, config, store, say=request.say)
        opponents = fetch_opponents(request, hero, store)
        results = _play(request, folder, hero, opponents)
    info = describe(config)
    return EvaluationResult(
        config=config.key,
        rules=info.rules_version,
        model=hero,
        seed=request.seed,
        device=request.device,
        precision=request.precision,
        temperature=config.evaluation.temperature,
        opening_plies=config.evaluation.openings(dealt=info.dealt),
        results=results,
    )


def _play(request: EvaluationRequest, store: str, hero: str, players: Mapping[str, str]) -> tuple[OpponentResult, ...]:
    """Play the gauntlet and return each opponent's statistics."""
    opponents = tuple(_opponent(name, player, request) for name, player in players.items())
    planned = sum(opponent.games for opponent in opponents)
    # this batch size keeps all workers busy; no game depends on its batch
    spread = request.config.evaluation.replace(batch_games=min(-(-planned // request.workers), IN_FLIGHT))
    spec = GauntletSpec(
        store=store,
        config=request.config.replace(evaluation=spread),
        model=hero,
        opponents=opponents,
        judges=True,
        seed=request.seed,
        device=request.device,
        precision=request.precision,
        settings_folder=request.location.settings_folder,
    )
    progress = report_total("games", request.say, lambda played: f"{played}/{planned} games")

    async def play() -> GauntletResult:
        async with engine_of(request.workers) as engine:
            return await play_gauntlet(engine, spec, progress)

    return run_coroutine(play()).results


def _opponent(name: str, player: str, request: EvaluationRequest) -> Opponent:
    config = request.config
    settings, model = config.evaluation, ModelHash(player) if is_model(player) else None
    requested = request.games or (settings.random_games if model is None else settings.model_games)
    played = -(-requested // config.players) * config.players  # every seat equally often
    if played != requested:
        request.say(f"{played} games against {name} instead of {requested}: every seat is taken equally often.")
    return Opponent(name=name, kind=player if model is None else MODEL, model=model, games=played)


def report_total(unit: str, say: Say, text: Callable[[int], str]) -> Report:
    """Return a function that sums reported units and says the total."""
    played = 0

    def show(report: JsonObject) -> None:
        nonlocal played
        played += report[unit]
        say(text(played))

    return show


async def play_gauntlet(engine: Engine, spec: GauntletSpec, on_progress: Report | None = None) -> GauntletResult:
    """Play all games of a gauntlet, without a deadline. Raises ``NothingPlayed`` or ``LostGames``."""
    # Judges and engines may take hours, and whoever asked for the games can interrupt them.
    patient = spec.config.evaluation.replace(batch_seconds=MAX_SECONDS)
    spec = spec.replace(config=spec.config.replace(evaluation=patient))
    result = await EvaluationManager(engine, backend_of(spec.config).match).evaluate(spec, on_progress)
    if result.lost_games:
        raise LostGames(f"{result.lost_games} games could not be played: {result.error}", hint="Try again.")
    return result


@asynccontextmanager
async def engine_of(workers: int) -> AsyncIterator[Engine]:
    """Open an engine with ``workers`` processes; a single worker is this process."""
    engine: Engine = InlineEngine() if workers == 1 else LocalEngine(workers)
    try:
        yield engine
    finally:
        await engine.close()


def evaluate(
    model: str | Path,
    game: str | GameConfig | None = None,
    *,
    against: str | Path | Sequence[str | Path] = RANDOM,
    games: int | None = None,
    seed: int = 0,
    temperature: float | None = None,
    workers: int = 1,
    device: str = "cpu",
    precision: Precision = "float32",
    run: str | Path = "run",
    config_file: str | Path | None = None,
    progress: Say = silent,
) -> EvaluationResult:
    """Play a model's games against opponents, as `flyball eval` does.

    The same arguments give the same result.

    Args:
        model: a file, a folder of `flyball train` or a run folder, the beginning of a hash, "current", or a bot.
        game: key of a configuration, or a configuration itself; by default the one that the model was trained for.
        against: opponents, named like models, or members of the run's league, such as "top_k:3".
        games: against each opponent, rounded up to whole rotations of the seats; by default as configured.
        seed: of all random draws.
        temperature: of all players, 0 is greedy; by default as configured.
        workers: processes that play.
        device: cpu, cuda, cuda:1 or auto.
        precision: of the networks.
        run: the run folder, for hashes, "current" and the league.
        config_file: read instead of the run folder's ``flyball.toml``.
        progress: receives lines of text, for instance ``print``.

    Raises ``BadUsage``, ``UnknownModel``, ``ForeignModel``, ``UnknownConfig``, ``MissingDevice``, ``LostGames`` or
    another ``FlyballError``.

    >>> result = flyball.evaluate("heuristic", "connect_four_2p", against="random", games=20)
    >>> result.results[0].games
    20
    >>> result.results[0].score.mean > 0.5
    True
    """
    named = [str(name) for name in ([against] if isinstance(against, str | Path) else against)]
    check_arguments(Names, against=named)
    check_arguments(Count | None, games=games)
    check_arguments(Count, workers=workers)
    check_arguments(Seed, seed=seed)
    check_arguments(Temperature | None, temperature=temperature)
    request = evaluation_request(
        model, game, run, config_file, temperature=temperature, device=device, precision=precision, say=progress
    )
    with threads(1):
        return evaluate_gauntlet(replace(request, against=named, games=games, seed=seed, workers=workers))
