"""``flyball eval --config``: a model against other players of one of our games, or paired with a reference."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import click

from app.cli.league import leagues_in
from app.cli.models import AGAINST, CURRENT, fetch_player
from app.cli.options import Place
from app.cli.output import note
from app.cli.selection import open_journal
from app.config import GameConfig
from app.core import FlyballError, ModelHash, derive_seed
from app.engine import Engine, InlineEngine, JsonObject, LocalEngine, scatter
from app.games import open_table
from app.league.league import Agent, League
from app.league.matchmaking import STRATEGIES, Strategy, select
from app.play.gauntlet import GauntletResult, GauntletSpec, Opponent
from app.play.hands import HandResults, HandsSpec, compare_paired, single_hands
from app.play.matches import IN_FLIGHT, EvaluationManager
from app.store import BlobStore, FileStore

NAMES = ("random", "champion")
"""Strategies whose names mean something without a count too: the random bot, the current model."""

HANDS_JOB = "app.play.hands:hands"
HANDS = 4000
"""Default hands against each opponent, enough to detect half a point."""

PARTS = 4
"""For each process, so that none is left alone with the last."""

Lineup = tuple[str, str]
"""The player in the compared seat and the one in all others, as ``load_player`` calls them."""


class NobodyToPlay(FlyballError):
    """A strategy finds no opponent in the league."""


class LostGames(FlyballError):
    """Games that could not be played: the rest is another sample than was asked for."""


def evaluate_game(
    place: Place,
    config_key: str,
    *,
    model: str,
    against: Sequence[str],
    games: int | None,
    temperature: float | None,
    seed: int,
    workers: int,
    device: str,
) -> dict[str, Any]:
    """Play a gauntlet and return the summary. The models are copied first: a snapshot is played.

    Raises:
        UnknownConfig: no configuration has this key.
        LostGames: not all games could be played.
        and what ``fetch_player`` and ``fetch_opponents`` raise, before any game is played.
    """
    config = configured(place, config_key, temperature)
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        hero = fetch_player(model, "--model", place, config, store)
        itself = [name for name in against if name in CURRENT and model in CURRENT]  # is looked up only once
        rivals = [name for name in against if name not in itself]
        found = fetch_opponents(rivals, hero, place, config, store, seed=seed)
        others = {name: player for name, player in found.items() if player != hero}
        for name in (*itself, *(found.keys() - others.keys())):
            if not others:
                raise click.UsageError(f"{AGAINST} {name} is the same as --model {model}: name somebody else.")
            note(f"{AGAINST}: {name} is the model itself, and is not played.")
        opponents = tuple(_opponent(name, player, games, config) for name, player in others.items())
        # batches that keep all workers busy: no game depends on its batch
        share = -(-sum(opponent.games for opponent in opponents) // workers)
        spread = config.evaluation.replace(batch_games=min(share, IN_FLIGHT))
        spec = GauntletSpec(
            store=Path(folder),
            config=config.replace(evaluation=spread),
            model=hero,
            opponents=opponents,
            seed=seed,
            device=device,
        )
        result = asyncio.run(_play(spec, workers))
    if result.lost_games:
        raise LostGames(f"{result.lost_games} games could not be played: {result.error}", hint="Try again.")
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "model": hero,
        "seed": seed,
        "device": device,
        "temperature": config.evaluation.temperature,
        "opening_plies": config.evaluation.opening_plies,
        "results": [match.model_dump(mode="json") for match in result.results],
    }


def configured(place: Place, config_key: str, temperature: float | None) -> GameConfig:
    """Return a configuration, with a temperature for evaluation if one is given."""
    config = place.load({"configs": [config_key]}).run.config(config_key)
    if temperature is None:
        return config
    return config.replace(evaluation=config.evaluation.replace(temperature=temperature))


def _opponent(name: str, player: str, games: int | None, config: GameConfig) -> Opponent:
    bot, settings = open_table(config, 0).spec.has_bot(player), config.evaluation
    asked = games or (settings.random_games if bot else settings.model_games)
    played = -(-asked // config.players) * config.players  # every seat equally often
    if played != asked:
        note(f"{played} games against {name} instead of {asked}: every seat is taken equally often.")
    kind, model = (player, None) if bot else ("model", ModelHash(player))
    return Opponent(name=name, kind=kind, model=model, games=played)


async def _play(spec: GauntletSpec, workers: int) -> GauntletResult:
    planned = sum(opponent.games for opponent in spec.opponents)
    played = 0

    def show_progress(report: JsonObject) -> None:
        nonlocal played
        played += report["games"]
        note(f"{played}/{planned} games")

    async with engine_of(workers) as engine:
        return await EvaluationManager(engine).evaluate(spec, show_progress)


@asynccontextmanager
async def engine_of(workers: int) -> AsyncIterator[Engine]:
    """Open an engine of so many processes; one worker is this process."""
    engine: Engine = InlineEngine() if workers == 1 else LocalEngine(workers)
    try:
        yield engine
    finally:
        await engine.close()


def fetch_opponents(
    against: Sequence[str], hero: str, place: Place, config: GameConfig, store: BlobStore, *, seed: int
) -> dict[str, str]:
    """Copy the opponents' models into ``store``; return what ``load_player`` calls each, by name.

    Strategies may choose the same member, which is then played once.

    Raises ``NobodyToPlay``, ``click.UsageError`` for a name that can't be one, and what ``fetch_player`` raises.
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
    """Iterate over opponents by name or hash; ``STRATEGY:COUNT`` selects members of the run's league."""
    league: League | None = None
    for name in against:
        strategy, colon, count = name.partition(":")
        if not _is_strategy(name, strategy, colon):
            yield name
            continue
        if league is None:
            with open_journal(place) as reader:
                views = leagues_in(reader)
            league = views[config_key].league if config_key in views else League()
        member = league.agents.get(hero) or Agent(id=hero, kind="checkpoint", step=0)
        wanted = _count(name, count)
        chosen = select(league, cast("Strategy", strategy), member, wanted, seed=seed)
        if not chosen:
            raise NobodyToPlay(
                f"{AGAINST} {name}: the league of {config_key} has no opponents for it yet.",
                hint="See flyball league; name opponents by their hashes or files.",
            )
        if len(chosen) < wanted:
            note(f"{AGAINST} {name}: the league of {config_key} has {len(chosen)} of these, not {wanted}.")
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


