"""CurriculumIntegration: each of its rules (seed 003 §4, DESIGN §4)."""

import pytest
from driving import KEY, OTHER_KEY, Driven, rated, run_settings, scored
from hypothesis import given
from hypothesis import strategies as st

from app.config import GAMES
from app.events import ClockTick, CurriculumRebalanced, SelfplayComplete, ShardRef
from app.feedback import CurriculumIntegration, FeedbackState
from app.feedback.curriculum import Usual, normalised, raw_weight

TICK = ClockTick(period_seconds=10)
EMPTY = FeedbackState(config_key=KEY)


USUAL = Usual(requests=100.0, velocity=20.0)


def weight(requests: float = USUAL.requests, **fields) -> float:
    return raw_weight(EMPTY.model_copy(update=fields), requests, USUAL)


def test_nothing_known_weighs_one_for_equal_work():
    assert weight() == pytest.approx(1.0)


def test_faster_improvement_weighs_more():
    assert weight(elo_velocity=100.0) > weight(elo_velocity=10.0) > weight(elo_velocity=None)
    assert weight(elo_velocity=-50.0) == weight(elo_velocity=None)


@given(velocity=st.floats(0.01, 1000), pace=st.floats(0.01, 100))
def test_what_is_fast_is_relative_to_the_others(velocity, pace):
    state = EMPTY.model_copy(update={"elo_velocity": velocity})
    elsewhere = EMPTY.model_copy(update={"elo_velocity": velocity * pace})
    faster = USUAL._replace(velocity=USUAL.velocity * pace)
    assert raw_weight(elsewhere, 1.0, faster) == pytest.approx(raw_weight(state, 1.0, USUAL))


def test_a_decline_is_no_faster_than_nothing_known():
    assert weight(elo_velocity=-3.0) == pytest.approx(1.0)


def test_a_data_deficit_weighs_more():
    assert weight(10) > weight(100) > weight(1000)


def test_poor_quality_weighs_less_and_unknown_quality_does_not():
    assert weight(quality_score=0.2) < weight(quality_score=0.9) < weight(quality_score=None)


@given(raw=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_weights_are_clamped_average_1_and_keep_their_order(raw):
    weights = normalised({str(n): value for n, value in enumerate(raw)}, 0.5, 2.0)
    assert all(0.5 <= value <= 2.0 for value in weights.values())
    assert sum(weights.values()) / len(weights) == pytest.approx(1.0, abs=1e-6)
    ordered = [weights[str(n)] for n in sorted(range(len(raw)), key=raw.__getitem__)]
    assert ordered == sorted(ordered)


def played(games: int) -> SelfplayComplete:
    shard = ShardRef(worker="selfplay_worker@laptop", key="c" * 64, rows=9, games=games, model="a" * 64, seed=1)
    return SelfplayComplete(
        request_id="s",
        probe=False,
        shard=shard,
        opponents=(),
        temperature=1.0,
        mean_length=9,
        truncated_games=0,
        seconds=1,
    )


@pytest.fixture
def curriculum():
    return Driven(CurriculumIntegration, run_settings(KEY, OTHER_KEY))


def test_it_rebalances_every_10_minutes_and_not_before(curriculum):
    curriculum.feed(TICK, at=0)
    curriculum.feed(played(100), at=1)
    curriculum.feed(played(5000), key=OTHER_KEY, at=1)
    assert not curriculum.feed(TICK, at=599)
    (rebalanced,) = curriculum.feed(TICK, at=600)
    assert isinstance(rebalanced, CurriculumRebalanced)
    assert rebalanced.weights[KEY] > 1 > rebalanced.weights[OTHER_KEY]
    assert curriculum.state(KEY).games_played == 100


def test_a_change_that_is_too_small_is_no_decision(curriculum):
    curriculum.feed(TICK, at=0)
    curriculum.feed(played(1000), at=1)
    curriculum.feed(played(1010), key=OTHER_KEY, at=1)
    assert not curriculum.feed(TICK, at=600)


def test_quality_and_velocity_reach_it(curriculum):
    curriculum.feed(TICK, at=0)
    curriculum.feed(scored(0.1), at=1)
    for hour in range(5):
        curriculum.feed(rated(100.0 * hour), key=OTHER_KEY, at=3600 * hour)
    (rebalanced,) = curriculum.feed(TICK, at=18_000)
    assert rebalanced.weights[OTHER_KEY] > rebalanced.weights[KEY]


def test_games_count_by_the_requests_that_they_make_up():
    """A game of 150 moves takes the time of twenty of 8: whoever plays fewer of them has no deficit."""
    long, short = "chinese_checkers_3p", "tic_tac_toe_2p"
    curriculum = Driven(CurriculumIntegration, run_settings(long, short))
    curriculum.feed(TICK, at=0)
    for key in (long, short):
        curriculum.feed(played(10 * GAMES[key].selfplay.games_per_request), key=key, at=1)
    assert not curriculum.feed(TICK, at=600)
    assert GAMES[long].selfplay.games_per_request < GAMES[short].selfplay.games_per_request


def test_where_all_stand_still_noise_makes_nobody_fast(curriculum):
    """A tenth of an Elo an hour is twice the mean of that and nothing, but a stall all the same."""
    curriculum.feed(TICK, at=0)
    for hour in range(5):
        curriculum.feed(rated(0.1 * hour), key=KEY, at=3600 * hour)
        curriculum.feed(rated(0.0), key=OTHER_KEY, at=3600 * hour)
    assert not curriculum.feed(TICK, at=18_000)
