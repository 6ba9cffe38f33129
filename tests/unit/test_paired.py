"""Paired comparison of Hearts policies: equal deals, power and false positives."""

import numpy as np
import pytest
from hearts_games import play, random_choice
from scipy import stats

from flyball.app.config import GAMES
from flyball.app.games import UnknownGame, open_table
from flyball.app.games.hearts.encode import PASSING
from flyball.app.games.hearts.rules import HeartsRules
from flyball.app.games.hearts.table import HeartsTable, hand_points, moons
from flyball.app.play.hands import HandResults, compare_paired, play_hands, win_shares
from flyball.app.play.match_statistics import NoGames
from flyball.app.play.matches import MatchPlan
from flyball.app.play.players import HeuristicPlayer, RandomPlayer

CONFIG = GAMES["hearts_4p"]
LEVELS = {name: HeuristicPlayer(bot) for name, bot in open_table(CONFIG, 0).spec.levels.items()}


def deals(number: int, seed: int, temperature: float = 0.0, first: int = 0) -> MatchPlan:
    """Plan a number of deals, each in every seat."""
    return MatchPlan(4 * number, seed, temperature, first=4 * first)


def compare_hands(config, hero, reference, others, plan):
    played, compared = (play_hands(config, policy, others, plan) for policy in (hero, reference))
    return compare_paired(played, compared, config.players)


def results(points) -> HandResults:
    flat = np.ravel(points).tolist()
    return HandResults(points=flat, win_shares=[0.25] * len(flat), moons=[False] * len(flat))


def test_the_test_is_students_over_the_deals() -> None:
    rng = np.random.default_rng(0)
    luck = rng.normal(0, 7, (50, 1))
    hero, reference = (6 + luck + rng.normal(shift, 2, (50, 4)) for shift in (-0.5, 0))
    found = compare_paired(results(hero), results(reference), 4)
    differences = (hero - reference).mean(axis=1)
    expected = stats.ttest_1samp(differences, 0)
    interval = expected.confidence_interval(0.95)
    assert (found.hands, found.deals) == (200, 50)
    assert found.difference == pytest.approx(differences.mean())
    assert found.p_value == pytest.approx(expected.pvalue)
    assert (found.lower, found.upper) == pytest.approx((interval.low, interval.high))
    assert found.hero.points == pytest.approx(hero.mean())
    assert found.stderr < found.hero.stderr / 2  # luck cancels


def test_hands_of_a_deal_are_one_observation() -> None:
    each = np.array([[1.0], [-2], [3], [0], [2]])
    alike = compare_paired(results(np.tile(each, 4)), results(np.zeros((5, 4))), 4)
    assert alike.p_value == pytest.approx(stats.ttest_1samp(each[:, 0], 0).pvalue)
    same = compare_paired(results(np.ones((3, 4))), results(np.ones((3, 4))), 4)
    assert (same.difference, same.lower, same.upper, same.p_value) == (0, 0, 0, 1)
    always = compare_paired(results(np.ones((3, 4))), results(np.zeros((3, 4))), 4)
    assert (always.difference, always.p_value) == (1, 0)
    assert compare_paired(results(np.ones((2, 4))), results(np.ones((2, 4))), 4).deals == 2
    for hero, reference in (((1, 4), (1, 4)), ((3, 4), (2, 4))):
        with pytest.raises(NoGames, match="cannot be compared"):
            compare_paired(results(np.ones(hero)), results(np.ones(reference)), 4)
    shares = win_shares(np.array([[0, 0, 13, 13], [26, 0, 0, 0], [5, 6, 7, 8]]))
    np.testing.assert_allclose(shares, [[0.5, 0.5, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3], [1, 0, 0, 0]])


@pytest.mark.parametrize("moon_for_shooter", [False, True])
def test_points_are_those_of_the_hand(moon_for_shooter: bool) -> None:
    table = HeartsTable(HeartsRules(moon_for_shooter=moon_for_shooter), 400)
    play(table, range(400), random_choice(np.random.default_rng(1)))
    taken = table._games["points"].astype(int)
    shot = taken == 26
    others = shot.any(axis=1, keepdims=True) & ~shot
    shooter, rest = (-26, 0) if moon_for_shooter else (0, 26)
    expected = np.where(shot, shooter, np.where(others, rest, taken))
    assert shot.any()
    np.testing.assert_array_equal(hand_points(table.returns(), moon_for_shooter=moon_for_shooter), expected)
    np.testing.assert_array_equal(moons(table.returns()), shot)


