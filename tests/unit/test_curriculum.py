"""CurriculumIntegration: each of its rules."""

import driving
import pytest
from driving import KEY, OTHER_KEY, Driven, gated, rated, run_settings, scored
from hypothesis import given
from hypothesis import strategies as st

from app.config import GAMES
from app.controllers import CurriculumIntegration, FeedbackState
from app.controllers.curriculum import Usual, normalised, raw_weight
from app.events import ClockTick, EvaluationCompleted, SelfplayComplete

TICK = ClockTick(period_seconds=10)
EMPTY = FeedbackState(config_key=KEY)


USUAL = Usual(requests=100.0, velocity=20.0)


def weight(requests: float = USUAL.requests, **fields) -> float:
    return raw_weight(EMPTY.replace(**fields), requests, USUAL)


def test_faster_improvement_a_deficit_and_quality_weigh_more():
    assert weight() == weight(elo_velocity=-3.0) == pytest.approx(1.0), "a decline is as if nothing were known"
    assert weight(elo_velocity=100.0) > weight(elo_velocity=10.0) > weight(elo_velocity=None)
    assert weight(elo_velocity=-50.0) == weight(elo_velocity=None)
    assert weight(10) > weight(100) > weight(1000)
    assert weight(quality_score=0.2) < weight(quality_score=0.9) < weight(quality_score=None)


@given(velocity=st.floats(0.01, 1000), pace=st.floats(0.01, 100))
def test_what_is_fast_is_relative_to_the_others(velocity, pace):
    state = EMPTY.replace(elo_velocity=velocity)
    elsewhere = EMPTY.replace(elo_velocity=velocity * pace)
    faster = USUAL._replace(velocity=USUAL.velocity * pace)
    assert raw_weight(elsewhere, 1.0, faster) == pytest.approx(raw_weight(state, 1.0, USUAL))


@given(raw=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_weights_are_clamped_average_1_and_keep_their_order(raw):
    weights = normalised({str(n): value for n, value in enumerate(raw)}, 0.5, 2.0)
    assert all(0.5 <= value <= 2.0 for value in weights.values())
    assert sum(weights.values()) / len(weights) == pytest.approx(1.0, abs=1e-6)
    ordered = [weights[str(n)] for n in sorted(range(len(raw)), key=raw.__getitem__)]
    assert ordered == sorted(ordered)


def played(games: int) -> SelfplayComplete:
    answer = driving.played()
    return answer.replace(shard=answer.shard.replace(games=games))


@pytest.fixture
def curriculum():
    return begun(Driven(CurriculumIntegration, run_settings(KEY, OTHER_KEY)))


def begun(curriculum: Driven) -> Driven:
    """Feed the first rating at 0 s, which begins the cooldown."""
    assert not curriculum.feed(rated(), at=0)
    return curriculum


def test_first_rating_changes_no_weights_whatever_was_played():
    curriculum = Driven(CurriculumIntegration, run_settings(KEY, OTHER_KEY))
    curriculum.feed(played(5000), key=OTHER_KEY, at=1)
    assert not curriculum.feed(rated(), at=2)
    assert not curriculum.feed(rated(), at=601.9)
    assert curriculum.feed(rated(), at=602)


def test_evaluation_rebalances_at_once_and_is_the_cause(curriculum):
    """A tick, a gate or a tournament does not rebalance."""
    curriculum.feed(played(5000), key=OTHER_KEY, at=1)
    assert not curriculum.feed(TICK, key=None, at=602)
    assert not curriculum.feed(gated(50, 0, 50), rated().replace(purpose="tournament"), at=602)
    (rebalanced,) = curriculum.envelopes(rated(), at=603)
    *_, evaluated = (event for event in curriculum.events if isinstance(event.data, EvaluationCompleted))
    assert rebalanced.causationid == evaluated.id
    assert rebalanced.data.weights[KEY] > 1 > rebalanced.data.weights[OTHER_KEY]


@pytest.mark.parametrize(("at", "again"), [(1201.9, False), (1202, True)])
def test_the_next_change_comes_after_10_minutes(curriculum, at, again):
    curriculum.feed(played(5000), key=OTHER_KEY, at=1)
    assert curriculum.feed(rated(), at=602)
    curriculum.feed(*[played(50_000)] * 9, at=603)
    assert bool(curriculum.feed(rated(), at=at)) == again


def test_a_change_that_is_too_small_is_no_decision(curriculum):
    curriculum.feed(played(4 * GAMES[KEY].selfplay.games_per_request), at=1)
    curriculum.feed(played(4 * GAMES[OTHER_KEY].selfplay.games_per_request + 10), key=OTHER_KEY, at=1)
    assert not curriculum.feed(rated(), at=700)


def test_quality_and_velocity_reach_it(curriculum):
    curriculum.feed(scored(0.1), at=1)
    said = [p for third in range(9) for p in curriculum.feed(rated(30.0 * third), key=OTHER_KEY, at=700 + 1210 * third)]
    assert said[-1].weights[OTHER_KEY] > said[0].weights[OTHER_KEY] > said[-1].weights[KEY]


def test_games_count_by_the_requests_that_they_make_up():
    """Fewer but longer games are no deficit: one of 150 moves takes the time of twenty games of 8 moves."""
    long, short = "chinese_checkers_3p", "tic_tac_toe_2p"
    curriculum = begun(Driven(CurriculumIntegration, run_settings(long, short)))
    for key in (long, short):
        curriculum.feed(played(10 * GAMES[key].selfplay.games_per_request), key=key, at=1)
    assert not curriculum.feed(rated(), key=short, at=700)
    assert GAMES[long].selfplay.games_per_request < GAMES[short].selfplay.games_per_request


def test_where_all_stand_still_noise_makes_nobody_fast(curriculum):
    """A negligible velocity is a stall, even if it is above average."""
    for third in range(15):
        assert not curriculum.feed(rated(0.03 * third), key=KEY, at=1210 * third)
        assert not curriculum.feed(rated(0.0), key=OTHER_KEY, at=1210 * third)
