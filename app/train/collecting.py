"""Games of a policy, or of a teacher, as rows to learn from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.config import SELF, PipelineSettings
from app.core import ModelHash
from app.play.players import Player
from app.play.recording import Outcomes
from app.play.rollout import HERO, Schedule
from app.play.selfplay import play_recorded, selfplay_schedule
from app.store import Shard
from app.train.game import RunGame

IN_FLIGHT = 4096
"""Games at once."""


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """Rows, how their games ended [G, P], and which seats they are of [G, P]."""

    shard: Shard
    outcomes: Outcomes
    recorded: NDArray[np.bool_]

    @property
    def mean_return(self) -> float:
        """Mean outcome of the recorded seats."""
        return float(self.outcomes.returns[self.recorded].mean())

    def mean_points(self, game: RunGame) -> float | None:
        """Mean points a hand of the recorded seats, where the game counts them."""
        points = game.points(self.outcomes.returns)
        return None if points is None else float(points[self.recorded].mean())


def collect(game: RunGame, model: ModelHash, policy: Player, settings: PipelineSettings, seed: int) -> Collected:
    """Play an iteration's games.

    Args:
        game: what is played.
        model: whose games they are.
        policy: the model, playing; its rows are recorded.
        settings: number of games, and opponents.
        seed: of all that is drawn.
    """
    asked = settings.collection
    whole_table = settings.env.collect_all_seats
    names = [name for name in asked.opponents if name != SELF or not whole_table]
    players = [policy, *(policy if name == SELF else game.bot(name) for name in names)]
    counts = divided(asked.games_per_iteration, asked.opponents)
    lineups = [([number] * (game.config.players - 1), counts[name]) for number, name in enumerate(names, 1)]
    temperatures = [asked.temperature] * len(players)
    schedule = selfplay_schedule(
        asked.games_per_iteration, game.config.players, lineups, temperatures, seed, opening_plies=asked.opening_plies
    )
    return _played(game, model, players, schedule, seed, *names)


def lessons(game: RunGame, teacher: Player, model: ModelHash, games: int, seed: int) -> Collected:
    """Let a teacher play all seats; ``model`` learns from it."""
    schedule = selfplay_schedule(games, game.config.players, [], (1.0,), seed)
    return _played(game, model, [teacher], schedule, seed)


def divided(games: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Divide ``games`` by shares that need not sum to 1."""
    bounds = np.rint(np.cumsum([0.0, *shares.values()]) / sum(shares.values()) * games).astype(int)
    return dict(zip(shares, np.diff(bounds).tolist(), strict=True))


def _played(
    game: RunGame, model: str, players: Sequence[Player], schedule: Schedule, seed: int, *opponents: str
) -> Collected:
    shard, outcomes = play_recorded(
        game.config,
        players,
        schedule,
        model=model,
        seed=seed,
        worker="pipeline",
        in_flight=IN_FLIGHT,
        opponents=opponents,
    )
    return Collected(shard, outcomes, schedule.seating == HERO)
