"""FeedbackState: its fields, what is unknown, its four methods, and how events fill it."""

from datetime import timedelta

import pytest
from driving import HOUR, KEY, NEW, Driven, distributed, match, rated, run_settings, scored, trained
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from app.controllers import FeedbackLoopController, FeedbackState
from app.controllers.state import HISTORY_LENGTH
from app.events import (
    ClockTick,
    CurriculumRebalanced,
    ExplorationBoost,
    ModelRolledBack,
    ParityChecked,
    SelfplayComplete,
    ShardRef,
    TrainingIntensityChanged,
)
from app.events.envelope import EPOCH

NOW = EPOCH + timedelta(hours=1000)
EMPTY = FeedbackState(config_key=KEY)


CANONICAL = """config_key quality_score data_quality_score parity_failure_rate parity_checks_total parity_status
    training_accuracy win_rate elo_current elo_stderr elo_peak elo_velocity elo_history games_played
    consecutive_successes consecutive_failures curriculum_weight current_model last_selfplay_time last_training_time
    last_evaluation_time last_promotion_time"""
SIGNALS = """training_intensity exploration_boost data_freshness_hours consecutive_anomalies quality_penalties_applied
    last_adjustment_time"""
MONITORING = """elo_trend elo_plateau_count win_rate_trend consecutive_high_win_rate consecutive_low_win_rate
    urgency_score last_urgency_update last_promotion_success curriculum_tier"""


def test_it_has_22_and_6_and_9_fields():
    groups = [names.split() for names in (CANONICAL, SIGNALS, MONITORING)]
    assert [len(names) for names in groups] == [22, 6, 9]
    assert set(FeedbackState.__struct_fields__) == {name for names in groups for name in names}


def test_what_was_not_measured_is_none_and_not_zero():
    unknown = {name for name, value in asdict(EMPTY).items() if value is None}
    assert {"quality_score", "data_quality_score", "win_rate", "elo_current", "elo_stderr", "elo_velocity"} <= unknown


@given(
    ratings=st.lists(st.tuples(st.floats(-3000, 3000), st.floats(1, 500), st.floats(1, 1e6)), max_size=30),
    win_rates=st.lists(st.floats(0, 1), max_size=5),
)
def test_its_json_is_lossless(ratings, win_rates):
    state, now = EMPTY, NOW
    for elo, stderr, seconds in ratings:
        now += timedelta(seconds=seconds)
        state = state.update_elo(elo, stderr, now)
    for win_rate in win_rates:
        state = state.update_win_rate(win_rate)
    state = state.update_parity(3, 1).compute_urgency(now)
    assert FeedbackState.from_json(state.to_json()) == state
    assert len(state.elo_history) <= HISTORY_LENGTH


def test_update_elo_keeps_history_peak_trend_and_plateaus():
    state = EMPTY.update_elo(100, 10, NOW).update_elo(150, 10, NOW + timedelta(hours=1))
    assert (state.elo_current, state.elo_peak, state.elo_trend, state.elo_plateau_count) == (150, 150, 50, 0)
    state = state.update_elo(140, 10, NOW + timedelta(hours=2)).update_elo(144, 10, NOW + timedelta(hours=3))
    assert (state.elo_peak, state.elo_plateau_count, len(state.elo_history)) == (150, 2, 4)
    assert state.elo_velocity is not None


def test_ratings_close_in_time_are_one_point_of_the_history():
    state = EMPTY
    for minute in range(60):
        state = state.update_elo(100, 20, NOW + timedelta(minutes=minute), spacing_seconds=1200)
    assert len(state.elo_history) == 3
    assert state.elo_history[0].stderr == pytest.approx(20 / 20**0.5)


@pytest.mark.parametrize(("win_rate", "high", "low"), [(0.71, 1, 0), (0.7, 0, 0), (0.5, 0, 0), (0.49, 0, 1)])
def test_update_win_rate_counts_high_above_07_and_low_below_05(win_rate, high, low):
    state = EMPTY.update_win_rate(win_rate)
    assert (state.consecutive_high_win_rate, state.consecutive_low_win_rate) == (high, low)
    assert state.update_win_rate(0.6).consecutive_high_win_rate == 0


