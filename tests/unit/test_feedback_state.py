"""FeedbackState: fields, unknown values, four methods, updates by events."""

from datetime import timedelta

import pytest
from driving import (
    HOUR,
    KEY,
    NEW,
    OLD,
    Driven,
    distributed,
    gated,
    match,
    promoted,
    rated,
    run_settings,
    scored,
    trained,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from app.config import GAMES
from app.controllers import FeedbackLoopController, FeedbackState
from app.controllers.state import HISTORY_LENGTH
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    CurriculumRebalanced,
    ExplorationBoost,
    HyperparameterUpdated,
    MatchmakingUpdated,
    ModelRolledBack,
    OpponentPick,
    ParityChecked,
    PromotionRejected,
    QualityPenaltyApplied,
    RunConfigured,
    SelfplayComplete,
    ShardRef,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from app.events.envelope import EPOCH

NOW = EPOCH + timedelta(hours=1000)
EMPTY = FeedbackState(config_key=KEY)
CONFIG = GAMES[KEY]

CANONICAL = """config_key quality_score data_quality_score parity_failure_rate parity_checks_total parity_status
    training_accuracy win_rate elo_current elo_stderr elo_peak elo_velocity elo_history games_played
    consecutive_successes consecutive_failures curriculum_weight current_model last_selfplay_time last_training_time
    last_evaluation_time last_promotion_time"""
SIGNALS = """training_intensity exploration_boost data_freshness_hours consecutive_anomalies quality_penalties_applied
    last_adjustment_time"""
MONITORING = """elo_trend elo_plateau_count win_rate_trend consecutive_high_win_rate consecutive_low_win_rate
    urgency_score last_urgency_update last_promotion_success curriculum_tier"""
KNOBS = """training_block selfplay_rate boost_lasts_seconds boost_set_by learning_rate epochs games_per_iteration
    quality_threshold base_temperature matchmaking"""


def test_state_has_22_and_6_and_9_signals_knobs_and_lineage():
    groups = [names.split() for names in (CANONICAL, SIGNALS, MONITORING, KNOBS)]
    assert [len(names) for names in groups[:3]] == [22, 6, 9]
    assert FeedbackState.__struct_fields__ == (*(name for names in groups for name in names), "lineage", "elo_pools")


def test_unmeasured_fields_are_null_and_not_zero():
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


def test_ratings_close_in_time_are_one_pool_for_the_velocity():
    state = EMPTY
    for minute in range(60):
        state = state.update_elo(100, 20, NOW + timedelta(minutes=minute), spacing_seconds=1200)
    assert len(state.elo_pools) == 3
    assert state.elo_pools[0].stderr == pytest.approx(20 / 20**0.5)
    assert state.elo_pools[0].last - state.elo_pools[0].time == timedelta(minutes=19)


def test_history_has_the_latest_ratings_with_their_own_times():
    state = EMPTY
    for minute in range(34):
        state = state.update_elo(10 * minute, 20, NOW + timedelta(minutes=minute), spacing_seconds=1200)
    shown = [(point.time, point.elo) for point in state.elo_history]
    assert shown == [(NOW + timedelta(minutes=minute), 10 * minute) for minute in range(14, 34)]


@pytest.mark.parametrize(("win_rate", "high", "low"), [(0.71, 1, 0), (0.7, 0, 0), (0.5, 0, 0), (0.49, 0, 1)])
def test_update_win_rate_counts_high_above_07_and_low_below_05(win_rate, high, low):
    state = EMPTY.update_win_rate(win_rate)
    assert (state.consecutive_high_win_rate, state.consecutive_low_win_rate) == (high, low)
    assert state.update_win_rate(0.6).consecutive_high_win_rate == 0


def test_update_parity_keeps_total_rate_and_last_status():
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


def params(rate: float, epochs: int, games: int) -> AdaptiveParamsChanged:
    return AdaptiveParamsChanged(learning_rate=rate, epochs=epochs, games_per_iteration=games, reason="x")


def penalty(rate: float) -> QualityPenaltyApplied:
    return QualityPenaltyApplied(rate_multiplier=rate, quality_score=0.2, threshold=0.3)


def update(parameter: str, value: float) -> HyperparameterUpdated:
    return HyperparameterUpdated(parameter=parameter, value=value, previous=1.0, reason="x")


@pytest.fixture
def driven():
    return Driven(FeedbackLoopController, run_settings())


def test_facts_set_the_signals(driven):
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
    driven.feed(scored(0.8), scored(0.4), promoted(NEW), distributed(NEW), at=7400)
    driven.feed(
        ParityChecked(
            request_id="q", worker="selfplay_worker@laptop", shard="c" * 64, against=None, checked=8, failures=0
        ),
        at=7500,
    )
    state = driven.state()
    assert state.games_played == 14
    assert state.data_freshness_hours == 1.0
    assert state.training_accuracy == 0.5
    assert (state.elo_current, state.elo_stderr, state.win_rate) == (50, 9, 0.8)
    assert state.data_quality_score == 0.4
    assert state.quality_score == pytest.approx(0.8 - 0.3 * 0.4)
    assert (state.current_model, state.lineage.playing, state.parity_status) == (NEW, NEW, "passed")
    assert state.last_evaluation_time == EPOCH + timedelta(seconds=7300)


def test_urgency_grows_while_an_evaluation_is_awaited(driven):
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


def test_tick_adds_no_row_of_an_unknown_configuration(driven):
    driven.feed(ClockTick(period_seconds=10), key=None, at=HOUR)
    assert driven.fold.rows("FeedbackState") == {}


def test_gate_games_do_not_rate(driven):
    driven.feed(gated(100, 0, 0))
    assert driven.state().elo_current is None


def test_decisions_set_the_knobs(driven):
    driven.feed(
        ExplorationBoost(multiplier=1.5, lasts_seconds=1, reason="x"),
        TrainingIntensityChanged(intensity="reduced", previous="normal", quality_score=0.5),
        at=10,
    )
    driven.feed(CurriculumRebalanced(weights={KEY: 1.2}, reason="x"), key=None, at=11)
    state = driven.state()
    assert (state.exploration_boost, state.training_intensity, state.curriculum_weight) == (1.5, "reduced", 1.2)
    assert (state.boost_lasts_seconds, state.boost_set_by.recorded_us) == (1, 10_000_000)


def test_decided_parameters_are_kept_within_their_bounds(driven):
    assert driven.state().parameter("learning_rate", driven.settings) == CONFIG.learning_rate
    driven.feed(params(2e-5, 5, 128), at=10)
    state = driven.state()
    assert (state.learning_rate, state.epochs, state.games_per_iteration) == (2e-5, 5, 128)
    driven.feed(params(1.0, 10**9, 10**9), at=11)
    state, most = driven.state(), driven.settings.feedback.gauntlet
    games = most.max_games_factor * CONFIG.selfplay.games_per_request
    assert (state.learning_rate, state.epochs, state.games_per_iteration) == (1e-3, most.max_epochs, games)
    assert state.last_adjustment_time == EPOCH + timedelta(seconds=11)


def test_parameters_are_set_as_they_are_decided(driven):
    driven.feed(update("quality_threshold", 0.45), update("base_temperature", 0.6), update("epochs", 5.0), at=10)
    state = driven.state()
    assert (state.quality_threshold, state.base_temperature, state.epochs) == (0.45, 0.6, 5)
    driven.feed(update("quality_threshold", 9.0), at=11)
    assert driven.state().quality_threshold == driven.settings.feedback.intensity.reduced


def test_narrower_settings_bound_what_was_decided_before(driven):
    driven.feed(params(2e-5, 8, 128), at=10)
    narrower = run_settings(gauntlet={"max_epochs": 4})
    driven.feed(RunConfigured(run_id="run", settings=narrower.model_dump(mode="json")), key=None, at=11)
    assert (driven.state().epochs, driven.state().learning_rate) == (4, 2e-5)


def test_block_and_penalty_last_until_they_are_lifted(driven):
    driven.feed(TrainingBlockedByQuality(reason="why"), penalty(0.5), at=10)
    state = driven.state()
    assert (state.training_block, state.selfplay_rate, state.quality_penalties_applied) == ("why", 0.5, 1)
    driven.feed(TrainingUnblocked(reason="x"), penalty(1.0), at=11)
    state = driven.state()
    assert (state.training_block, state.selfplay_rate, state.quality_penalties_applied) == (None, 1.0, 1)


def test_matchmaking_is_the_latest_decided(driven):
    decided = MatchmakingUpdated(model=NEW, picks=(OpponentPick(agent=NEW, category="mirror", probability=1.0),))
    driven.feed(decided)
    assert driven.state().matchmaking == decided


def test_verdicts_are_counted_in_a_row(driven):
    """A promotion that is repeated counts once."""
    driven.feed(promoted(OLD), promoted(OLD), at=10)
    state = driven.state()
    assert (state.consecutive_successes, state.consecutive_failures, state.last_promotion_success) == (1, 0, True)
    evidence = promoted().evidence
    driven.feed(PromotionRejected(model="e" * 64, current=NEW, step=7, evidence=evidence), at=11)
    state = driven.state()
    assert (state.consecutive_successes, state.consecutive_failures, state.last_promotion_success) == (0, 1, False)
    assert state.last_promotion_time == EPOCH + timedelta(seconds=10)


def test_operators_promotion_counts_as_no_success(driven):
    """A candidate was rejected before, and an operator makes another model current."""
    evidence = promoted().evidence
    driven.feed(promoted(OLD), PromotionRejected(model="e" * 64, current=OLD, step=7, evidence=evidence), at=10)
    driven.feed(promoted(NEW), at=11)
    state = driven.state()
    assert (state.consecutive_successes, state.consecutive_failures, state.last_promotion_success) == (0, 1, False)


def test_rollback_forgets_the_ratings_of_what_it_removes(driven):
    driven.feed(promoted(OLD), promoted(NEW), rated(50), at=12)
    driven.feed(ModelRolledBack(from_model=NEW, to_model=OLD, step=0, reason="x"), at=20)
    state = driven.state()
    assert (state.current_model, state.elo_history, state.elo_velocity) == (OLD, (), None)
    assert state.lineage.current_model == OLD