class Watched:
    """A player that records its dealt hands before passing. Another player chooses its actions."""

    def __init__(self, player) -> None:
        self.player, self.dealt = player, set()

    def forward(self, obs, mask, temperature=1.0):
        untouched = (obs[:, PASSING] > 0) & (obs[:, :52].sum(axis=1) == 13)
        self.dealt |= {tuple(np.flatnonzero(row)) for row in obs[untouched, :52]}
        return self.player.forward(obs, mask, temperature)


def test_hero_and_reference_get_the_same_cards_in_every_seat() -> None:
    hero, reference = Watched(LEVELS["easy"]), Watched(RandomPlayer())
    compare_hands(CONFIG, hero, reference, LEVELS["normal"], deals(40, 5, 1.0))
    assert hero.dealt == reference.dealt
    cards = [card for hand in hero.dealt for card in hand]
    passed = len(cards) // 52  # of 40 deals; in about a quarter nothing is passed
    assert 20 < passed < 40
    assert np.bincount(cards).tolist() == [passed] * 52


@pytest.mark.parametrize("level", ["easy", "normal"])
def test_points_among_equals_say_nothing_of_how_good_they_are(level: str) -> None:
    """Four equals average 6.5 points a hand, or 19.5 after a moon."""
    hands = play_hands(CONFIG, LEVELS[level], LEVELS[level], deals(60, 2))
    assert set(np.reshape(hands.points, (-1, 4)).mean(axis=1).tolist()) <= {6.5, 19.5}
    assert np.mean(hands.win_shares) == pytest.approx(0.25)


def test_hands_do_not_depend_on_parts_seats_or_rules() -> None:
    easy, normal = LEVELS["easy"], LEVELS["normal"]
    for policy in (easy, normal, RandomPlayer()):
        whole = play_hands(CONFIG, policy, normal, deals(30, 3, 1.0))
        parts = [play_hands(CONFIG, policy, normal, deals(n, 3, 1.0, first)) for first, n in ((0, 11), (11, 19))]
        assert parts[0].plus(parts[1]) == whole
        assert play_hands(CONFIG, policy, normal, deals(30, 4, 1.0)) != whole
    twin = HeuristicPlayer(open_table(CONFIG, 0).spec.levels["normal"])
    plan = deals(40, 9)
    assert play_hands(CONFIG, twin, LEVELS["normal"], plan) == play_hands(CONFIG, twin, twin, plan)
    shaped = CONFIG.selfplay.replace(rewards="shaped")
    longer = CONFIG.replace(game="hearts(hands=4)", selfplay=shaped)
    normal, plan = LEVELS["normal"], deals(10, 0)
    assert play_hands(longer, normal, normal, plan) == play_hands(CONFIG, normal, normal, plan)
    plan = deals(2, 0)
    with pytest.raises(UnknownGame, match="connect_four"):
        play_hands(GAMES["connect_four_2p"], RandomPlayer(), RandomPlayer(), plan)


def test_a_known_difference_is_found() -> None:
    found = compare_hands(CONFIG, LEVELS["normal"], LEVELS["easy"], LEVELS["easy"], deals(50, 0))
    assert found.p_value < 1e-6
    assert found.upper < -2
    assert found.hero.win_share > 0.4
    assert found.reference.win_share == pytest.approx(0.25)
    assert 6 < found.reference.points < 9


class Chancy:
    def __init__(self, rng) -> None:
        self.rng = rng

    def forward(self, obs, mask, temperature=1.0):
        return np.where(mask, self.rng.random(mask.shape), -1e9).astype(np.float32), np.zeros(len(mask))


def test_p_values_of_equal_policies_are_uniform() -> None:
    """Two random players are equally strong but choose different cards."""

    p_values = []
    for seed in range(60):
        hero, other = (Chancy(np.random.default_rng((seed, number))) for number in range(2))
        p_values.append(compare_hands(CONFIG, hero, other, LEVELS["easy"], deals(12, seed)).p_value)
    assert stats.kstest(p_values, "uniform").pvalue > 0.01
    assert np.mean(np.array(p_values) < 0.05) <= 0.12
