"""Repeated games: copies, and games too small not to repeat themselves. See ``flyball.app.play.inspection``."""

from itertools import product
from math import exp, log, prod

import numpy as np
import pytest
from numpy.typing import NDArray

from flyball import Game
from flyball.app.config import GameConfig
from flyball.app.config.games import GAMES
from flyball.app.core import ConfigKey
from flyball.app.play.inspection import (
    CERTAIN,
    QualityScore,
    ShardStatistics,
    quality_score,
    repetition_evidence,
    shard_statistics,
)
from flyball.app.play.players import LogitPlayer, RandomPlayer
from flyball.app.play.selfplay import play_recorded, selfplay_schedule

POLICY = {b"a": 0.5, b"b": 0.3, b"c": 0.2}


def log_probs(games, policy) -> np.ndarray:
    return np.log([policy[game] for game in games])


def played(rng: np.random.Generator, count: int, variety: int, sharpness: float = 0.0):
    """Draw games from ``variety`` different ones; return games and log-probabilities."""
    weights = np.arange(1, variety + 1.0) ** -sharpness
    weights /= weights.sum()
    drawn = rng.choice(variety, size=count, p=weights)
    return [b"%d" % game for game in drawn], np.log(weights[drawn])


@pytest.mark.parametrize("earlier", [[[b"a", b"b"]], [[b"c"], [b"a", b"a", b"c", b"d"]], [[b"d", b"d"]], [[], [b"b"]]])
def test_of_shards_played_anew_the_ratio_is_1_on_average_or_less(earlier):
    """An expected ratio of at most 1 bounds false alarms."""
    expected = 0.0
    for shard in product(POLICY, repeat=2):
        chance = prod(POLICY[game] for game in shard)
        expected += chance * exp(repetition_evidence(shard, log_probs(shard, POLICY), earlier))
    assert expected <= 1 + 1e-12
    if all(len(shard) == 2 and b"d" not in shard for shard in earlier):  # other shards can only lower the ratio
        assert expected == pytest.approx(1)


def test_one_repeated_game_and_no_earlier_shards_by_hand():
    evidence = repetition_evidence([b"b", b"c"], log_probs([b"b", b"c"], POLICY), [[b"c", b"x"]])
    assert evidence == pytest.approx(log(0.5 * (0.5 + 0.25 / 0.2) * 0.5 + 0.5 * 0.5 * 0.5))
    assert repetition_evidence([b"a"], np.zeros(1), []) == 0
    assert repetition_evidence([b"a"], np.zeros(1), [[]]) == 0


@pytest.mark.parametrize("variety", [1, 30, 3000, 10**5])
def test_games_that_repeat_by_themselves_are_no_copies(variety):
    """Small games and confident players repeat nearly every game by chance."""
    for seed in range(10):
        rng = np.random.default_rng(seed)
        shards = [played(rng, 256, variety, sharpness=1.5) for _ in range(9)]
        *earlier, (games, chances) = shards
        before = [shard for shard, _ in earlier]
        assert repetition_evidence(games, chances, before) < CERTAIN / 2
        if variety == 30:
            known = {game for shard in before for game in shard}
            assert sum(game in known for game in games) >= 250


@pytest.mark.parametrize("share", [1.0, 0.6])
def test_games_from_any_earlier_shard_are_copies(share):
    rng = np.random.default_rng(1)
    shards = [played(rng, 256, 10**5) for _ in range(9)]
    *earlier, (games, chances) = shards
    before = [shard for shard, _ in earlier]
    copied = int(share * 256)
    mixed = [before[int(rng.integers(8))][int(rng.integers(256))] for _ in range(copied)] + games[copied:]
    assert repetition_evidence(mixed, chances, before) > CERTAIN
    assert repetition_evidence(games, chances, before) < 0


def test_copies_in_order_or_of_other_lengths_are_found():
    rng = np.random.default_rng(2)
    shards = [played(rng, 256, 30, sharpness=1.5) for _ in range(9)]
    before = [shard for shard, _ in shards]
    assert repetition_evidence(*shards[4], before) > 10 * CERTAIN
    games, chances = played(np.random.default_rng(3), 100, 30)
    assert repetition_evidence(games, chances, [games[:60], games * 2]) > CERTAIN
    assert repetition_evidence(games[:60], chances[:60], [games]) > CERTAIN


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
