"""EvaluationManager: gauntlets spread over an engine's processes, awaited or in the background.

A snapshot is played: the checkpoint that the store holds under the model's hash. Whoever trains meanwhile has its own
network, optimiser and games, and nothing here can touch them.
"""

import asyncio
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from app.config import GameConfig
from app.core import derive_seed
from app.engine import Engine, JsonObject, Report, scatter
from app.games import open_table
from app.play.gauntlet import ATTEMPTS, BatchResult, BatchSpec, GauntletResult, GauntletSpec
from app.play.match_statistics import MatchGames, match_games
from app.play.players import PLAYERS, Player
from app.play.rollout import HERO, Outcomes, Rollout, Schedule
from app.store import BlobStore, FileStore

IN_FLIGHT = 1024
"""Games at once: a step costs as much Python for a few games as for many."""

_OPPONENT = 1


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """How a match is played."""

    # P consecutive ones are a rotation: the same seed, and so the same cards and opening, with the hero in each
    # seat
    games: int
    seed: int  # of the deals, the openings and the players' choices
    # of both sides; 0 always takes the most probable action, and only chance and the openings make games differ
    temperature: float
    opening_plies: int = 0  # decisions at the beginning of each game that are taken at random
    # number of the first game. Whatever parts of whole rotations a match is played in, its games are the same.
    first: int = 0


def play_match(config: GameConfig, hero: Player, opponent: Player, plan: MatchPlan) -> MatchGames:
    """Play a match, or a part of it. Deterministic for its plan on a CPU."""
    outcomes, heroes = play_rotations(config, hero, opponent, plan)
    return match_games(outcomes.returns, heroes, outcomes.truncated, outcomes.lengths, outcomes.histories)


def play_rotations(
    config: GameConfig, hero: Player, opponent: Player, plan: MatchPlan
) -> tuple[Outcomes, NDArray[np.int64]]:
    """Play a match and return how its games ended, and the hero's seat in each [G]."""
    rotations, heroes = np.divmod(np.arange(plan.first, plan.first + plan.games), config.players)
    seating = np.full((plan.games, config.players), _OPPONENT, dtype=np.int8)
    seating[np.arange(plan.games), heroes] = HERO
    deals = {rotation: derive_seed(plan.seed, "deal", rotation) for rotation in np.unique(rotations).tolist()}
    seeds = [deals[rotation] for rotation in rotations.tolist()]
    openings = np.full(plan.games, plan.opening_plies)
    schedule = Schedule(
        seeds, seating, (plan.temperature,) * 2, derive_seed(plan.seed, "choices"), plan.first, openings
    )
    table = open_table(config, min(plan.games, IN_FLIGHT))
    return Rollout(table, [hero, opponent], schedule).run(), heroes


def batch(spec: JsonObject, report: Report) -> JsonObject:
    """Play ``BatchSpec``, return ``BatchResult``. Deterministic on a CPU, but for ``seconds``.

    Raises ``MissingBlob``, ``DamagedBlob``, ``WrongModel`` or ``UnknownGame``.
    """
    settings = BatchSpec.model_validate(spec)
    result = play_batch(FileStore(settings.store), settings)
    report({"opponent": settings.batch.opponent.name, "games": settings.batch.games})
    return result.model_dump(mode="json")


def play_batch(store: BlobStore, spec: BatchSpec) -> BatchResult:
    """Play a batch with the models of ``store``; the store named in the spec is not opened."""
    began = perf_counter()
    game, settings, asked = open_table(spec.config, 0).spec, spec.config.evaluation, spec.batch
    name = asked.opponent.player
    hero, other = (PLAYERS.load(store, player, game, spec.device) for player in (spec.model, name))
    seed = derive_seed(spec.seed, "match", name)
    plan = MatchPlan(asked.games, seed, settings.temperature, settings.opening_plies, asked.first)
    games = play_match(spec.config, hero, other, plan)
    return BatchResult(games=games, seconds=perf_counter() - began)


BATCH_JOB = "app.play.matches:batch"


class EvaluationManager:
    """Plays gauntlets on an engine. A batch whose process dies, hangs or fails is tried again, then written off."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    async def evaluate(self, spec: GauntletSpec, on_progress: Report | None = None) -> GauntletResult:
        """Play a gauntlet and sum it up. Raises ``NothingPlayed``. Cancelling stops its games.

        Args:
            spec: what to play; the same spec gives the same games, however many processes there are.
            on_progress: hears ``{"opponent", "games"}`` of each batch that is done.
        """
        parts = await scatter(
            self._engine,
            BATCH_JOB,
            spec.parts,
            on_progress=on_progress,
            deadline_seconds=spec.config.evaluation.batch_seconds,
            failures=ATTEMPTS,
        )
        return spec.gather(parts)

    def start(
        self, group: asyncio.TaskGroup, spec: GauntletSpec, on_progress: Report | None = None
    ) -> asyncio.Task[GauntletResult]:
        """Play a gauntlet in the background. The task is its future: await it, ask it, or cancel it."""
        return group.create_task(self.evaluate(spec, on_progress))
