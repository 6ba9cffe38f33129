"""CurriculumIntegration: each of its rules."""

import re

import pytest
from driving import KEY, OTHER_KEY, Driven, gated, played, rated, run_settings, scored
from hypothesis import given
from hypothesis import strategies as st

from flyball.app.config import GAMES, RunSettings
from flyball.app.controllers import CurriculumIntegration, FeedbackState
from flyball.app.controllers.curriculum import normalised, plateaued, worth
from flyball.app.events import ClockTick, CurriculumRebalanced, EvaluationCompleted, ExplorationBoost, PlateauDetected

TICK = ClockTick(period_seconds=10)
EMPTY = FeedbackState(config_key=KEY)
SETTINGS = run_settings(KEY, OTHER_KEY, stall={"check_seconds": 600})
"""Settings with which a minute without a tick is no time in which the run was off."""


def boost(multiplier: float) -> ExplorationBoost:
    return ExplorationBoost(multiplier=multiplier, lasts_seconds=60.0, reason="r")


STALL = PlateauDetected(velocity=0.0, upper_bound=1.0, window_hours=6.0, least_gain=30.0)


def gaining(gain: float, stderr: float = 0.1, **fields) -> FeedbackState:
    return EMPTY.replace(elo_gain=gain, elo_gain_stderr=stderr, **fields)


def test_worth_is_importance_times_quality_times_gain_and_error():
    assert worth(gaining(2.0, 0.5), 3.0, optimism=1.0) == pytest.approx(3.0 * 2.5)
    assert worth(gaining(2.0, 0.5), 1.0, optimism=2.0) == pytest.approx(3.0)
    assert worth(gaining(-9.0, 0.5), 1.0, optimism=1.0) == pytest.approx(0.5), "a decline is as if nothing were gained"
    assert worth(gaining(2.0, 0.5, quality_score=0.2), 1.0, optimism=0.0) == pytest.approx(2.0 * 0.6)
    assert worth(EMPTY, 1.0, optimism=1.0) is None


@given(raw=st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40))
def test_weights_are_clamped_average_1_and_keep_their_order(raw):
    weights = normalised({str(n): value for n, value in enumerate(raw)}, 0.5, 2.0)
    assert all(0.5 <= value <= 2.0 for value in weights.values())
    assert sum(weights.values()) / len(weights) == pytest.approx(1.0, abs=1e-6)
    ordered = [weights[str(n)] for n in sorted(range(len(raw)), key=raw.__getitem__)]
    assert ordered == sorted(ordered)


@pytest.mark.parametrize(
    ("stalls", "before", "gain", "done"),
    [
        *((1, False, 0.0, False), (2, False, 0.0, True), (2, False, 0.334, False), (2, False, 0.333, True)),
        *((2, True, 0.99, True), (2, True, 1.0, False)),
    ],
)
def test_plateaued_after_a_vain_boost_at_less_than_others(stalls, before, gain, done):
    """Two configurations; the other gains 1. Half of an equal share begins at a gain of 1/3, and all of it at 1."""
    states = {KEY: gaining(0.0, stalls=stalls, plateaued=before), OTHER_KEY: gaining(1.0)}
    assert (KEY in plateaued(states, {KEY: gain, OTHER_KEY: 1.0}, floor=0.2)) == done


@given(gain=st.floats(1e-9, 1e9), number=st.integers(2, 40))
def test_equal_gains_keep_nobody_plateaued(gain, number):
    states = {str(key): gaining(0.0, stalls=2, plateaued=True) for key in range(number)}
    assert plateaued(states, dict.fromkeys(states, gain), floor=0.2) == set()


