"""A run's game: its configuration and bots, collected games, and evaluations."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import SELF, Compute, GameConfig, PipelineSettings, TrainingSettings
from flyball.app.core import FlyballError, ModelHash, derive_seed
from flyball.app.games import TableSpec, bots_of, open_table, own_hearts
from flyball.app.games.hearts.table import hand_points, moons
from flyball.app.play.hands import win_shares
from flyball.app.play.matches import MatchPlan, play_rotations
from flyball.app.play.players import Player, load_player
from flyball.app.play.rollout import HERO
from flyball.app.play.search import check_searchable
from flyball.app.play.selfplay import play_recorded, selfplay_schedule
from flyball.app.store import MemoryStore, Shard
from flyball.app.train.iteration import Evaluation, Games

IN_FLIGHT = 4096  # games at once
WORKER = "pipeline"


class UnfitSettings(FlyballError, code="usage"):
    """Settings of a run that do not fit its game."""


@dataclass(frozen=True)
class RunGame:
    """A game and its bots."""

    config: GameConfig  # with the rewards, rules and network of the run
    folder: str = "."  # of the settings file, where users' engines run
    _loaded: dict[str, Player] = field(default_factory=dict, compare=False, repr=False)

    @cached_property
    def spec(self) -> TableSpec:
        """The game's description."""
        return open_table(self.config, slots=0).spec

    def points(self, returns: NDArray[np.float32]) -> NDArray[np.int64] | None:
        """Return the points [G, P] of single hands of Hearts with outcomes [G, P]; None for other games."""
        rules = own_hearts(self.config)
        if rules is None or rules.hands != 1:
            return None
        return hand_points(returns, moon_for_shooter=rules.moon_for_shooter)

    def bot(self, name: str) -> Player:
        """Return a bot, loaded on first use and kept, because an engine takes long to start."""
        if name not in self._loaded:
            compute = Compute(settings_folder=self.folder)
            self._loaded[name] = load_player(MemoryStore(), name, self.spec, compute, self.config)
        return self._loaded[name]


def run_game(config: GameConfig, settings: PipelineSettings, folder: str = ".") -> RunGame:
    """Return a run's game; ``folder`` is that of the settings file.

    Raises ``UnknownGame``, ``Unsearchable``, or ``UnfitSettings`` if ``settings`` do not fit it.
    """
    if config.trainer is not None or config.train_command is not None:
        raise UnfitSettings(
            f"{config.key} has a trainer of its own, and flyball train knows its own backends alone.",
            hint="Train it by flyball up, or name a configuration without trainer and train_command.",
        )
    searches = settings.backend == "search"
    changes = {
        "backend": settings.backend,
        "search": settings.search,
        "replay_rows": settings.search.replay_rows if searches else None,
        "game": settings.env.game or config.game,
        "network": settings.network.network,
        "selfplay": config.selfplay.replace(rewards=settings.env.reward_mode),
    }
    game = RunGame(config.replace(**changes), folder)
    if searches:
        check_searchable(game.config, game.spec)
    sizes = {"obs_dim": game.spec.observation_size, "action_dim": game.spec.actions}
    for key, size in sizes.items():
        declared = getattr(settings.network, key)
        if declared is not None and declared != size:
            raise UnfitSettings(f"network.{key} is {declared}; {config.key} has {size}.", hint="Leave it out.")
    named = [("training.eval_opponent", settings.training.eval_opponent)]
    named += [("collection.opponents", name) for name in settings.collection.opponents if name != SELF]
    if settings.collection.initial_policy == "behavioral_clone" and not settings.cloning.experience:
        named.append(("cloning.teacher", settings.cloning.teacher))
    bots = bots_of(game.config)
    for key, name in named:
        if game.spec.bot(name) not in bots:
            hint = f"It has {', '.join(bots)}."
            raise UnfitSettings(f"{key}: {config.key} has no bot {name!r}.", hint=hint)
    return game