def _count(name: str, count: str) -> int:
    if not count:
        return 1
    if not count.isdecimal() or int(count) < 1:
        raise click.UsageError(f"{AGAINST} {name}: after the colon comes how many, for instance recent:3.")
    return int(count)


def evaluate_paired(
    place: Place,
    config_key: str,
    *,
    model: str,
    reference: str | None,
    against: Sequence[str],
    games: int | None,
    temperature: float | None,
    seed: int,
    workers: int,
    device: str,
) -> dict[str, Any]:
    """Play the hands and return the summary. The models are copied first: a snapshot is played.

    Without a reference, each opponent itself takes the policy's place.

    Raises ``UnknownConfig``, ``UnknownGame`` where it is not Hearts, what ``fetch_player`` and ``fetch_opponents``
    raise, all before any hand is played; or ``LostGames``.
    """
    config = configured(place, config_key, temperature)
    single_hands(config)
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = FileStore(Path(folder))
        policy = fetch_player(model, "--model", place, config, store)
        opponents = fetch_opponents(against, policy, place, config, store, seed=seed)
        fixed = None if reference is None else fetch_player(reference, "--reference", place, config, store)
        pairs = {name: ((policy, player), (fixed or player, player)) for name, player in opponents.items()}
        spec = HandsSpec(
            store=Path(folder),
            config=config,
            policy=policy,
            others=policy,
            deals=_deals(games or HANDS, config.players),
            first=0,
            seed=derive_seed(seed, "hands"),
            temperature=config.evaluation.temperature,
            device=device,
        )
        lineups = tuple(dict.fromkeys(lineup for pair in pairs.values() for lineup in pair))
        played = asyncio.run(_play_hands(spec, lineups, workers))
    return {
        "config": config.key,
        "rules": open_table(config, 0).spec.rules_version,
        "policy": policy,
        "seed": seed,
        "device": device,
        "temperature": config.evaluation.temperature,
        "results": [
            {
                "opponent": name,
                "opponent_player": hero[1],
                "reference_player": other[0],
                **compare_paired(played[hero], played[other], config.players).model_dump(mode="json"),
            }
            for name, (hero, other) in pairs.items()
        ],
    }


def _deals(asked: int, seats: int) -> int:
    deals = max(2, -(-asked // seats))
    if deals * seats != asked:
        note(f"{deals * seats} hands instead of {asked}: every deal is played in every seat, and two deals compared.")
    return deals


async def _play_hands(spec: HandsSpec, lineups: Sequence[Lineup], workers: int) -> dict[Lineup, HandResults]:
    """Play all deals with each lineup, in parts; no hand depends on its part."""
    parts = 1 if workers == 1 else min(spec.deals, workers * PARTS)
    bounds = list(pairwise(spec.deals * part // parts for part in range(parts + 1)))
    jobs = [
        spec.replace(policy=policy, others=others, first=first, deals=end - first).model_dump(mode="json")
        for policy, others in lineups
        for first, end in bounds
    ]
    hands, played = spec.deals * spec.config.players, 0

    def show_progress(report: JsonObject) -> None:
        nonlocal played
        played += report["hands"]
        share = played / (hands * len(lineups))
        note(f"{share:.0%} of {hands} hands against each opponent, the reference's included")

    async with engine_of(workers) as engine:
        outcomes = await scatter(engine, HANDS_JOB, jobs, on_progress=show_progress)
    starts = range(0, len(outcomes), parts)
    return {lineup: _total(outcomes[at : at + parts]) for lineup, at in zip(lineups, starts, strict=True)}


def _total(outcomes: Sequence[JsonObject | FlyballError]) -> HandResults:
    results = HandResults()
    for outcome in outcomes:
        if isinstance(outcome, FlyballError):
            raise LostGames(f"Some hands could not be played: {outcome.message}", hint=outcome.hint or "Try again.")
        results = results.plus(HandResults.model_validate(outcome))
    return results