def test_update_parity_keeps_the_rate_over_all_checks_and_the_status_of_the_last():
    state = EMPTY.update_parity(16, 0)
    assert (state.parity_status, state.parity_failure_rate) == ("passed", 0)
    state = state.update_parity(16, 4)
    assert (state.parity_status, state.parity_failure_rate, state.parity_checks_total) == ("failed", 0.125, 32)


def test_urgency_grows_with_staleness_and_stays_within_bounds():
    assert EMPTY.compute_urgency(NOW).urgency_score == 0.5
    rated_now = EMPTY.update_elo(0, 10, NOW)
    fresh, stale = rated_now.compute_urgency(NOW), rated_now.compute_urgency(NOW + timedelta(hours=12))
    assert (fresh.urgency_score, stale.urgency_score) == (0, 0.25)
    assert rated_now.compute_urgency(NOW + timedelta(days=900)).urgency_score == 0.5
    assert fresh.last_urgency_update == NOW


@pytest.fixture
def driven():
    return Driven(FeedbackLoopController, run_settings())


def test_events_fill_it(driven):
    shard = ShardRef(worker="selfplay_worker@laptop", key="c" * 64, rows=9, games=7, model=NEW, seed=1)
    played = SelfplayComplete(
        request_id="s",
        probe=False,
        shard=shard,
        opponents=(),
        temperature=1.0,
        mean_length=9,
        truncated_games=0,
        seconds=1,
    )
    driven.feed(played, played, at=3600)
    driven.feed(trained(), at=7200)
    driven.feed(rated(50, match(0.8), stderr=9), at=7300)
    driven.feed(scored(0.8), scored(0.4), distributed(NEW), at=7400)
    driven.feed(
        ParityChecked(request_id="q", worker="selfplay_worker@laptop", shard="c" * 64, checked=8, failures=0), at=7500
    )
    state = driven.state()
    assert state.games_played == 14
    assert state.data_freshness_hours == 1.0
    assert state.training_accuracy == 0.5
    assert (state.elo_current, state.elo_stderr, state.win_rate) == (50, 9, 0.8)
    assert state.data_quality_score == 0.4
    assert state.quality_score == pytest.approx(0.8 - 0.3 * 0.4)
    assert (state.current_model, state.parity_status) == (NEW, "passed")
    assert state.last_evaluation_time == EPOCH + timedelta(seconds=7300)


def test_urgency_grows_while_a_configuration_waits_for_an_evaluation(driven):
    driven.feed(rated(50), at=0)
    assert driven.state().urgency_score == 0
    for hour in (6, 12):
        driven.feed(ClockTick(period_seconds=10), key=None, at=hour * HOUR)
        assert driven.state().urgency_score == pytest.approx(0.5 * hour / 24)
        assert driven.state().last_urgency_update == EPOCH + timedelta(hours=hour)


@pytest.mark.parametrize(("seconds", "urgency"), [(599, 0.0), (600, 0.5 * 600 / (24 * HOUR))])
def test_urgency_is_rated_once_per_check_period(driven, seconds, urgency):
    driven.feed(rated(50), at=0)
    driven.feed(ClockTick(period_seconds=10), key=None, at=seconds)
    assert driven.state().urgency_score == pytest.approx(urgency)


def test_a_tick_says_nothing_of_a_configuration_of_which_nothing_is_known(driven):
    driven.feed(ClockTick(period_seconds=10), key=None, at=HOUR)
    assert driven.fold.rows("FeedbackState") == {}


def test_gate_games_do_not_rate(driven):
    from driving import gated

    driven.feed(gated(100, 0, 0))
    assert driven.state().elo_current is None


def test_decisions_fill_it(driven):
    driven.feed(
        ExplorationBoost(multiplier=1.5, lasts_seconds=1, reason="x"),
        TrainingIntensityChanged(intensity="reduced", previous="normal", quality_score=0.5),
        at=10,
    )
    driven.feed(CurriculumRebalanced(weights={KEY: 1.2}, reason="x"), key=None, at=11)
    state = driven.state()
    assert (state.exploration_boost, state.training_intensity, state.curriculum_weight) == (1.5, "reduced", 1.2)
    driven.feed(rated(50), at=12)
    driven.feed(ModelRolledBack(from_model=NEW, to_model="d" * 64, step=0, reason="x"), at=20)
    state = driven.state()
    assert (state.current_model, state.elo_history, state.elo_velocity) == ("d" * 64, (), None)