def collect(game: RunGame, model: ModelHash, policy: Player, settings: PipelineSettings, seed: int) -> Games[Shard]:
    """Play an iteration's games, and record the rows of ``policy``, whose network has the hash ``model``."""
    collection, seats = settings.collection, game.config.players
    names = [name for name in collection.opponents if name != SELF or not settings.env.collect_all_seats]
    players = [policy, *(policy if name == SELF else game.bot(name) for name in names)]
    counts = divided(collection.games_per_iteration, collection.opponents)
    lineups = [([number] * (seats - 1), counts[name]) for number, name in enumerate(names, 1)]
    temperatures = [collection.temperature] * len(players)
    schedule = selfplay_schedule(
        collection.games_per_iteration, seats, lineups, temperatures, seed, opening_plies=collection.opening_plies
    )
    shard, outcomes = play_recorded(
        game.config, players, schedule, model=model, seed=seed, worker=WORKER, in_flight=IN_FLIGHT, opponents=names
    )
    recorded, points = schedule.seating == HERO, game.points(outcomes.returns)
    return Games(
        games=collection.games_per_iteration,
        rows=shard.rows,
        shard=shard,
        mean_return=float(outcomes.returns[recorded].mean()),
        mean_points=None if points is None else float(points[recorded].mean()),
    )


def lessons(game: RunGame, teacher: Player, model: ModelHash, games: int, seed: int, *, opening_plies: int) -> Shard:
    """Return the rows of a teacher in all seats; ``model``, which learns from them, is recorded in the shard.

    Random openings vary the games: a deterministic teacher would play one game again and again.
    """
    schedule = selfplay_schedule(games, game.config.players, [], (1.0,), seed, opening_plies=opening_plies)
    shard, _ = play_recorded(
        game.config, [teacher], schedule, model=model, seed=seed, worker=WORKER, in_flight=IN_FLIGHT
    )
    return shard


def divided(games: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Divide ``games`` in proportion to ``shares``, which need not sum to 1."""
    bounds = np.rint(np.cumsum([0.0, *shares.values()]) / sum(shares.values()) * games).astype(int)
    return dict(zip(shares, np.diff(bounds).tolist(), strict=True))


def evaluate(game: RunGame, policy: Player, opponent: str, *, games: int, temperature: float, seed: int) -> Evaluation:
    """Play a policy against copies of a bot.

    Games are rounded up to whole rotations, at least two. The temperature is the policy's; 0 is greedy. The same seed
    gives every policy the same deals.
    """
    seats = game.config.players
    rotations = max(2, -(-games // seats))
    plan = MatchPlan(rotations * seats, seed, temperature, game.config.evaluation.opening_plies)
    outcomes, heroes = play_rotations(game.config, policy, game.bot(opponent), plan)
    returns, numbers = outcomes.returns, np.arange(plan.games)
    means = returns[numbers, heroes].reshape(rotations, seats).mean(axis=1, dtype=np.float64)
    points = game.points(returns)
    return Evaluation(
        opponent=opponent,
        games=plan.games,
        outcome=float(means.mean()),
        stderr=float(means.std(ddof=1)) / sqrt(rotations),
        win_share=float(win_shares(-returns)[numbers, heroes].mean()),
        points=None if points is None else float(points[numbers, heroes].mean()),
        moon_rate=None if points is None else float(moons(returns)[numbers, heroes].mean()),
    )


def final_evaluations(game: RunGame, policy: Player, settings: TrainingSettings, seed: int) -> list[Evaluation]:
    """Evaluate a policy on new deals against the game's bots and the run's own; the user's other bots may be slow."""
    games, temperature = settings.final_games, settings.eval_temperature
    fresh = derive_seed(seed, "final evaluation")
    return [
        evaluate(game, policy, bot, games=games, temperature=temperature, seed=fresh)
        for bot in (dict.fromkeys((*game.spec.bots, game.spec.bot(settings.eval_opponent))) if games else ())
    ]
