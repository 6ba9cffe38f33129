"""FeedbackLoopController: each of its rules, at its threshold and beside it."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

import numpy as np
import pytest
from builders import intensity, rejected, training_of, unrated
from driving import HOUR, KEY, NEW, OTHER_KEY, Driven, parity, played, promoted, rated, run_settings, scored, trained
from leagues import model

from flyball.app.config.feedback import StallSettings
from flyball.app.controllers import FeedbackLoopController, RatingPool
from flyball.app.controllers.data_quality import intensity_of
from flyball.app.controllers.stall import stalled
from flyball.app.controllers.trend import Slope
from flyball.app.events import (
    ClockTick,
    EvaluationRequested,
    ExplorationBoost,
    PlateauDetected,
    QualityPenaltyApplied,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from flyball.app.events.envelope import EPOCH

TICK = ClockTick(period_seconds=10)
STEADY = {
    "quality": {"smoothing": 1.0},
    "intensity": {"cooldown_seconds": 0},
    "stall": {"window_ratings": 0, "check_seconds": 600},
}
"""Settings without smoothing and cooldown: each score counts by itself. Windows are six hours."""


@pytest.fixture
def loop():
    return Driven(FeedbackLoopController, run_settings(**STEADY))


def hours_of(stop: float, step: float = 0.5) -> list[float]:
    return [float(hour) for hour in np.arange(0, stop, step)]


def climb(
    loop: Driven, elo_per_hour: float, hours: float, start: float = 0.0, every: float = 0.1, stderr: float = 4.0
) -> list:
    """Rate the model along a straight line, every so many hours; return the events."""
    said = []
    for hour in np.arange(start, start + hours, every):
        said += loop.feed(rated(elo_per_hour * hour, stderr=stderr), at=hour * HOUR)
    return said


def at(hours: float) -> datetime:
    return EPOCH + timedelta(hours=hours)


def is_stall(elos: Sequence[float], stderr: float, **settings: float) -> bool:
    """Return whether ratings half an hour apart, from the start on, are a stall at the last of them."""
    return stall_of(elos, stderr, **settings) is not None


def stall_of(elos: Sequence[float], stderr: float, **settings: float) -> Slope | None:
    pools = [
        RatingPool(time=at(n / 2), last=at(n / 2), elo=elo, stderr=stderr, spent=n / 2) for n, elo in enumerate(elos)
    ]
    return stalled(pools, StallSettings(**settings), at((len(elos) - 1) / 2))


def of(said: list, kind: type) -> list:
    return [payload for payload in said if isinstance(payload, kind)]


class TestStall:
    def test_stall_below_5_elo_an_hour_for_6_hours_boosts_by_half(self, loop):
        said = climb(loop, 1.0, hours=7)
        (boost,), (plateau,) = of(said, ExplorationBoost), of(said, PlateauDetected)
        assert boost.multiplier == 1.5
        assert plateau.upper_bound < 5.0
        assert plateau.velocity == pytest.approx(1.0, abs=0.5)

    @pytest.mark.parametrize(
        ("elo_per_hour", "hours", "every", "stderr"), [(0.0, 5.9, 0.1, 4.0), (7.0, 12, 0.1, 4.0), (3.0, 8, 1 / 3, 60.0)]
    )
    def test_short_climbing_or_uncertain_run_is_no_stall(self, loop, elo_per_hour, hours, every, stderr):
        """A slope of 3 Elo/h, known to within 4, is not known to be below 5."""
        assert not of(climb(loop, elo_per_hour, hours, every=every, stderr=stderr), ExplorationBoost)

    def test_slope_less_certain_than_the_precision_is_no_stall(self):
        """13 ratings, half an hour apart and known to 10 Elo: the slope is known to 2.576 * 1.482 = 3.819 Elo/h."""
        assert [is_stall([0.0] * 13, 10.0, precision=precision) for precision in (3.82, 3.81)] == [True, False]

    def test_noisy_window_is_widened_only_until_it_is_certain(self):
        """Ratings known to 15 Elo: over 6 hours the slope is certain to within 5.7 Elo/h, over 7 to within 4.6."""
        flat = stall_of([0.0] * 25, 15.0)
        assert flat is not None
        assert 2.576 * flat.stderr == pytest.approx(4.6, abs=0.05)
        long_ago = [-40.0 * hours for hours in np.arange(5, 0, -0.5)]
        assert stall_of([*long_ago, *[0.0] * 15], 15.0) == flat

    def test_possible_recovery_within_the_window_is_no_stall(self):
        """Ratings known to 40 Elo; the last 6 hours are known to 5.93 Elo/h, and -5.38 + 1.75 * 5.93 = 5."""
        for velocity, stall in ((-5.39, True), (-5.37, False)):
            assert is_stall([*[0.0] * 24, *(velocity * hour for hour in hours_of(6.5))], 40.0) == stall
        rising = [*np.arange(60.0, 0, -2.5), *(4.0 * hour for hour in hours_of(6.5))]
        assert [is_stall(rising, 40.0, margin=margin) for margin in (0.0, 1.0)] == [True, False]

    def test_a_certain_decline_is_no_stall(self):
        """The slope of 15 ratings in the 7 decisive hours is certain to within 4.618 Elo/h."""
        for velocity, stall in ((-4.61, True), (-4.63, False)):
            assert is_stall([velocity * hour for hour in hours_of(12.5)], 15.0) == stall

    def test_what_was_learned_before_a_drop_and_since_is_no_stall(self):
        """The model gains 8 Elo/h, loses 100 Elo, and gains 8 Elo/h again: lines over the drop are flat, or fall."""
        for hours in np.arange(1.0, 12.5, 0.5):
            assert not is_stall([*np.arange(0, 96, 4.0), *np.arange(-4.0, 8 * hours - 4, 4.0)], 15.0)

    def test_standstill_since_a_drop_is_a_stall_once_certain(self):
        """Certainty takes 15 ratings in 7 hours, each known to 15 Elo."""
        stalls = [is_stall([*[100.0] * 20, *[0.0] * since], 15.0) for since in range(4, 19)]
        assert stalls == [False] * 11 + [True] * 4

    def test_boosts_live_2_hours_and_do_not_compound_unbounded(self, loop):
        boosts, times = [], []
        for hour in np.arange(0, 60, 0.1):
            for boost in of(loop.feed(rated(0.0, stderr=4.0), at=hour * HOUR), ExplorationBoost):
                boosts.append(boost.multiplier)
                times.append(hour)
        assert boosts[:2] == [1.5, 2.25]
        assert max(boosts) == 2.25
        assert min(np.diff(times)) >= 2.0 - 1e-9

    def test_on_recovery_it_decays_to_1(self, loop):
        climb(loop, 0.0, hours=9)
        assert loop.state().exploration_boost >= 1.0
        boosts = of(climb(loop, 80.0, hours=16, start=9.0), ExplorationBoost)
        assert boosts[-1].reason == "the boost is lowered from 1.5 because its stall or pause is over"
        decays = [boost.multiplier for boost in boosts]
        assert decays[-1] == 1.0
        assert decays == sorted(decays, reverse=True)

    def test_an_operators_boost_lasts_as_long_as_it_says_and_decays(self, loop):
        loop.feed(ExplorationBoost(multiplier=3.0, lasts_seconds=1200, reason="by hand"), at=10)
        assert not loop.feed(TICK, at=1209)
        decays = [p.multiplier for at in range(1810, 60_000, 600) for p in of(loop.feed(TICK, at=at), ExplorationBoost)]
        assert decays == [2.0, pytest.approx(4 / 3), 1.0]

    def test_a_boost_that_an_operator_lifts_is_not_set_again_at_once(self, loop):
        climb(loop, 0.0, hours=7)
        loop.feed(ExplorationBoost(multiplier=1.0, lasts_seconds=0, reason="by hand"), at=7 * HOUR)
        assert not of(climb(loop, 0.0, hours=1.9, start=7.0), ExplorationBoost)
        assert of(climb(loop, 0.0, hours=0.5, start=8.9), ExplorationBoost)[0].multiplier == 1.5

    def test_own_boosts_of_a_sweep_recorded_late_count_once(self):
        """The second boosts are decided before the first are recorded."""
        keys = (KEY, OTHER_KEY)
        late = Driven(FeedbackLoopController, run_settings(*keys, **STEADY), late=True)
        for key in keys:
            late.feed(scored(0.1), key=key, at=1)
        first = late.envelopes(TICK, key=None, at=2 * HOUR)
        second = late.envelopes(TICK, key=None, at=4 * HOUR)
        assert [envelope.data.multiplier for envelope in (*first, *second)] == [1.5, 1.5, 2.25, 2.25]
        assert late.record(*first) == []
        assert not late.feed(TICK, key=None, at=5.9 * HOUR), "the second lasts"
        assert late.record(*second) == []
        assert [late.state(key).exploration_boost for key in keys] == [2.25, 2.25]

    def test_false_alarms_on_a_healthy_run_are_rare(self):
        """At 10 Elo/h with 20 Elo of noise at most 5% of the days have a stall; with online Elo, a third have."""
        rng, alarmed, days = np.random.default_rng(5), 0, 40
        for _ in range(days):
            loop = Driven(FeedbackLoopController, run_settings(stall=STEADY["stall"]))
            said = []
            for hour in np.arange(0, 24, 0.25):
                said += loop.feed(rated(10 * hour + rng.normal(0, 20), stderr=20.0), at=hour * HOUR)
            alarmed += bool(of(said, PlateauDetected))
        assert alarmed <= 0.05 * days


class TestTimeInWhichTheRunWasOff:
    """A laptop is off over night. Nothing is recorded, not even the tick, and nothing is learned."""

    @staticmethod
    def run(loop: Driven, elo_per_hour: float, hours: float, start: float = 0.0, off: float = 0.0) -> list:
        """Rate every 15 minutes and tick every 10, from hour ``start`` of running, before which it was ``off``."""
        said = []
        for minute in np.arange(start * 60, (start + hours) * 60, 5):
            now = minute * 60 + off * HOUR
            if minute % 10 == 0:
                said += loop.feed(TICK, key=None, at=now)
            if minute % 15 == 0:
                said += loop.feed(rated(elo_per_hour * minute / 60, stderr=8.0), at=now)
        return said

    @pytest.mark.parametrize(("off", "rated_at"), [(0.0, 0), (1.0, 0), (6.0, 0), (24.0, 0), (240.0, 0), (12.0, 20)])
    def test_is_no_time_without_improvement(self, loop, off, rated_at):
        """Off time may end with a tick, or with a rating at an hour."""
        assert not of(self.run(loop, 20.0, hours=8), PlateauDetected)
        if rated_at:
            loop.feed(rated(160.0, stderr=8.0), at=rated_at * HOUR)
        assert not of(self.run(loop, 20.0, hours=8, start=8, off=off), PlateauDetected)
        assert loop.state().elo_velocity == pytest.approx(20.0, rel=0.05)

    def test_is_no_part_of_the_6_hours(self, loop):
        assert not of(self.run(loop, 0.0, hours=3), PlateauDetected)
        assert not of(self.run(loop, 0.0, hours=2.5, start=3, off=12.0), PlateauDetected)
        (plateau, *_) = of(self.run(loop, 0.0, hours=2, start=5.5, off=12.0), PlateauDetected)
        assert plateau.window_hours == pytest.approx(6.0, abs=0.5)

    @pytest.mark.parametrize(("seconds", "on"), [(1220, True), (1221, False)])
    def test_off_time_is_a_gap_of_over_twice_the_look_interval(self, loop, seconds, on):
        """Looks are 600 s apart, at most a 10 s tick late."""
        loop.feed(rated(0.0), at=0)
        loop.feed(TICK, key=None, at=seconds)
        (point,) = loop.state().elo_pools
        assert point.time == (EPOCH if on else EPOCH + timedelta(seconds=seconds))

    def test_does_not_change_when_things_happened(self, loop):
        loop.feed(trained(), rated(0.0), at=0)
        loop.feed(TICK, key=None, at=12 * HOUR)
        state = loop.state()
        assert (state.last_training_time, state.last_evaluation_time, state.urgency_score) == (EPOCH, EPOCH, 0.25)


class TestQualityPenalty:
    @pytest.mark.parametrize(
        ("scores", "rates"),
        [([0.29], [0.5]), ([0.3], []), ([0.1, 0.39], [0.5]), ([0.1, 0.4], [0.5, 1.0]), ([0.1] * 5, [0.5])],
    )
    def test_below_03_the_rate_is_halved_until_04(self, loop, scores, rates):
        said = of(loop.feed(*map(scored, scores)), QualityPenaltyApplied)
        assert [penalty.rate_multiplier for penalty in said] == rates


class TestIntensity:
    @pytest.mark.parametrize(
        ("intensity", "qualities"),
        [
            ("hot_path", (0.9,)),
            ("accelerated", (0.8, 0.89)),
            ("normal", (0.65, 0.79, None)),
            ("reduced", (0.5, 0.64)),
            ("paused", (0.0, 0.49)),
        ],
    )
    def test_it_follows_from_quality_and_unknown_is_normal(self, loop, intensity, qualities):
        for quality in qualities:
            assert intensity_of(quality, loop.settings.feedback.intensity) == intensity

    def test_decision_of_an_operator_holds_until_a_threshold(self):
        loop = Driven(FeedbackLoopController, run_settings(quality={"smoothing": 1.0}))
        loop.feed(scored(0.7), QualityPenaltyApplied(rate_multiplier=0.1, quality_score=0.7, threshold=0.3), at=1)
        loop.feed(intensity("paused", quality_score=0.7), at=2)
        said = loop.feed(scored(0.7), scored(0.75), at=100)
        assert not of(said, TrainingIntensityChanged) + of(said, QualityPenaltyApplied)
        assert loop.state().selfplay_rate == 0.1
        (changed,) = of(loop.feed(scored(0.95), at=101), TrainingIntensityChanged)
        assert (changed.intensity, changed.previous) == ("hot_path", "paused")

    def test_change_is_emitted_once_with_the_previous_value(self, loop):
        (first,) = of(loop.feed(scored(0.95), scored(0.95)), TrainingIntensityChanged)
        assert (first.intensity, first.previous) == ("hot_path", "normal")


class TestParity:
    def test_failure_blocks_until_three_clean_shards_in_a_row(self, loop):
        (block,) = of(loop.feed(parity(0), parity(1)), TrainingBlockedByQuality)
        assert "1 of 16" in block.reason
        assert not loop.feed(parity(3))
        assert not loop.feed(parity(0), parity(1), parity(0), parity(0))
        assert isinstance(loop.feed(parity(0))[0], TrainingUnblocked)

    def test_an_operators_block_holds_until_somebody_lifts_it(self, loop):
        assert not loop.feed(TrainingBlockedByQuality(reason="by hand"), parity(1), *[parity(0)] * 30)
        assert not loop.feed(TrainingUnblocked(reason="by hand"), parity(0))
        assert isinstance(loop.feed(parity(1))[0], TrainingBlockedByQuality)
        assert isinstance(loop.feed(*[parity(0)] * 3)[0], TrainingUnblocked)

    @pytest.mark.parametrize("by_hand", [TrainingBlockedByQuality, TrainingUnblocked])
    def test_operator_may_confirm_or_lift_a_block_of_its_own(self, loop, by_hand):
        loop.feed(parity(1), by_hand(reason="by hand"))
        if by_hand is TrainingBlockedByQuality:
            assert not loop.feed(*[parity(0)] * 30)
        else:
            assert [type(one) for one in loop.feed(parity(5))] == [TrainingBlockedByQuality]

    def test_own_decisions_recorded_late_count_once(self):
        """A block is recorded after it was lifted. A failure blocks again before the lifting is recorded."""
        late = Driven(FeedbackLoopController, run_settings(**STEADY), late=True)
        block, unblock = late.envelopes(parity(1), *[parity(0)] * 3)
        assert late.record(block) == []
        (again,) = late.envelopes(parity(1))
        assert isinstance(again.data, TrainingBlockedByQuality)
        assert late.record(unblock) == []
        assert late.feed(parity(1)) == [], "blocked already"
        assert late.record(again) == []
        assert late.state().training_block == again.data.reason


class TestEvaluationTrigger:
    @staticmethod
    def promote(loop: Driven, steps: Iterable[int], at: float = 0.0) -> list[str]:
        """Train and promote models of these steps, rated if a rating is requested; return the requests' purposes."""
        purposes = []
        for step in steps:
            loop.feed(training_of(model=model(step - 1)), at=at)
            done = trained(model(step), model(step - 1), step).replace(request_id=loop.events[-1].id)
            (request,) = loop.feed(done, at=at)
            purposes.append(request.purpose)
            if request.purpose == "rating":
                loop.feed(rated(50.0, model=model(step), step=step), at=at)
            loop.feed(promoted(model(step), step=step), at=at)
        return purposes

    def begin(self, loop: Driven) -> None:
        """Rate and promote three models, an hour apart, after which the gain is known."""
        loop.feed(trained(model(0), None, 0), rated(model=model(0), step=0), promoted(model(0), step=0), at=0)
        for step in (1, 2):
            for seconds in range(600, 3600, 600):
                loop.feed(TICK, key=None, at=(step - 1) * HOUR + seconds)
            assert self.promote(loop, [step], at=step * HOUR) == ["rating"], "little is known yet"
        assert loop.state().elo_gain is not None

    def test_third_champion_is_rated_where_evaluations_take_much(self, loop):
        """Each job takes a second, so evaluations take half."""
        self.begin(loop)
        assert self.promote(loop, range(3, 10), at=2 * HOUR) == ["gate", "gate", "rating"] * 2 + ["gate"]

    @pytest.mark.parametrize(("seconds", "purpose"), [(22.9, "gate"), (23.1, "rating")])
    def test_every_candidate_is_rated_where_evaluations_take_little(self, loop, seconds, purpose):
        """Three ratings and four trainings have taken a second each."""
        self.begin(loop)
        loop.feed(played().replace(seconds=seconds), at=2 * HOUR)
        assert self.promote(loop, [3], at=2 * HOUR) == [purpose]

    @pytest.mark.parametrize(("seconds", "purpose"), [(52.9, "gate"), (53.1, "rating")])
    def test_cheap_one_is_rated_as_if_it_took_the_mean(self, seconds, purpose):
        """It has taken seven seconds, three of them for ratings. The other one has taken ``seconds``."""
        loop = Driven(FeedbackLoopController, run_settings(KEY, OTHER_KEY, **STEADY))
        self.begin(loop)
        loop.feed(played().replace(seconds=seconds), key=OTHER_KEY, at=2 * HOUR)
        assert self.promote(loop, [3], at=2 * HOUR) == [purpose]

    def test_rating_is_due_at_once_for_another_base(self, loop):
        """A candidate of a replaced model will be refused. A model of an operator begins another history."""
        self.begin(loop)
        (request,) = loop.feed(trained(model(7), model(0), 2), at=2 * HOUR)
        assert request.purpose == "rating"
        loop.feed(promoted(model(20), step=20), at=2 * HOUR)
        assert self.promote(loop, [21, 22, 23], at=2 * HOUR) == ["rating"] * 3, "nothing is known of its gain"

    def test_candidate_of_the_leagues_schedule_is_rated(self, loop):
        """Only rated champions enter the league, so its schedule decides, too."""
        self.begin(loop)
        self.promote(loop, range(3, 17), at=2 * HOUR)
        found = self.promote(loop, range(17, 24), at=2 * HOUR)
        assert found == ["gate", "gate", "rating", "rating", "gate", "gate", "rating"], "20 is in the schedule"

    @pytest.mark.parametrize(("gain", "purpose"), [(99.0, "gate"), (100.0, "rating")])
    def test_candidate_after_a_large_gain_is_rated(self, loop, gain, purpose):
        """Between distant champions there are only one-sided games, which rate nobody."""
        self.begin(loop)
        loop.feed(training_of(model=model(2)), at=2 * HOUR)
        loop.feed(trained(model(3), model(2), 3).replace(request_id=loop.events[-1].id), at=2 * HOUR)
        loop.feed(promoted(model(3), elo=400.0 + gain, step=3), at=2 * HOUR)
        (request,) = loop.feed(trained(model(4), model(3), 4), at=2 * HOUR)
        assert request.purpose == purpose

    def test_five_rejections_bring_a_rating(self, loop):
        """Their number counts and no time, because windows follow ratings: rarer ones would make them longer."""
        self.begin(loop)
        purposes = []
        for step in range(3, 15):
            (request,) = loop.feed(trained(model(step), model(2), step % 10), at=2 * HOUR)
            purposes.append(request.purpose)
            loop.feed(rejected(model(step)), at=2 * HOUR)
        assert [n for n, purpose in enumerate(purposes) if purpose == "rating"] == [5, 7, 10], "7: of the schedule"

    def test_every_training_is_followed_by_an_evaluation(self, loop):
        (envelope,) = loop.envelopes(trained(step=3))
        request = envelope.data
        assert (type(request), envelope.subject) == (EvaluationRequested, KEY)
        assert (request.model, request.step, request.purpose) == (NEW, 3, "rating")

    def test_failed_rating_is_tried_three_times_by_other_seeds(self, loop):
        requests = loop.feed(trained(), unrated(purpose="gate"), *[unrated()] * 5)
        assert len({request.seed for request in requests}) == len(requests) == 3


@pytest.mark.parametrize("first", [KEY, OTHER_KEY])
def test_sweep_order_of_configurations_is_always_the_same(first):
    """Ids follow from the order, so it must survive a restart. After a restart rows are in the order of their keys."""
    loop = Driven(FeedbackLoopController, run_settings(KEY, OTHER_KEY, **STEADY))
    for key in (first, *({KEY, OTHER_KEY} - {first})):
        loop.feed(scored(0.1), key=key, at=1)
    boosts = loop.envelopes(TICK, key=None, at=2 * HOUR)
    assert [envelope.subject for envelope in boosts] == [KEY, OTHER_KEY]