@pytest.mark.parametrize(("floor", "gain", "done"), [(1.0, 0.0, False), (0.6, 1.0, False), (0.6, 0.9, True)])
def test_high_floor_keeps_nobody_plateaued_who_gains(floor, gain, done):
    states = {KEY: gaining(0.0, stalls=2, plateaued=True), OTHER_KEY: gaining(1.0)}
    assert (KEY in plateaued(states, {KEY: gain, OTHER_KEY: 1.0}, floor)) == done
    unknown = {KEY: EMPTY.replace(stalls=2, plateaued=True), OTHER_KEY: gaining(1.0)}
    assert not plateaued(unknown, {KEY: gain, OTHER_KEY: 1.0}, floor), "an unknown gain may be any"


class Two:
    """Two configurations, each rated once a minute from a straight line, after ten seconds of a worker."""

    def __init__(self, settings: RunSettings = SETTINGS) -> None:
        self.driven = Driven(CurriculumIntegration, settings)
        self.minutes = 0
        self.changes: list[CurriculumRebalanced] = []

    def run(self, minutes: int, first: float, second: float, stderr: float = 4.0) -> dict[str, float]:
        """Rate both, with a gain per minute each, and return the latest weights."""
        for _ in range(minutes):
            self.minutes += 1
            for key, gain in ((KEY, first), (OTHER_KEY, second)):
                work = played().replace(seconds=10.0)
                self.driven.feed(work, key=key, at=60 * self.minutes)
                said = self.driven.feed(rated(gain * self.minutes, stderr=stderr), key=key, at=60 * self.minutes)
                self.changes += [payload for payload in said if isinstance(payload, CurriculumRebalanced)]
        return {key: self.driven.state(key).curriculum_weight for key in (KEY, OTHER_KEY)}


def test_what_gains_more_gets_more_within_the_bounds():
    weights = Two().run(20, first=10.0, second=20.0, stderr=0.5)
    assert weights[OTHER_KEY] / weights[KEY] == pytest.approx(2.0, rel=0.1)
    assert Two().run(20, first=0.0, second=100.0) == pytest.approx({KEY: 0.2, OTHER_KEY: 1.8})


def test_importance_counts_like_gain():
    important = GAMES[KEY].replace(importance=3.0)
    settings = SETTINGS.replace(configs=(important, GAMES[OTHER_KEY]))
    weights = Two(settings).run(20, first=10.0, second=10.0, stderr=0.5)
    assert weights[KEY] / weights[OTHER_KEY] == pytest.approx(3.0, rel=0.1)


def test_unknown_gain_counts_as_the_best():
    """The other configuration is rated for the first time when much is known of this one."""
    driven = Driven(CurriculumIntegration, SETTINGS)
    for minute in range(30):
        driven.feed(played().replace(seconds=10.0), rated(10.0 * minute), at=60 * minute)
    assert driven.state(KEY).elo_gain == pytest.approx(10 / 11), "Elo per second: ten of self-play, one of evaluation"
    assert driven.state(KEY).curriculum_weight == driven.state(OTHER_KEY).curriculum_weight == 1.0


@pytest.mark.parametrize(("at", "changed"), [(599.9, False), (600, True)])
def test_first_rating_begins_the_cooldown_of_10_minutes(at, changed):
    by_the_clock = {"check_seconds": 600, "window_ratings": 0, "window_hours": 0.5}
    driven = Driven(CurriculumIntegration, run_settings(KEY, OTHER_KEY, stall=by_the_clock))
    for n in range(3):  # pools of ratings are 100 s apart
        for key, gain in ((KEY, 0.0), (OTHER_KEY, 50.0)):
            assert not driven.feed(played().replace(seconds=10.0), rated(gain * n), key=key, at=150 * n)
    assert bool(driven.feed(rated(0.0), at=at)) == changed


def test_rating_alone_rebalances_and_is_the_cause():
    """A tick, a gate or a tournament does not rebalance."""
    two = Two()
    two.run(9, first=0.0, second=50.0)
    assert not two.driven.feed(TICK, key=None, at=10_000)
    assert not two.driven.feed(gated(50, 0, 50), rated().replace(purpose="tournament"), at=10_000)
    (rebalanced,) = two.driven.envelopes(rated(900.0, stderr=4.0), at=10_001)
    *_, evaluated = (event for event in two.driven.events if isinstance(event.data, EvaluationCompleted))
    assert rebalanced.causationid == evaluated.id


