"""Default thresholds, shown by what controllers do at and beside them."""

import pytest
from builders import ready, tuned
from driving import HOUR, KEY, Driven, distributed, match, played, rated, run_settings, scored

from flyball.app.config import FeedbackSettings
from flyball.app.config.feedback import StallSettings
from flyball.app.controllers import (
    EvaluationFeedbackHandler,
    FeedbackLoopController,
    FeedbackState,
    GauntletFeedbackController,
    SelfplayScheduler,
)
from flyball.app.controllers.scheduler import CONFIG
from flyball.app.events import ClockTick, CurriculumRebalanced, TrainingBlockedByQuality, TrainingIntensityChanged
from flyball.app.events.envelope import EPOCH

TICK = ClockTick(period_seconds=10)
EMPTY = FeedbackState(config_key=KEY)
UNSMOOTHED = run_settings(quality={"smoothing": 1.0})


def test_defaults_that_are_only_numbers():
    default = FeedbackSettings()
    assert default.watchdog.severity_elo == (20, 35, 50, 75)
    assert (default.curriculum.min_change, default.curriculum.optimism) == (0.2, 1.0)
    gate = default.lifecycle
    assert (gate.elo0, gate.elo1, gate.alpha, gate.beta) == (-80.0, 0.0, 0.05, 0.05)


@pytest.mark.parametrize(
    ("at", "multipliers"),
    [((9,), []), ((10, 7209), [1.5]), ((10, 7210), [1.5, 2.25]), ((10, 7209, 7218), [1.5])],
)
def test_stall_check_runs_every_10_s_and_a_boost_lasts_2_hours(at, multipliers):
    loop = Driven(FeedbackLoopController, UNSMOOTHED)
    loop.feed(scored(0.45), at=1)
    boosts = [boost for seconds in at for boost in loop.feed(TICK, key=None, at=seconds)]
    assert [boost.multiplier for boost in boosts] == multipliers


@pytest.mark.parametrize(("at", "changes"), [(60.9, 0), (61.0, 1)])
def test_the_intensity_changes_no_more_often_than_every_60_s(at, changes):
    loop = Driven(FeedbackLoopController, UNSMOOTHED)
    loop.feed(scored(0.95), at=1)
    said = loop.feed(scored(0.7), at=at)
    assert [type(payload) for payload in said] == [TrainingIntensityChanged] * changes


def test_gauntlet_at_its_limits_changes_nothing_more():
    gauntlet = Driven(GauntletFeedbackController)
    for hour in range(1, 20):
        weak = match((0.1, 0.4)[hour % 2] if hour < 5 else 0.25)  # at the same score, more work would be taken back
        gauntlet.feed(rated(0, weak, match(0.95, opponent="heuristic"), step=10), at=hour * HOUR)
    state = gauntlet.state()
    assert (state.epochs, state.games_per_iteration) == (8, 4 * 256)
    assert (state.quality_threshold, state.base_temperature) == (0.5, 0.5)


@pytest.mark.parametrize(("at", "changes"), [(HOUR + 0.9, 0), (HOUR + 1, 1)])
def test_the_learning_rate_changes_no_more_often_than_every_hour(at, changes):
    handler = Driven(EvaluationFeedbackHandler, run_settings(learning_rate={"cooldown_ratings": 100}))
    handler.feed(tuned("learning_rate", 1e-4), at=1)
    assert not [said for n in range(6) for said in handler.feed(rated(100.0 * n), at=2 + n)]
    assert len(handler.feed(rated(1000.0), at=at)) == changes


@pytest.fixture
def scheduler():
    driven = Driven(SelfplayScheduler)
    driven.feed(ready("selfplay_worker"), key=None)
    return driven


@pytest.mark.parametrize(("at", "requests"), [(60.9, 0), (61.0, 1)])
def test_without_training_games_are_60_s_apart(scheduler, at, requests):
    (request,) = scheduler.envelopes(distributed(), at=0)
    scheduler.feed(TrainingBlockedByQuality(reason="parity"), at=0)
    complete = played(model=request.data.model).replace(request_id=request.id)
    assert not scheduler.feed(complete, scored(model=request.data.model, request=request.id), at=1)
    assert len(scheduler.feed(TICK, key=None, at=at)) == requests


@pytest.mark.parametrize(
    ("weight", "priority"), [(0.001, 0.15), (0.15, 0.15), (0.6, 0.6), (2.0, 2.0), (3.0, 3.0), (9.0, 3.0)]
)
def test_priority_is_the_weight_within_the_starvation_floor(scheduler, weight, priority):
    """A configuration that is asked for games takes a turn of one second over its priority."""
    scheduler.feed(CurriculumRebalanced(weights={KEY: weight}, plateaued=(), reason="x"), key=None)
    scheduler.feed(distributed(), at=0)
    assert 1 / scheduler.row(CONFIG + KEY).config.finish == pytest.approx(priority)


@pytest.mark.parametrize(("elo", "tier"), [(-1.0, 0), (399.9, 0), (400.0, 1), (799.9, 1), (800.0, 2)])
def test_a_tier_is_400_elo(elo, tier):
    assert EMPTY.update_elo(elo, 10.0, EPOCH, StallSettings()).curriculum_tier == tier
