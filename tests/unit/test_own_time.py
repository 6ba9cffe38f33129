"""A run's own time: worker time, windows of ratings, and what follows from them."""

from datetime import timedelta

import pytest
from driving import KEY, NEW, OTHER_KEY, Driven, gated, played, rated, run_settings, scored, trained
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.config.feedback import StallSettings
from flyball.app.controllers import FeedbackLoopController, FeedbackState, RatingPool
from flyball.app.controllers.stall import stalled
from flyball.app.controllers.state import WorkerTime
from flyball.app.controllers.trend import present_slope
from flyball.app.events import ClockTick, CurriculumRebalanced, EvaluationOverdue, ExplorationBoost, PlateauDetected
from flyball.app.events.envelope import EPOCH
from flyball.app.status.summary import summarise

TICK = ClockTick(period_seconds=10)
STALL = StallSettings()


@pytest.mark.parametrize(
    ("intervals", "seconds"),
    [
        ([], 21_600),
        ([60.0], 21_600),
        ([60.0, 60.0], 1200),
        ([60.0, 60.0, 90_000.0], 1200),
        ([2.0, 2.0], 60),
        ([1100.0, 1100.0], 21_600),
    ],
    ids=["unrated", "one alone", "20 ratings", "off meanwhile", "at least a minute", "at most six hours"],
)
def test_window_is_20_ratings_within_bounds_of_the_clock(intervals, seconds):
    assert STALL.time_scale(intervals) * STALL.window_hours * 3600 == pytest.approx(seconds)


def test_without_window_ratings_the_clock_counts():
    assert StallSettings(window_ratings=0).time_scale([1.0, 1.0, 1.0]) == 1.0


def test_shorter_window_has_the_same_gain_and_shorter_boosts():
    short = STALL.at(1 / 180)
    assert short.velocity * short.window_hours == pytest.approx(30.0)
    assert short.precision * short.window_hours == pytest.approx(30.0)
    assert short.boost_hours * 3600 == pytest.approx(40.0)
    assert StallSettings(velocity=1e6, precision=1e6).at(1 / 180).velocity == pytest.approx(1.8e8)


def pool(minute: float, elo: float, spent: float, stderr: float = 10.0) -> RatingPool:
    time = EPOCH + timedelta(minutes=minute)
    return RatingPool(time=time, last=time, elo=elo, stderr=stderr, spent=spent)


def test_present_slope_forgets_what_came_before_it_flattened():
    risen = [pool(n, 50.0 * n, 10.0 * n) for n in range(10)]
    flat = [pool(n, 500.0, 10.0 * n) for n in range(10, 20)]
    (rising, present) = (present_slope(pools, STALL.confidence) for pools in (risen, risen + flat))
    assert rising.gain == pytest.approx(5.0)
    assert abs(present.gain) < 0.5
    assert present.velocity == pytest.approx(present.gain * 600), "ten seconds of a worker each minute"
    assert present_slope(risen[:2], STALL.confidence) is None


def test_few_workers_make_the_velocity_lower_and_not_the_gain():
    quick = present_slope([pool(n, 50.0 * n, 10.0 * n) for n in range(10)], STALL.confidence)
    slow = present_slope([pool(4 * n, 50.0 * n, 10.0 * n) for n in range(10)], STALL.confidence)
    assert slow.gain == pytest.approx(quick.gain)
    assert slow.velocity == pytest.approx(quick.velocity / 4)


def test_worker_time_is_summed_by_kind_of_job():
    driven = Driven(FeedbackLoopController)
    driven.feed(played().replace(seconds=3.0), scored().replace(seconds=0.5), trained().replace(seconds=7.0))
    driven.feed(rated().replace(seconds=2.0), gated(1, 0, 1).replace(seconds=4.0))
    assert driven.state().worker_time == WorkerTime(selfplay=3.0, inspection=0.5, training=7.0, evaluation=6.0)


def test_job_counts_for_a_day_at_most():
    """A machine that slept meanwhile, or another clock, would otherwise decide all weights for ever."""
    driven = Driven(FeedbackLoopController)
    driven.feed(played().replace(seconds=1e9), trained(seconds=-5.0).replace(seconds=None))
    assert driven.state().worker_time == WorkerTime(selfplay=86_400.0)


def test_old_training_counts_by_its_metric():
    driven = Driven(FeedbackLoopController)
    driven.feed(trained(seconds=5.0).replace(seconds=None), scored().replace(seconds=None))
    assert driven.state().worker_time == WorkerTime(training=5.0)


