"""FeedbackState: fields, unknown values, four methods, updates by events."""

from datetime import timedelta

import pytest
from builders import adapted, configured, rejected, rolled_back, tuned
from driving import (
    HOUR,
    KEY,
    NEW,
    OLD,
    Driven,
    distributed,
    gated,
    match,
    parity,
    played,
    promoted,
    rated,
    run_settings,
    scored,
    trained,
)
from hypothesis import given
from hypothesis import strategies as st
from msgspec import ValidationError
from msgspec.structs import asdict

from flyball.app.config import GAMES
from flyball.app.config.feedback import StallSettings
from flyball.app.controllers import FeedbackLoopController, FeedbackState
from flyball.app.controllers.lineage import Champion, Lineage
from flyball.app.controllers.state import HISTORY_LENGTH
from flyball.app.core import ModelHash
from flyball.app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    CurriculumRebalanced,
    ExplorationBoost,
    MatchmakingUpdated,
    OpponentPick,
    QualityPenaltyApplied,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from flyball.app.events.envelope import EPOCH

NOW = EPOCH + timedelta(hours=1000)
SIX_HOURS = StallSettings(window_ratings=0)
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
OWN_TIME = """elo_velocity_stderr elo_gain elo_gain_stderr worker_time time_scale stalls plateaued"""
KNOBS = """training_block selfplay_rate boost_lasts_seconds boost_set_by learning_rate epochs games_per_iteration
    quality_threshold base_temperature matchmaking"""


def test_state_has_22_and_6_and_9_signals_and_unknown_ones():
    groups = [names.split() for names in (CANONICAL, SIGNALS, MONITORING, KNOBS)]
    assert [len(names) for names in groups[:3]] == [22, 6, 9]
    fields = (*(name for names in groups for name in names), "lineage", "elo_pools", *OWN_TIME.split())
    assert FeedbackState.__struct_fields__ == fields
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
        state = state.update_elo(elo, stderr, now, SIX_HOURS)
    for win_rate in win_rates:
        state = state.update_win_rate(win_rate)
    state = state.update_parity(3, 1).compute_urgency(now)
    assert FeedbackState.from_json(state.to_json()) == state
    assert len(state.elo_history) <= HISTORY_LENGTH


def risen(
    state: FeedbackState, elo: float, after: timedelta, stderr: float = 10, model: ModelHash | None = None
) -> FeedbackState:
    """Return the state after another hour of a worker and a rating."""
    return state.with_worker_time(selfplay=3600).update_elo(elo, stderr, NOW + after, SIX_HOURS, model)


def test_update_elo_keeps_history_peak_trend_and_pools():
    state = EMPTY
    for hour, elo in enumerate([100, 150]):
        state = risen(state, elo, timedelta(hours=hour))
    assert (state.elo_current, state.elo_peak, state.elo_trend, state.elo_plateau_count) == (150, 150, 50, 0)
    state = risen(risen(state, 140, timedelta(hours=2)), 144, timedelta(hours=3))
    assert (state.elo_peak, state.elo_plateau_count, len(state.elo_history)) == (150, 2, 4)
    assert state.elo_velocity is not None
    state = EMPTY
    for minute in range(60):
        state = risen(state, 10 * minute, timedelta(minutes=minute), stderr=20)
    assert len(state.elo_pools) == 3
    assert state.elo_pools[0].stderr == pytest.approx(20 / 20**0.5)
    assert state.elo_pools[0].last - state.elo_pools[0].time == timedelta(minutes=19)
    shown = [(point.time, point.elo) for point in state.elo_history]
    assert shown == [(NOW + timedelta(minutes=minute), 10 * minute) for minute in range(40, 60)]


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
    rated_now = EMPTY.update_elo(0, 10, NOW, SIX_HOURS)
    fresh, stale = rated_now.compute_urgency(NOW), rated_now.compute_urgency(NOW + timedelta(hours=12))
    assert (fresh.urgency_score, stale.urgency_score) == (0, 0.25)
    assert rated_now.compute_urgency(NOW + timedelta(days=900)).urgency_score == 0.5
    assert fresh.last_urgency_update == NOW


def params(rate: float, epochs: int, games: int) -> AdaptiveParamsChanged:
    return adapted(epochs, games, rate)


