"""Quality of shards of games that are too small not to repeat themselves."""

from math import log

import numpy as np
import pytest
from numpy.typing import NDArray

from app.config import GameConfig
from app.config.games import GAMES
from app.core import ConfigKey
from app.play.inspection import QualityScore, ShardStatistics, quality_score, shard_statistics
from app.play.players import LogitPlayer, RandomPlayer
from app.play.selfplay import play_recorded, selfplay_schedule
from flyball import Game


class Matching(Game):
    """Each seat decides once, unseen by the other; both see the same."""

    version, players, actions, observation_size = 1, 2, 2, 1

    def reset(self, rng):
        self.luck, self.taken = rng.random(), []

    def seat(self):
        return len(self.taken) if len(self.taken) < 2 else None

    def legal(self):
        return [0, 1]

    def play(self, action):
        self.taken.append(action)

    def observe(self, seat):
        return [1.0]

    def returns(self):
        won = 1.0 if (self.taken[0] == self.taken[1]) == (self.luck < 0.5) else -1.0
        return (won, -won)


class Collapsed(LogitPlayer):
    """A policy that almost always takes the first legal action."""

    def outputs(self, obs) -> NDArray[np.float32]:
        actions = 7
        return np.tile(np.array([*range(20 * actions, 0, -20), 0], np.float32), (len(obs), 1))


def judged(config: GameConfig, player=None, games: int = 256) -> tuple[QualityScore, ShardStatistics]:
    schedule = selfplay_schedule(games, config.players, [], (1.0,), 5)
    shard, _ = play_recorded(
        config, [player or RandomPlayer()], schedule, model="a" * 64, seed=5, worker="w", in_flight=64
    )
    counted = shard_statistics(shard)
    return quality_score(counted), counted


@pytest.mark.parametrize(("game", "most"), [("kuhn_poker", 8), (f"{__name__}:Matching", 4)])
def test_quality_excuses_repeats_that_small_games_cannot_avoid(game: str, most: int) -> None:
    """A game of Kuhn poker is at most three decisions between two actions."""
    quality, counted = judged(GameConfig(key=ConfigKey("small_2p"), game=game, players=2))
    assert counted.distinct_games < 0.2 * counted.games
    assert counted.reachable_games <= most
    assert quality.components["originality"] == quality.components["diversity"] == 1
    assert quality.score > 0.9


def test_quality_of_collapsed_policy_in_large_game_stays_poor() -> None:
    quality, counted = judged(GAMES[ConfigKey("connect_four_2p")], Collapsed())
    assert counted.distinct_games < 10
    assert counted.reachable_games > 1e6
    assert quality.components["originality"] == counted.distinct_games / counted.games / (1 / 2)
    assert quality.score < 0.3


def test_reachable_games_of_random_play_are_those_of_the_tree() -> None:
    """Tic-tac-toe has 255,168 games; where one move is left it is forced."""
    _, counted = judged(GAMES[ConfigKey("tic_tac_toe_2p")], games=4000)
    assert abs(log(counted.reachable_games / 255_168)) < 0.1