def rate(loop: Driven, elo: float, at: float) -> list:
    """Tick, and rate the model after a second of a worker."""
    return [*loop.feed(TICK, key=None, at=at), *loop.feed(rated(elo, stderr=8.0), at=at)]


def test_stall_comes_within_minutes_where_ratings_take_seconds():
    loop = Driven(FeedbackLoopController, run_settings())
    said = [(n * 6, payload) for n in range(40) for payload in rate(loop, 500.0, n * 6)]
    stalls = [at for at, payload in said if isinstance(payload, PlateauDetected)]
    boosts = [payload for _, payload in said if isinstance(payload, ExplorationBoost)]
    assert 120 <= stalls[0] <= 140
    assert stalls[1] - stalls[0] == pytest.approx(40.0, abs=10.0), "a boost lasts 40 s"
    assert [boost.multiplier for boost in boosts] == [1.5, 2.25, 2.25]
    assert boosts[0].reason.startswith("the boost is raised from 1 because it gains at most ")
    assert boosts[0].reason.endswith(" Elo in 2 min, less than 30 (feedback.stall.velocity x window_hours)")
    assert boosts[2].reason.startswith("the boost is kept at 2.25 because ")
    plateau = next(payload for _, payload in said if isinstance(payload, PlateauDetected))
    shown = summarise(plateau).removeprefix("a stall: ").removesuffix("; a boost comes before a plateau")
    assert boosts[0].reason.endswith(shown), "both events show the same gain, window and threshold"


def test_boost_lasts_until_a_rating_has_come_under_it():
    """Nothing is known of a boost before that: it neither ends, nor is there a stall again by what was known before."""
    loop = Driven(FeedbackLoopController, run_settings())
    at = 0
    while not any(isinstance(payload, ExplorationBoost) for payload in rate(loop, 500.0, at)):
        at += 6
    ticked = [payload for second in range(1, 120) for payload in loop.feed(TICK, key=None, at=at + second)]
    assert ticked == [], "the boost lasts 40 s, and the window of ratings two minutes"
    said = [payload for n in range(20, 25) for payload in rate(loop, 500.0, at + n * 6)]
    assert any(isinstance(payload, ExplorationBoost) for payload in said)


@given(interval=st.integers(7, 1000), gain=st.sampled_from([0.0, 5.0, 10.0, 25.0, 40.0, 60.0]))
def test_same_ratings_stall_alike_at_any_pace(interval, gain):
    """``gain`` is that within a window. The windows are within the bounds of the clock."""

    def stalls(seconds: float) -> list[bool]:
        """Return whether there is a stall at each rating."""
        state, found = FeedbackState(config_key=KEY), []
        for n in range(40):
            now = EPOCH + timedelta(seconds=n * seconds)
            state = state.with_worker_time(selfplay=1.0).update_elo(n * gain / 20, 8.0, now, STALL)
            found.append(stalled(state.elo_pools, STALL.at(state.time_scale), now) is not None)
        return found

    differing = [here != there for here, there in zip(stalls(interval), stalls(60.0), strict=True)]
    assert sum(differing) <= 1, "times are rounded to microseconds, so a stall may begin a rating later"


@pytest.mark.parametrize(("is_plateaued", "late_after"), [(False, 360.0), (True, 21_600.0)])
def test_plateaued_one_is_rated_rarely_and_not_boosted(is_plateaued, late_after):
    loop = Driven(FeedbackLoopController, run_settings(KEY, OTHER_KEY))
    for n in range(4):
        rate(loop, 500.0, n * 6)
    plateaued = (KEY,) if is_plateaued else ()
    loop.feed(CurriculumRebalanced(weights={KEY: 0.2}, plateaued=plateaued, reason="r"), key=None, at=18)
    said = [payload for at in range(24, 130, 6) for payload in rate(loop, 500.0, at)]
    assert any(isinstance(payload, ExplorationBoost) for payload in said) != is_plateaued
    last, late = 126, []
    for at in range(last, last + 22_000, 10):
        said = loop.envelopes(TICK, key=None, at=at)
        late += [at - last for one in said if isinstance(one.data, EvaluationOverdue) and one.subject == KEY]
        if late:
            break
    assert late[0] == pytest.approx(late_after, abs=10)


def test_model_of_an_operator_is_no_progress():
    """Its rating is shown, but neither gain nor time scale follow from it."""
    loop = Driven(FeedbackLoopController)
    loop.feed(rated(100.0, model=NEW), at=0)
    assert loop.state().elo_gain is None
    assert loop.state().time_scale == 1.0
