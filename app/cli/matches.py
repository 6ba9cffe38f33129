"""``flyball eval --config``: evaluate a model in one of our games, against opponents or a reference."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click

from app.backends import backend_of
from app.cli.league import leagues_in
from app.cli.models import AGAINST, CURRENT, fetch_player
from app.cli.options import Place
from app.cli.output import note
from app.cli.selection import open_journal
from app.config import GameConfig, Precision
from app.core import FlyballError, ModelHash, derive_seed, is_model
from app.engine import Engine, InlineEngine, JsonObject, LocalEngine, Report, scatter
from app.games import open_table
from app.league.league import Agent, League
from app.league.matchmaking import STRATEGIES, Strategy, select
from app.play.gauntlet import MODEL, GauntletResult, GauntletSpec, Opponent
from app.play.hands import HandResults, HandsSpec, compare_paired, single_hands
from app.play.matches import IN_FLIGHT, EvaluationManager
from app.store import BlobStore, FileStore

NAMES = ("random", "champion")
"""Strategies whose names without a count are players: the random bot, the current model."""

HANDS_JOB = "app.play.hands:hands"
HANDS = 4000
"""Default hands against each opponent, enough to detect a difference of half a point."""

PARTS = 4
"""Parts for each process; several, so that all processes finish at about the same time."""

Lineup = tuple[str, str]
"""The player in the compared seat and the one in all other seats, by their names for ``load_player``."""


class NobodyToPlay(FlyballError):
    """A strategy finds no opponent in the league."""


class LostGames(FlyballError):
    """Some games could not be played, so the others are not the requested sample."""


@dataclass(frozen=True, slots=True)
class Request:
    """The options of ``flyball eval --config``; ``config`` has the requested temperature."""

    place: Place
    config: GameConfig
    model: str
    against: Sequence[str]
    games: int | None
    seed: int
    workers: int
    device: str
    precision: Precision
    paired: bool
    reference: str | None


def evaluate(request: Request) -> dict[str, Any]:
    """Play a gauntlet, or the hands of a paired comparison, and return the summary.

    The models are copied first, so a later promotion has no effect. Unplayable models are refused before any game.
    """
    config = request.config
    if request.paired:
        single_hands(config)  # refuses other games than Hearts
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        hero = fetch_player(request.model, "--model", request.place, config, store)
        opponents = fetch_opponents(request, hero, store)
        play = _compare if request.paired else _play
        results = play(request, Path(folder), hero, opponents)
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "policy" if request.paired else "model": hero,
        "seed": request.seed,
        "device": request.device,
        "precision": request.precision,
        "temperature": config.evaluation.temperature,
        **({} if request.paired else {"opening_plies": config.evaluation.opening_plies}),
        "results": results,
    }


def fetch_opponents(request: Request, hero: str, store: BlobStore) -> dict[str, str]:
    """Copy the opponents' models into ``store``; return the names for ``load_player``, by opponent.

    A member that several strategies choose is played once. Only a paired model may play against itself.
    """
    players: dict[str, str] = {}
    itself = list[str]()
    for name in _named(request, hero):
        is_hero = name in CURRENT and request.model in CURRENT  # no second look-up: a promotion may come between
        player = hero if is_hero else fetch_player(name, AGAINST, request.place, request.config, store)
        if player == hero and not request.paired:
            itself.append(name)
        elif player in players.values():
            note(f"{AGAINST}: {name} is there already, and is played once.")
        else:
            players[name] = player
    for name in itself:
        if not players:
            raise click.UsageError(f"{AGAINST} {name} is the same as --model {request.model}: name somebody else.")
        note(f"{AGAINST}: {name} is the model itself, and is not played.")
    return players


def _named(request: Request, hero: str) -> Iterator[str]:
    """Iterate over opponents by name or hash; ``STRATEGY:COUNT`` selects members of the run's league."""
    key = request.config.key
    league: League | None = None
    for name in request.against:
        if (wanted := _strategy(name)) is None:
            yield name
            continue
        strategy, count = wanted
        if league is None:
            with open_journal(request.place) as reader:
                views = leagues_in(reader)
            league = views[key].league if key in views else League()
        member = league.agents.get(hero) or Agent(id=hero, kind="checkpoint", step=0)
        chosen = select(league, strategy, member, count, seed=request.seed)
        if not chosen:
            raise NobodyToPlay(
                f"{AGAINST} {name}: the league of {key} has no opponents for it yet.",
                hint="See flyball league; name opponents by their hashes or files.",
            )
        if len(chosen) < count:
            note(f"{AGAINST} {name}: the league of {key} has {len(chosen)} of these, not {count}.")
        yield from (agent.id for agent in chosen)