def test_a_change_that_is_too_small_is_no_decision():
    two = Two()
    two.run(30, first=10.0, second=10.0)
    assert two.changes == []


def test_cooldown_shrinks_with_the_stall_window():
    """Ratings a minute apart: 20 of them are a window of 20 minutes instead of 6 hours, and 10 minutes become 33 s."""
    two = Two()
    two.run(9, first=0.0, second=100.0)
    assert two.driven.state(KEY).time_scale == pytest.approx(1 / 18)
    assert two.changes


def test_plateau_begins_at_the_floor_and_ends_by_improvement():
    two = Two()
    two.run(12, first=0.0, second=50.0)
    two.driven.feed(STALL, boost(1.5), STALL, boost(2.25), at=60 * two.minutes)
    weights = two.run(6, first=0.0, second=50.0)
    assert weights[KEY] == pytest.approx(0.2)
    assert two.driven.state(KEY).plateaued
    assert re.match(
        rf"{KEY} is plateaued, weight 0\.\d\d( → 0\.20)?: .* times the mean of \d+, less than 0.5;",
        two.changes[-1].reason,
    )
    two.driven.feed(boost(1.0), at=60 * two.minutes)
    assert two.driven.state(KEY).stalls == 2, "a boost that ends is no improvement where it was in vain"
    two.run(20, first=60.0, second=50.0)
    assert not two.driven.state(KEY).plateaued
    assert two.driven.state(KEY).stalls == 0
    lifted = re.compile(
        rf"{KEY} is no longer plateaued, weight 0\.20 → (\S+): .*, (\S+) times the mean of \d+, at least"
    )
    (found,) = filter(None, (lifted.search(change.reason) for change in two.changes))
    assert float(found[1]) == pytest.approx(float(found[2]), abs=0.01), "its share of what counts is its weight again"
    named = [found for change in two.changes for found in re.findall(r"(\S+) → (\S+)", change.reason)]
    assert named
    assert all(before != after for before, after in named), "a weight that stays is no news"


def test_reason_yields_the_weight():
    two = Two()
    two.run(20, first=10.0, second=20.0)
    pattern = re.compile(rf"({KEY}|{OTHER_KEY}) \S+ → (\S+) because .*, (\S+) times the mean of \d+(, and)? ")
    found = [match for change in two.changes if (match := pattern.search(change.reason))]
    assert found
    for change, match in zip(two.changes, found, strict=True):
        key, weight, share, bounded = match.groups()
        assert float(weight) == pytest.approx(change.weights[key], abs=0.005)
        assert bounded or weight == share, "without bounds a weight is its share of what counts"
    assert any(match[4] is None for match in found)


@pytest.mark.parametrize("gain", [10.0, -10.0])
def test_reason_says_how_a_gain_counts(gain):
    """A gain below 0 counts as 0. Figures are rounded to whole Elo per hour."""
    settings = run_settings(KEY, OTHER_KEY, stall={"check_seconds": 600}, curriculum={"optimism": 0.1})
    two = Two(settings.replace(configs=(GAMES[KEY].replace(importance=1.5), GAMES[OTHER_KEY])))
    two.driven.feed(scored(0.8), at=1)
    two.run(20, first=gain, second=0.5)
    counted = re.compile(
        rf"{KEY} \S+ → \S+ because it gains (\S+) ± (\d+) Elo per hour of a worker, which count as "
        r"\((\d+) \+ 0.1 x (\d+)\) x 1.5 \(importance\) x 0.9 \(quality\) = (\d+), "
    )
    found = [match for change in two.changes if (match := counted.search(change.reason))]
    assert found
    for match in found:
        shown, stderr, counts, error, worth_an_hour = map(float, match.groups())
        assert counts == max(0, shown)
        assert error == stderr
        assert worth_an_hour == pytest.approx((counts + 0.1 * error) * 1.5 * 0.9, abs=1)
