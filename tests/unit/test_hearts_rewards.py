"""Rewards of Hearts: in every mode they sum to the outcome."""

import numpy as np
import pytest
from hearts_games import QUEEN, play, random_choice
from shard_rows import played

from flyball.app.config import GAMES
from flyball.app.games import UnknownGame, open_table
from flyball.app.games.hearts.rules import HeartsRules, parse_rules
from flyball.app.games.hearts.table import HeartsTable
from flyball.app.play.recording import step_rewards

MODES = ("terminal", "per_trick", "shaped")
SEATS = np.arange(4, dtype=np.int8)


def config_of(rewards: str, game: str = "hearts"):
    config = GAMES["hearts_4p"]
    selfplay = config.selfplay.replace(rewards=rewards)
    return config.replace(game=game, selfplay=selfplay)


def shard_of(rewards: str, games: int, game: str = "hearts"):
    return played(config_of(rewards, game), games, seed=7, slots=64)


@pytest.mark.parametrize(
    ("game", "hands"), [("hearts", 600), ("hearts(hands=2)", 300), ("hearts(must_break_hearts=false)", 300)]
)
@pytest.mark.parametrize("rewards", MODES)
def test_the_rewards_of_an_episode_sum_to_its_outcome(rewards: str, game: str, hands: int) -> None:
    """A moon's 26 points are a gain of 1, not a loss, and the best result."""
    shard = shard_of(rewards, hands, game)
    sums = np.zeros_like(shard.returns)
    np.add.at(sums, (shard.game, shard.seat), shard.reward)
    np.testing.assert_allclose(sums, shard.returns, atol=1e-5)
    if game == "hearts":
        assert sums.max() == pytest.approx(1, abs=1e-5)


def test_only_the_end_is_rewarded_unless_asked() -> None:
    shard = shard_of("terminal", 50)
    assert not shard.reward[~shard.done].any()
    assert GAMES["hearts_4p"].selfplay.rewards == "terminal"
    assert shard_of("per_trick", 50).reward[~shard.done].any()


@pytest.mark.parametrize("seed", range(5))
def test_points_are_charged_to_the_taker_of_a_complete_trick(seed: int) -> None:
    table, earned, counts, leaders = HeartsTable(HeartsRules(), 1, "per_trick"), [], [], {}

    def watch(*_):
        game = table._games[0]
        earned.append(table.earned(np.zeros(4, dtype=np.int64), SEATS))
        counts.append(int(game["cards_played"]))
        leaders[counts[-1] // 4] = int(game["leader"])

    play(table, [seed], random_choice(np.random.default_rng(seed)), watch)
    plays = table._games["plays"][0].tolist()
    charged, expected = np.zeros((14, 4)), np.zeros(4)
    for trick in range(13):
        cards = plays[4 * trick : 4 * trick + 4]
        best = max(range(4), key=lambda k: (cards[k] // 13 == cards[0] // 13, cards[k]))
        points = sum(card >= 39 for card in cards) + 13 * (QUEEN in cards)
        expected += np.where((leaders.get(trick, 0) + best) % 4 == SEATS, -points / 26, points / 78)
        charged[trick + 1] = expected
    np.testing.assert_allclose(earned, charged[np.array(counts) // 4], atol=1e-6)
    np.testing.assert_allclose(np.sum(earned, axis=1), 0, atol=1e-6)


def test_shaping_rewards_voids_and_charges_unbroken_heart_leads() -> None:
    game = "hearts(must_break_hearts=false)"
    plain, shaped = (HeartsTable(parse_rules(game), 400, mode) for mode in ("per_trick", "shaped"))
    charged = voided = 0
    slots = np.arange(400).repeat(4)
    seats = np.tile(SEATS, 400)

    def watch(*_):
        nonlocal charged, voided
        games = shaped._games
        bonus = shaped.earned(slots, seats) - plain_earned(games)
        hands = games["hand"].reshape(-1)
        voids = sum((hands >> 13 * suit & 0x1FFF) == 0 for suit in range(4))
        np.testing.assert_allclose(bonus, 0.02 * voids - 0.05 * games["leads"].reshape(-1), atol=1e-6)
        charged, voided = int(games["leads"].sum()), int(voids.sum())

    def plain_earned(games):
        plain._games[:] = games
        return plain.earned(slots, seats)

    play(shaped, range(400), random_choice(np.random.default_rng(0)), watch)
    assert charged > 50
    assert voided > 50
    by_the_rules = HeartsTable(HeartsRules(), 400, "shaped")
    play(by_the_rules, range(400), random_choice(np.random.default_rng(0)))
    assert not by_the_rules._games["leads"].any()  # hearts unbroken are led by who has nothing else


def test_earnings_before_the_first_decision_count_at_the_end() -> None:
    earned = np.array([0.5, 0.7, 0.4, 0.0, 0.1], dtype=np.float32)
    last = np.array([False, False, True, False, True])
    outcome = np.array([1, 1, 1, -1, -1], dtype=np.float32)
    reward = step_rewards(earned, last, outcome)
    np.testing.assert_allclose(reward, [0.2, -0.3, 1.1, 0.1, -1.1], atol=1e-6)


@pytest.mark.parametrize("game", ["hearts(hands=0)", "othello"])
def test_rewards_that_a_game_does_not_have_are_refused(game: str) -> None:
    config = config_of("per_trick", game)
    if game == "othello":
        config = config.replace(engine="openspiel", players=2)
    with pytest.raises(UnknownGame, match="rewards"):
        open_table(config, 1)