def _strategy(name: str) -> tuple[Strategy, int] | None:
    """Return a strategy and how many it selects; None for a player. Raises ``click.UsageError`` for neither."""
    strategy, colon, count = name.partition(":")
    if not name:
        raise click.UsageError(f"{AGAINST} names nobody; write for instance {AGAINST} random.")
    if not colon and name in STRATEGIES and name not in NAMES:
        raise click.UsageError(f"{AGAINST} {name}: say how many, for instance {name}:3.")
    if not colon or (strategy not in STRATEGIES and Path(name).exists()):
        return None
    if strategy not in STRATEGIES:
        raise click.UsageError(f"{AGAINST} {name}: there is no strategy {strategy!r}, but {', '.join(STRATEGIES)}.")
    if count and (not count.isdecimal() or int(count) < 1):
        raise click.UsageError(f"{AGAINST} {name}: after the colon comes how many, for instance recent:3.")
    return strategy, int(count or 1)


def _play(request: Request, store: Path, hero: str, players: Mapping[str, str]) -> list[dict[str, Any]]:
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
        seed=request.seed,
        device=request.device,
        precision=request.precision,
        settings_folder=str(request.place.load().folder.absolute()),
    )
    progress = _progress("games", lambda played: f"{played}/{planned} games")

    async def play() -> GauntletResult:
        async with engine_of(request.workers) as engine:
            return await play_gauntlet(engine, spec, progress)

    return [match.model_dump(mode="json") for match in asyncio.run(play()).results]


def _opponent(name: str, player: str, request: Request) -> Opponent:
    config = request.config
    settings, model = config.evaluation, ModelHash(player) if is_model(player) else None
    asked = request.games or (settings.random_games if model is None else settings.model_games)
    played = -(-asked // config.players) * config.players  # every seat equally often
    if played != asked:
        note(f"{played} games against {name} instead of {asked}: every seat is taken equally often.")
    return Opponent(name=name, kind=player if model is None else MODEL, model=model, games=played)


def _progress(unit: str, text: Callable[[int], str]) -> Report:
    """Return a function that sums the units in jobs' reports and prints the total."""
    played = 0

    def show(report: JsonObject) -> None:
        nonlocal played
        played += report[unit]
        note(text(played))

    return show


async def play_gauntlet(engine: Engine, spec: GauntletSpec, on_progress: Report | None = None) -> GauntletResult:
    """Play all games of a gauntlet. Raises ``NothingPlayed`` or ``LostGames``."""
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


def _compare(request: Request, store: Path, hero: str, opponents: Mapping[str, str]) -> list[dict[str, Any]]:
    """Compare the model with its reference (default: the opponent) against each opponent, on the same deals."""
    config, fixed = request.config, None
    if request.reference is not None:
        fixed = fetch_player(request.reference, "--reference", request.place, config, FileStore(store))
    pairs = {name: ((hero, player), (fixed or player, player)) for name, player in opponents.items()}
    spec = HandsSpec(
        store=store,
        config=config,
        policy=hero,
        others=hero,
        deals=_deals(request.games or HANDS, config.players),
        seed=derive_seed(request.seed, "hands"),
        temperature=config.evaluation.temperature,
        device=request.device,
        precision=request.precision,
        settings_folder=str(request.place.load().folder.absolute()),
    )
    lineups = tuple(dict.fromkeys(lineup for pair in pairs.values() for lineup in pair))
    played = asyncio.run(_play_hands(spec, lineups, request.workers))
    return [
        {
            "opponent": name,
            "opponent_player": compared[1],
            "reference_player": other[0],
            **compare_paired(played[compared], played[other], config.players).model_dump(mode="json"),
        }
        for name, (compared, other) in pairs.items()
    ]


def _deals(asked: int, seats: int) -> int:
    deals = max(2, -(-asked // seats))
    if deals * seats != asked:
        note(f"{deals * seats} hands instead of {asked}: every deal is played in every seat, and two deals compared.")
    return deals


async def _play_hands(spec: HandsSpec, lineups: Sequence[Lineup], workers: int) -> dict[Lineup, HandResults]:
    """Play all deals with each lineup, in parallel parts; no hand depends on its part."""
    parts = 1 if workers == 1 else min(spec.deals, workers * PARTS)
    bounds = list(pairwise(spec.deals * part // parts for part in range(parts + 1)))
    jobs = [
        spec.replace(policy=policy, others=others, first=first, deals=end - first).model_dump(mode="json")
        for policy, others in lineups
        for first, end in bounds
    ]
    hands = spec.deals * spec.config.players
    text = f"of {hands} hands against each opponent, the reference's included"
    progress = _progress("hands", lambda played: f"{played / (hands * len(lineups)):.0%} {text}")
    async with engine_of(workers) as engine:
        outcomes = await scatter(engine, HANDS_JOB, jobs, on_progress=progress)
    starts = range(0, len(outcomes), parts)
    return {lineup: _total(outcomes[at : at + parts]) for lineup, at in zip(lineups, starts, strict=True)}


def _total(outcomes: Sequence[JsonObject | FlyballError]) -> HandResults:
    results = HandResults()
    for outcome in outcomes:
        if isinstance(outcome, FlyballError):
            raise LostGames(f"Some hands could not be played: {outcome.message}", hint=outcome.hint or "Try again.")
        results = results.plus(HandResults.model_validate(outcome))
    return results
