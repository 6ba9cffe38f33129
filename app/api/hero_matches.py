"""Hero matches: a language model plays mixed opponents. The opponents differ from game to game."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from flyball.app.api.leagues import leagues_in
from flyball.app.api.opponents import NobodyToPlay
from flyball.app.api.runs import RunLocation, Say, open_journal, silent
from flyball.app.api.text_players import fetch_text_player
from flyball.app.config import LANGUAGE_BACKEND, Compute, GameConfig, Precision
from flyball.app.core import BadUsage, ConfigKey, derive_seed, lineups, reading
from flyball.app.language.hero_match import HeroMatch, play_hero_match, seated
from flyball.app.language.models import GENERATORS
from flyball.app.language.text_games import BASE_MODEL, open_text_table
from flyball.app.league.document import load_league
from flyball.app.league.league import Agent, League
from flyball.app.league.matchmaking import distribution
from flyball.app.store import open_store

Mixed = Literal["league", "baselines", "self"]

GAMES = 42
"""Default number of games of a hero match: whole rotations for 2, 3 and 7 players."""


@dataclass(frozen=True, slots=True)
class HeroMatchRequest:
    """Arguments of a hero match.

    ``power_adapters`` names the players of powers; the base model plays the other powers. Without adapters, opponents
    are drawn as ``mixed`` says.
    """

    location: RunLocation
    config: GameConfig
    model: str
    mixed: Mixed | None
    power: str | None = None  # the hero's power; None: the hero rotates through all seats
    power_adapters: Mapping[str, str] = field(default_factory=dict)
    league: Path | None = None  # a league.json, instead of the run's league
    games: int | None = None
    seed: int = 0
    device: str = "cpu"
    precision: Precision = "float32"
    say: Say = silent


class HeroMatchResult(HeroMatch):
    """Result of a hero match, with its arguments."""

    config: ConfigKey
    rules: str
    model: str
    mixed: Mixed | None
    power: str | None
    seed: int
    device: str
    precision: Precision
    temperature: float
    opening_plies: int


def evaluate_hero(request: HeroMatchRequest) -> HeroMatchResult:
    """Play a hero match and return its results.

    Models are copied first. Raises ``BadUsage``, ``NobodyToPlay``, and the errors of ``fetch_text_player``.
    """
    config = request.config
    if config.backend != LANGUAGE_BACKEND:
        raise BadUsage(
            f"Mixed opponents are for language models, and {config.key} is played by {config.backend}.",
            hint="Name opponents by --against, or one of the profile language by --config, such as diplomacy_small_3p.",
        )
    spec = open_text_table(config, 0).spec
    seat = None if request.power is None else _seat(request.power, spec.seats, config)
    with TemporaryDirectory(prefix="flyball-eval-") as folder:
        store = open_store(folder)

        def fetch(name: str, argument: str) -> str:
            return fetch_text_player(name, argument, request.location, config, store, say=request.say)

        hero = fetch(request.model, "model")
        if request.power_adapters:
            assert seat is not None  # the command wants a power
            powers = {_seat(power, spec.seats, config): name for power, name in request.power_adapters.items()}
            if seat in powers:
                raise BadUsage(f"{request.power} is the hero's power: leave it out of the power adapters.")
            others = [fetch(powers.get(other, BASE_MODEL), "power adapter") for other in _other_seats(seat, config)]
            tables, starts = _tables(request, hero, seat, [tuple(others)] * _rounds(request, seat))
        else:
            drawn = _draw_opponents(request, hero, _rounds(request, seat))
            hashes = {
                name: fetch(name, "opponent") for name in sorted({name for row in drawn for name in row} - {hero})
            }
            rows = [tuple(hashes.get(name, hero) for name in row) for row in drawn]
            tables, starts = _tables(request, hero, seat, rows)
        with GENERATORS.lock:
            figures = play_hero_match(
                store,
                config,
                tables,
                hero=hero,
                starts=starts,
                seed=request.seed,
                compute=Compute(device=request.device, precision=request.precision),
            )
    return HeroMatchResult(
        config=config.key,
        rules=spec.rules_version,
        model=hero,
        mixed=request.mixed,
        power=request.power,
        seed=request.seed,
        device=request.device,
        precision=request.precision,
        temperature=config.evaluation.temperature,
        opening_plies=config.evaluation.openings(dealt=False),
        **dict(figures),
    )


def _seat(power: str, seats: tuple[str, ...], config: GameConfig) -> int:
    if power not in seats:
        hint = f"They are {', '.join(seats)}." if seats else "Its seats have no names; only Diplomacy's have."
        raise BadUsage(f"{config.key} has no power {power!r}.", hint=hint)
    return seats.index(power)


def _other_seats(seat: int, config: GameConfig) -> list[int]:
    """Return the other seats, in turn after a seat."""
    return [(seat + offset) % config.players for offset in range(1, config.players)]


def _rounds(request: HeroMatchRequest, seat: int | None) -> int:
    """Return how often opponents are drawn: for each game, or each rotation if the hero takes all seats in turn."""
    games = request.games or GAMES
    return games if seat is not None else ceil(games / request.config.players)


def _tables(
    request: HeroMatchRequest, hero: str, seat: int | None, rows: list[tuple[str, ...]]
) -> tuple[list[tuple[str, ...]], list[int]]:
    """Return the seated players and the start number of each game."""
    players = request.config.players
    heroes = range(players) if seat is None else (seat,)
    if seat is None and request.games not in (None, players * len(rows)):
        request.say(f"{players * len(rows)} games instead of {request.games}: every seat is taken equally often.")
    games = [(start, hero_seat, row) for start, row in enumerate(rows) for hero_seat in heroes]
    tables = seated([hero_seat for _, hero_seat, _ in games], [row for _, _, row in games], hero, players=players)
    return tables, [start for start, _, _ in games]


def _draw_opponents(request: HeroMatchRequest, hero: str, rounds: int) -> list[tuple[str, ...]]:
    """Draw the opponents of each round, in the seats after the hero's."""
    config = request.config
    seats = config.players - 1
    if request.mixed == "self":
        return [(hero,) * seats] * rounds
    weights = _weights(request, hero)
    most = config.selfplay.most_opponents
    return lineups(weights, rounds, seats=seats, distinct=seats, seed=derive_seed(request.seed, "opponents"), most=most)


def _weights(request: HeroMatchRequest, hero: str) -> dict[str, float]:
    config = request.config
    if request.mixed == "baselines":
        return dict.fromkeys(config.builtins, 1.0)
    league = _league(request)
    member = league.agents.get(hero) or Agent(id=hero, kind="checkpoint", step=0)
    weights: dict[str, float] = {}
    for pick, probability in distribution(league, member, request.location.load().run.league.matchmaking).items():
        if pick.agent != hero:
            weights[pick.agent] = weights.get(pick.agent, 0.0) + probability
    if not weights:
        raise NobodyToPlay(
            f"The league of {config.key} has no opponents for {request.model} yet.",
            hint="See `flyball league`; --mixed baselines plays the bots, and --league FILE another league.",
        )
    return weights


def _league(request: HeroMatchRequest) -> League:
    if request.league is not None:
        with reading(request.league):
            data = request.league.read_bytes()
        league, about = load_league(data, str(request.league))
        if about.config_key not in (None, request.config.key):
            raise BadUsage(f"{request.league} is the league of {about.config_key}, not of {request.config.key}.")
        return league
    with open_journal(request.location) as reader:
        views = leagues_in(reader, request.say)
    key = request.config.key
    return views[key].league if key in views else League()
