"""One hero against copies of one opponent, every seat taken equally often."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from app.config import GameConfig
from app.core import derive_seed
from app.evaluation import MatchGames, match_games
from app.games import open_table
from app.selfplay import HERO, Outcomes, Player, Rollout, Schedule

IN_FLIGHT = 1024
"""Games at once: a step costs as much Python for a few games as for many."""

_OPPONENT = 1


@dataclass(frozen=True, slots=True)
class MatchPlan:
    """How a match is played.

    Attributes:
        games: P consecutive ones are a rotation: the same seed, and so the same cards and opening, with the hero in
            each seat.
        seed: of the deals, the openings and the players' choices.
        temperature: of both sides; 0 always takes the most probable action, and only chance and the openings
            make games differ.
        opening_plies: decisions at the beginning of each game that are taken at random.
        first: number of the first game. Whatever parts of whole rotations a match is played in, its games are the same.
    """

    games: int
    seed: int
    temperature: float
    opening_plies: int = 0
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