def penalty(rate: float) -> QualityPenaltyApplied:
    return QualityPenaltyApplied(rate_multiplier=rate, quality_score=0.2, threshold=0.3)


@pytest.fixture
def driven():
    return Driven(FeedbackLoopController, run_settings())


def test_facts_set_the_signals(driven):
    shard = played().shard.replace(games=7)
    driven.feed(gated(100, 0, 0))
    assert driven.state().elo_current is None, "gate games do not rate"
    driven.feed(*[played().replace(shard=shard)] * 2, at=3600)
    driven.feed(trained(), at=7200)
    driven.feed(rated(50, match(0.8), stderr=9), at=7300)
    driven.feed(scored(0.8), scored(0.4), promoted(NEW), distributed(NEW), at=7400)
    driven.feed(parity(0, checked=8), at=7500)
    state = driven.state()
    assert state.games_played == 14
    assert state.data_freshness_hours == 1.0
    assert state.training_accuracy == 0.5
    assert (state.elo_current, state.elo_stderr, state.win_rate) == (50, 9, 0.8)
    assert state.data_quality_score == 0.4
    assert state.quality_score == pytest.approx(0.8 - 0.3 * 0.4)
    assert (state.current_model, state.lineage.playing, state.parity_status) == (NEW, NEW, "passed")
    assert state.last_evaluation_time == EPOCH + timedelta(seconds=7300)


@pytest.mark.parametrize(("seconds", "urgency"), [(9, 0), (10, 0.5 / 8640), (6 * HOUR, 0.125), (12 * HOUR, 0.25)])
def test_urgency_grows_while_an_evaluation_is_awaited(driven, seconds, urgency):
    """It is rated once per check period."""
    tick = ClockTick(period_seconds=10)
    driven.feed(tick, key=None, at=0)
    assert driven.fold.rows("FeedbackState") == {}, "a tick adds no row"
    driven.feed(rated(50), at=0)
    driven.feed(tick, key=None, at=seconds)
    assert driven.state().urgency_score == pytest.approx(urgency)
    assert driven.state().last_urgency_update == EPOCH + timedelta(seconds=seconds if urgency else 0)
    driven.feed(tick, key=None, at=24 * HOUR)
    assert driven.state().urgency_score == 0.5


def test_decisions_set_the_knobs(driven):
    driven.feed(
        ExplorationBoost(multiplier=1.5, lasts_seconds=1, reason="x"),
        TrainingIntensityChanged(intensity="reduced", previous="normal", quality_score=0.5),
        at=10,
    )
    driven.feed(CurriculumRebalanced(weights={KEY: 1.2}, plateaued=(), reason="x"), key=None, at=11)
    state = driven.state()
    assert (state.exploration_boost, state.training_intensity, state.curriculum_weight) == (1.5, "reduced", 1.2)
    assert (state.boost_lasts_seconds, state.boost_set_by.recorded_us) == (1, 10_000_000)


def test_decided_parameters_are_kept_within_their_bounds(driven):
    assert driven.state().parameter("learning_rate", driven.settings) == CONFIG.learning_rate
    driven.feed(params(2e-5, 8, 128), at=10)
    state = driven.state()
    assert (state.learning_rate, state.epochs, state.games_per_iteration) == (2e-5, 8, 128)
    driven.feed(configured(run_settings(gauntlet={"max_epochs": 4})), key=None, at=11)
    assert (driven.state().epochs, driven.state().learning_rate) == (4, 2e-5), "narrower settings"
    driven.feed(configured(driven.settings), params(1.0, 10**9, 10**9), at=12)
    state, most = driven.state(), driven.settings.feedback.gauntlet
    games = most.max_games_factor * CONFIG.selfplay.games_per_request
    assert (state.learning_rate, state.epochs, state.games_per_iteration) == (1e-3, most.max_epochs, games)
    assert state.last_adjustment_time == EPOCH + timedelta(seconds=12)


def test_parameters_are_set_as_they_are_decided(driven):
    driven.feed(tuned("quality_threshold", 0.45), tuned("base_temperature", 0.6), tuned("epochs", 5.0), at=10)
    state = driven.state()
    assert (state.quality_threshold, state.base_temperature, state.epochs) == (0.45, 0.6, 5)
    driven.feed(tuned("quality_threshold", 9.0), at=11)
    assert driven.state().quality_threshold == driven.settings.feedback.intensity.reduced


