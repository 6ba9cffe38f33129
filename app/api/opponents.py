"""Players of an evaluation: the model and its opponents. Opponents are given by name, hash or strategy."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from flyball.app.api.arguments import check_arguments
from flyball.app.api.leagues import leagues_in
from flyball.app.api.models import CURRENT, ConfigNotNamed, checked_search, fetch_model
from flyball.app.api.players import AGAINST, fetch_player
from flyball.app.api.runs import RunLocation, Say, config_of, locate_run, open_journal, silent
from flyball.app.config import Compute, GameConfig, Precision
from flyball.app.core import HEURISTIC, RANDOM, BadUsage, FlyballError, is_judge
from flyball.app.games import open_table
from flyball.app.league.league import Agent, League
from flyball.app.league.matchmaking import STRATEGIES, Strategy, select
from flyball.app.learning.devices import resolve
from flyball.app.play.judges import load_player_or_judge
from flyball.app.play.players import Player
from flyball.app.store import BlobStore, MemoryStore, get_checkpoint, open_store

NAMES = ("random", "champion")
"""Strategies whose names without a count are players: the random bot, the current model."""


class NobodyToPlay(FlyballError, code="unknown"):
    """A strategy finds no opponent in the league."""


@dataclass(frozen=True, slots=True)
class EvaluationRequest:
    """An evaluation in one of our games; ``config`` has the requested temperature."""

    location: RunLocation
    config: GameConfig
    model: str
    against: Sequence[str]
    games: int | None = None  # against each opponent; None for the configured number
    seed: int = 0
    workers: int = 1
    device: str = "cpu"
    precision: Precision = "float32"
    paired: bool = False  # a comparison with a reference on the same deals: see ``flyball.app.api.paired``
    reference: str | None = None  # of a paired comparison; None for the opponent itself
    say: Say = silent


def evaluation_request(
    model: str | Path,
    game: str | GameConfig | None,
    run: str | Path,
    config_file: str | Path | None,
    *,
    temperature: float | None,
    device: str,
    precision: Precision,
    say: Say,
) -> EvaluationRequest:
    """Return a request by the arguments of ``evaluate``; its other fields have their defaults.

    Raises the errors of ``fetch_model``, and ``BadUsage`` for a bot without a game.
    """
    check_arguments(Precision, precision=precision)
    location = locate_run(run, config_file)
    config = config_of(_game_of(str(model), location, say) if game is None else game, location)
    if temperature is not None:
        config = config.replace(evaluation=config.evaluation.replace(temperature=temperature))
    return EvaluationRequest(
        location, config, str(model), (), device=str(resolve(device)), precision=precision, say=say
    )


def _game_of(name: str, location: RunLocation, say: Say) -> str:
    """Return the configuration that a model was trained for."""
    if name in (RANDOM, HEURISTIC) or is_judge(name):
        raise ConfigNotNamed(f"model {name} is a bot of many games.", hint="Name the configuration, too.")
    store = MemoryStore()
    return get_checkpoint(store, fetch_model(name, "model", location, None, store, say=say)).manifest.config_key


def load_requested(request: EvaluationRequest, folder: str) -> tuple[str, Player]:
    """Copy a request's model into ``folder``; return its name and player. Raises the errors of ``fetch_player``."""
    config, store = request.config, open_store(folder)
    name = fetch_player(request.model, "model", request.location, config, store, say=request.say)
    compute = Compute(
        device=request.device, precision=request.precision, settings_folder=request.location.settings_folder
    )
    return name, load_player_or_judge(store, name, open_table(config, 0).spec, compute, config)


def fetch_opponents(request: EvaluationRequest, hero: str, store: BlobStore) -> dict[str, str]:
    """Copy opponents' models into ``store``; return player names by opponent.

    The player names are for ``load_player``. A member that several strategies choose is played once. Only a paired
    model may play against itself.
    """
    players: dict[str, str] = {}
    itself = list[str]()
    model, model_search = checked_search(request.model, "model")
    for name in _opponent_names(request, hero):
        base, search = checked_search(name, AGAINST)
        if base in CURRENT and model in CURRENT:  # no second look-up: a promotion may come between
            player = hero.removesuffix(model_search) + search
        else:
            player = fetch_player(name, AGAINST, request.location, request.config, store, say=request.say)
        if player == hero and not request.paired:
            itself.append(name)
        elif player in players.values():
            request.say(f"{AGAINST}: {name} is there already, and is played once.")
        else:
            players[name] = player
    for name in itself:
        if not players:
            raise BadUsage(f"{AGAINST} {name} is the same as model {request.model}: name somebody else.")
        request.say(f"{AGAINST}: {name} is the model itself, and is not played.")
    return players


def _opponent_names(request: EvaluationRequest, hero: str) -> Iterator[str]:
    """Yield the names or hashes of opponents. ``STRATEGY:COUNT`` selects members of the run's league."""
    key = request.config.key
    league: League | None = None
    for name in request.against:
        if (selection := _strategy(name)) is None:
            yield name
            continue
        strategy, count = selection
        if league is None:
            with open_journal(request.location) as reader:
                views = leagues_in(reader, request.say)
            league = views[key].league if key in views else League()
        member = league.agents.get(hero) or Agent(id=hero, kind="checkpoint", step=0)
        chosen = select(league, strategy, member, count, seed=request.seed)
        if not chosen:
            raise NobodyToPlay(
                f"{AGAINST} {name}: the league of {key} has no opponents for it yet.",
                hint="See `flyball league`; name opponents by their hashes or files.",
            )
        if len(chosen) < count:
            request.say(f"{AGAINST} {name}: the league of {key} has {len(chosen)} of these, not {count}.")
        yield from (agent.id for agent in chosen)


def _strategy(name: str) -> tuple[Strategy, int] | None:
    """Return a strategy and its number of opponents; None for a player. Raises ``BadUsage`` if it is neither."""
    if is_judge(name):
        return None
    strategy, colon, count = name.partition(":")
    if not name:
        raise BadUsage(f"{AGAINST} names nobody; write for instance random.")
    if not colon and name in STRATEGIES and name not in NAMES:
        raise BadUsage(f"{AGAINST} {name}: say how many, for instance {name}:3.")
    if not colon or (strategy not in STRATEGIES and Path(name).exists()):
        return None
    if strategy not in STRATEGIES:
        raise BadUsage(f"{AGAINST} {name}: there is no strategy {strategy!r}, but {', '.join(STRATEGIES)}.")
    if count and (not count.isdecimal() or int(count) < 1):
        raise BadUsage(f"{AGAINST} {name}: after the colon comes how many, for instance recent:3.")
    return strategy, int(count or 1)
