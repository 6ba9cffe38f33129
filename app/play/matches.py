"""Matches between two players, and gauntlets on an engine's processes.

A model plays from a snapshot: the store's checkpoint under the model's hash. A training that runs at the same time has
its own network, optimiser and games, so an evaluation cannot affect it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from time import perf_counter

import numpy as np
from numpy.typing import NDArray

from flyball.app.config import GameConfig
from flyball.app.core import derive_seed
from flyball.app.engine import Engine, Report, scatter
from flyball.app.games import open_table
from flyball.app.job_specs import BatchResult, BatchSpec, MatchGames, job, read_results
from flyball.app.learning.devices import games_at_once
from flyball.app.play.gauntlet import ATTEMPTS, GauntletResult, GauntletSpec
from flyball.app.play.judges import load_player_or_judge
from flyball.app.play.match_statistics import decisive_margin, match_games, win_margin
from flyball.app.play.players import PLAYERS, Player, RandomPlayer
from flyball.app.play.recording import Outcomes
from flyball.app.play.rollout import HERO, Rollout, Schedule
from flyball.app.store import open_store

IN_FLIGHT = 1024  # games at once: Python's overhead of a step is the same for few and many
SAMPLE = 128
"""Games of the random bot from which the win margin of a game follows."""

_OPPONENT = 1


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """Games, seed and temperature of a match or a part of it."""

    games: int  # P consecutive games are a rotation: the same cards and opening, with the hero in each seat in turn
    seed: int  # of the deals, the openings and the players' choices
    temperature: float  # of both sides; at 0 only chance and the openings make games differ
    opening_plies: int | None = 0  # random decisions at the start of each game; None: as configured
    first: int = 0  # number of the first game; a match played in parts of whole rotations has the same games


def play_match(
    config: GameConfig, hero: Player, opponent: Player, plan: MatchPlan, in_flight: int | None = None
) -> MatchGames:
    """Play a match, or a part of it. On a CPU the plan determines the games; on a GPU the plan and ``in_flight`` do."""
    spec = open_table(config, 0).spec
    outcomes, heroes = play_rotations(config, hero, opponent, plan, in_flight=in_flight)
    return match_games(
        outcomes.returns,
        heroes,
        outcomes.truncated,
        outcomes.lengths,
        outcomes.histories,
        openings=outcomes.openings,
        margin=margin_of(config, _random_outcomes, decisive=spec.decisive),
        unit=spec.outcome_scale,
    )


_MARGINS: dict[str, float] = {}


def margin_of(config: GameConfig, sample: Callable[[GameConfig], NDArray[np.float32]], *, decisive: bool) -> float:
    """Return the lead that counts as a won game of a configuration (see ``win_margin``).

    If the game is not ``decisive``, it is measured once a process in the outcomes of a ``sample`` of games, which has
    to be always the same.
    """
    rules = config.model_dump_json(include={"game", "players", "engine", "max_moves", "outcome_scale", "imports"})
    if rules not in _MARGINS:
        _MARGINS[rules] = decisive_margin(config.players) if decisive else win_margin(sample(config))
    return _MARGINS[rules]


def _random_outcomes(config: GameConfig) -> NDArray[np.float32]:
    """Return the outcomes [G, P] of games that the random bot plays in all seats."""
    schedule = Schedule(
        seeds=[derive_seed(0, "win margin", number) for number in range(SAMPLE)],
        seating=np.full((SAMPLE, config.players), HERO, dtype=np.int8),
        temperatures=(1.0,),
        seed=0,
    )
    return Rollout(open_table(config, SAMPLE), [RandomPlayer()], schedule).run().returns


def play_rotations(
    config: GameConfig,
    hero: Player,
    opponent: Player,
    plan: MatchPlan,
    seats: int | None = None,
    *,
    in_flight: int | None = None,
) -> tuple[Outcomes, NDArray[np.int64]]:
    """Play a match; return its games' outcomes and the hero's seats [G].

    In a rotation the hero takes each of the first ``seats`` seats, by default all. At most ``in_flight`` games
    are played at once.
    """
    rotations, heroes = np.divmod(np.arange(plan.first, plan.first + plan.games), seats or config.players)
    seating = np.full((plan.games, config.players), _OPPONENT, dtype=np.int8)
    seating[np.arange(plan.games), heroes] = HERO
    deals = {rotation: derive_seed(plan.seed, "deal", rotation) for rotation in np.unique(rotations).tolist()}
    table = open_table(config, min(plan.games, in_flight or IN_FLIGHT))
    plies = plan.opening_plies
    if plies is None:
        plies = config.evaluation.openings(dealt=table.spec.dealt)
    schedule = Schedule(
        seeds=[deals[rotation] for rotation in rotations.tolist()],
        seating=seating,
        temperatures=(plan.temperature,) * 2,
        seed=derive_seed(plan.seed, "choices"),
        first=plan.first,
        openings=np.full(plan.games, plies),
    )
    return Rollout(table, [hero, opponent], schedule).run(), heroes


@job
def batch(spec: BatchSpec, report: Report) -> BatchResult:
    """Play a batch of games (a job).

    Deterministic on a CPU, except ``seconds``. Raises ``MissingBlob``, ``DamagedBlob``, ``WrongModel``, ``UnknownGame``
    or ``MissingDevice``.
    """
    began, config, part, name = perf_counter(), spec.config, spec.batch, spec.batch.opponent.player
    store, game = open_store(spec.store), open_table(config, 0).spec
    load = load_player_or_judge if spec.judges else PLAYERS.load
    hero, opponent = (load(store, player, game, spec, config) for player in (spec.model, name))
    settings, seed = config.evaluation, derive_seed(spec.seed, "match", name)
    plan = MatchPlan(part.games, seed, settings.temperature, settings.opening_plies, part.first)
    games = play_match(config, hero, opponent, plan, games_at_once(spec.device, IN_FLIGHT))
    report({"opponent": part.opponent.name, "games": part.games})
    return BatchResult(games=games, seconds=perf_counter() - began)


class EvaluationManager:
    """Plays gauntlets on an engine.

    A batch whose process dies, hangs or fails is tried again, then counted as lost. ``function`` is the job that plays
    a batch; a user-defined backend has another (``flyball.app.backends``).
    """

    def __init__(self, engine: Engine, function: str = "flyball.app.play.matches:batch") -> None:
        self._engine, self._function = engine, function

    async def evaluate(self, spec: GauntletSpec, on_progress: Report | None = None) -> GauntletResult:
        """Play a gauntlet and return its results. Raises ``NothingPlayed``.

        Any number of processes plays the same games. Cancelling stops the games. ``on_progress`` receives
        ``{"opponent", "games"}`` of each finished batch.
        """
        parts = await scatter(
            self._engine,
            self._function,
            spec.parts,
            on_progress=on_progress,
            deadline_seconds=spec.config.evaluation.batch_seconds,
            failures=ATTEMPTS,
        )
        return spec.gather(read_results(BatchResult, parts))

    def start(
        self, group: asyncio.TaskGroup, spec: GauntletSpec, on_progress: Report | None = None
    ) -> asyncio.Task[GauntletResult]:
        """Play a gauntlet in the background."""
        return group.create_task(self.evaluate(spec, on_progress))