def test_block_and_penalty_last_until_they_are_lifted(driven):
    for block, set_block, rate in (
        (TrainingBlockedByQuality(reason="why"), "why", 0.5),
        (TrainingUnblocked(reason="x"), None, 1.0),
    ):
        driven.feed(block, penalty(rate), at=10)
        state = driven.state()
        assert (state.training_block, state.selfplay_rate, state.quality_penalties_applied) == (set_block, rate, 1)


def test_matchmaking_is_the_latest_decided(driven):
    decided = MatchmakingUpdated(model=NEW, picks=(OpponentPick(agent=NEW, category="mirror", probability=1.0),))
    driven.feed(decided)
    assert driven.state().matchmaking == decided


def verdicts(driven: Driven) -> tuple:
    state = driven.state()
    return state.consecutive_successes, state.consecutive_failures, state.last_promotion_success


def test_verdicts_are_counted_in_a_row(driven):
    driven.feed(promoted(OLD), promoted(OLD), at=10)
    assert verdicts(driven) == (1, 0, True), "a promotion that is repeated counts once"
    driven.feed(rejected("e" * 64, OLD, 7), at=11)
    assert verdicts(driven) == (0, 1, False)
    assert driven.state().last_promotion_time == EPOCH + timedelta(seconds=10)
    driven.feed(promoted(NEW), at=12)
    assert verdicts(driven) == (0, 1, False), "an operator's promotion counts as no success"


def test_rollback_forgets_the_ratings_of_what_it_removes(driven):
    driven.feed(promoted(OLD), promoted(NEW), rated(50), at=12)
    driven.feed(rolled_back(NEW, OLD), at=20)
    state = driven.state()
    assert (state.current_model, state.elo_history, state.elo_velocity) == (OLD, (), None)
    assert state.lineage.current_model == OLD


def test_removed_champions_leave_the_velocity_before_them():
    state = EMPTY
    for hour, (elo, model) in enumerate([(0, OLD), (50, OLD), (100, OLD), (190, NEW)]):
        state = risen(state, elo, timedelta(hours=hour), model=model)
    state = state.replace(lineage=Lineage(champions=(Champion(model=NEW, step=1),)))
    trained_from_the_removed = ModelHash("e" * 64)
    state = risen(state, 300, timedelta(hours=4), model=trained_from_the_removed)
    left = state.without([NEW], SIX_HOURS)
    assert [point.elo for point in left.elo_history] == [0, 50, 100]
    assert left.elo_velocity == pytest.approx(50)


def test_urgency_is_half_staleness_and_half_trouble():
    troubled = EMPTY.replace(elo_plateau_count=HISTORY_LENGTH // 2, last_evaluation_time=NOW)
    assert troubled.compute_urgency(NOW).urgency_score == pytest.approx(0.5 * (HISTORY_LENGTH // 2) / HISTORY_LENGTH)
    worst = EMPTY.replace(elo_plateau_count=HISTORY_LENGTH, consecutive_low_win_rate=3)
    assert worst.compute_urgency(NOW).urgency_score == 1


@pytest.mark.parametrize(
    "fields",
    [
        {"quality_score": 0.5},
        {"parity_status": "passed"},
        {"win_rate": 1.5, "consecutive_high_win_rate": 1},
        {"elo_current": 5.0},
        {"elo_current": 5.0, "elo_stderr": 0.0, "last_evaluation_time": NOW},
        {"elo_plateau_count": 1},
        {"consecutive_low_win_rate": 1},
        {"consecutive_successes": 1, "consecutive_failures": 1, "last_promotion_success": True},
        {"current_model": NEW},
        {"selfplay_rate": 0.5},
        {"exploration_boost": 1.5},
        {"games_played": 1},
        {"learning_rate": 0.0},
        {"curriculum_tier": -1},
    ],
    ids=" ".join,
)
def test_state_that_breaks_an_invariant_is_not_valid(fields):
    EMPTY.validate()
    with pytest.raises((AssertionError, ValidationError)):
        EMPTY.replace(**fields).validate()
