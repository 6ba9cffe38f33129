"""ModelPerformanceWatchdog: each rule at its threshold and next to it."""

import numpy as np
import pytest
from builders import EVIDENCE, rolled_back
from driving import KEY, Driven, match, rated, run_settings

from flyball.app.controllers import ModelPerformanceWatchdog, cusum_step
from flyball.app.controllers.watchdog import severity_of
from flyball.app.core import expected_score
from flyball.app.events import MatchesRequested, ModelPromoted, RegressionCleared, RegressionDetected

ANCHOR = "f" * 64
LEVEL = 100.0
"""Elo of good models above the anchor."""


def model(n: int) -> str:
    return f"{n:064x}"


def promoted(n: int) -> ModelPromoted:
    return ModelPromoted(model=model(n), previous=model(n - 1), step=n, elo=0.0, evidence=EVIDENCE)


def against_random(watchdog: Driven, n: int, elo: float) -> list:
    return watchdog.feed(rated(elo, match(expected_score(elo), 200), model=model(n)), promoted(n), at=n)


def watching(**settings) -> Driven:
    return steady(Driven(ModelPerformanceWatchdog, run_settings(watchdog=settings)))


def detected(said: list) -> tuple:
    """Return the only payload's model and last good model, if it is an alarm."""
    (alarm,) = said
    assert isinstance(alarm, RegressionDetected)
    return alarm.model, alarm.last_good


def rating(n: int, elo: float, games: int = 100, anchor: str = ANCHOR):
    """Return a rating with the expected score against the anchor. All other opponents beat the model."""
    others = (match(0.0, 200, "random"), match(0.0, 100, "champion", model="c" * 64))
    return rated(elo, match(expected_score(elo), games, "anchor_1", model=anchor), *others, model=model(n))


def retest(elo: float, n: int, games: int = 20, anchor: str = ANCHOR):
    played = match(expected_score(elo), games, "member_1", model=anchor)
    return rated(elo, played, model=model(n)).replace(purpose="retest")


def promote(watchdog: Driven, n: int, elo: float = LEVEL, anchor: str = ANCHOR) -> list:
    watchdog.feed(rating(n, elo, anchor=anchor), at=n)
    return watchdog.feed(promoted(n), at=n)


def steady(watchdog: Driven, models: int = 20) -> Driven:
    for n in range(1, models + 1):
        assert not promote(watchdog, n)
    return watchdog


@pytest.fixture
def watchdog():
    return Driven(ModelPerformanceWatchdog)


@pytest.fixture
def calm(watchdog):
    return steady(watchdog)


class Played:
    """A series of models with simulated games and retests."""

    def __init__(self, seed: int) -> None:
        self.rng, self.watchdog, self.models, self.games = np.random.default_rng(seed), None, 0, 0
        self.restart()

    def restart(self) -> None:
        self.watchdog = Driven(ModelPerformanceWatchdog)
        for _ in range(10):
            self.promote(LEVEL)

    def drawn(self, elo: float, games: int = 100, purpose: str = "rating"):
        self.games += games
        score = self.rng.binomial(games, expected_score(elo)) / games
        played = match(score, games, "anchor_1", model=ANCHOR)
        return rated(0.0, played, model=model(self.models)).replace(purpose=purpose)

    def promote(self, elo: float) -> bool:
        self.models += 1
        self.watchdog.feed(self.drawn(elo))
        said = self.watchdog.feed(promoted(self.models))
        while said and isinstance(said[0], MatchesRequested):
            said = self.watchdog.feed(self.drawn(elo, said[0].games, said[0].purpose))
        return any(isinstance(payload, RegressionDetected) for payload in said)


def test_drops_of_100_elo_are_caught_within_170_games_on_average():
    """The level is measured in the ten matches before."""
    delays = []
    for seed in range(100):
        played = Played(seed)
        played.games = 0
        while not played.promote(LEVEL - 100.0):
            assert played.games < 10_000
        delays.append(played.games)
    assert np.mean(delays) <= 170
    assert np.mean(np.array(delays) <= 200) >= 0.85


def test_false_alarms_at_constant_strength_are_5000_games_apart():
    """Constant strength is the worst case, because growth keeps alarms away. No model is rolled back."""
    played, alarms = Played(1), 0
    while played.games < 100_000:
        alarms += played.promote(LEVEL)
    assert alarms <= 20


@pytest.mark.parametrize(
    ("drop", "severity"),
    [(19, "minor"), (20, "minor"), (34, "minor"), (35, "moderate"), (50, "severe"), (74, "severe"), (75, "critical")],
)
def test_severity_by_drop(drop, severity):
    assert severity_of(drop, (20, 35, 50, 75)) == severity


def test_models_that_grow_or_have_no_level_raise_no_alarm(watchdog):
    assert not [said for n in range(1, 60) for said in promote(watchdog, n, 5.0 * n)]
    unrated = Driven(ModelPerformanceWatchdog)
    assert not unrated.feed(promoted(1), retest(-500.0, 1))
    assert unrated.row(KEY).level is None


def test_planted_regression_is_detected_and_cleared(watchdog):
    (alarm,) = said = promote(steady(watchdog), 21, LEVEL - 120.0)
    assert detected(said) == (model(21), model(20))
    assert (alarm.severity, alarm.games) == ("critical", 100)
    assert alarm.elo_drop == pytest.approx(120, abs=5)
    assert alarm.opponent == ANCHOR
    said = [payload for n in range(22, 40) for payload in promote(watchdog, n)]
    assert [type(payload) for payload in said] == [RegressionCleared]


@pytest.mark.parametrize(("threshold", "alarms"), [(2.65, 1), (2.66, 0)])
def test_the_alarm_is_raised_at_the_threshold(threshold, alarms):
    """A hundred games 100 Elo below the level give evidence of 2.654. The total is 4.002, of which 66% is certain."""
    said = promote(watching(threshold=threshold), 21, LEVEL - 100.0)
    assert sum(isinstance(payload, RegressionDetected) for payload in said) == alarms


@pytest.mark.parametrize(("suspicion", "requests"), [(0.179, 1), (0.180, 0)])
def test_suspicious_model_is_retested_against_the_same_opponent(suspicion, requests):
    """A hundred games 60 Elo below the level give evidence of 0.466. This is 0.1793 of the threshold."""
    said = promote(watching(suspicion=suspicion), 21, LEVEL - 60.0)
    asked = [(request.model, request.purpose, request.step, request.opponents, request.games) for request in said]
    assert asked == [(model(21), "retest", 21, (ANCHOR,), 20)] * requests


def test_a_suspicion_is_looked_into_by_so_many_matches_in_a_row():
    watchdog = watching(suspicion=0.01, most_matches=4, threshold=50.0)
    said, asked = promote(watchdog, 21, LEVEL - 300.0), 0
    while said:
        asked += 1
        said = watchdog.feed(retest(LEVEL - 300.0, 21))
    assert asked == 3
    assert watchdog.row(KEY).doubt.matches == 4


def test_a_suspicion_is_refuted_or_confirmed_by_a_retest(watchdog):
    (request,) = promote(steady(watchdog), 21, LEVEL - 85.0)
    assert isinstance(request, MatchesRequested)
    assert not watchdog.feed(retest(LEVEL + 50.0, 21, games=100))
    assert (watchdog.row(KEY).doubt.total, watchdog.row(KEY).last_good) == (0.0, model(21))
    (request,) = promote(watchdog, 22, LEVEL - 85.0)
    (alarm,) = said = watchdog.feed(retest(LEVEL - 200.0, 22))
    assert (*detected(said), alarm.games) == (model(22), model(21), 100 + request.games)


def test_retest_without_an_anchor_is_against_the_random_bot(watchdog):
    for n in range(1, 10):
        against_random(watchdog, n, 200.0)
    (request,) = against_random(watchdog, 10, 130.0)
    assert (request.purpose, request.opponents) == ("retest", ("random",))
    (alarm,) = watchdog.feed(rated(0.0, match(0.3, 40), model=model(10)).replace(purpose="retest"), at=11)
    assert (type(alarm), alarm.games) == (RegressionDetected, 240)


@pytest.mark.parametrize(
    "late",
    [retest(-500.0, 20), retest(-500.0, 21, anchor="9" * 64), retest(-500.0, 22)],
    ids=["of the model before", "against another opponent", "of a candidate"],
)
def test_retest_not_about_the_current_doubt_changes_nothing(watchdog, late):
    assert promote(steady(watchdog), 21, LEVEL - 85.0)
    before = watchdog.row(KEY)
    assert not watchdog.feed(late)
    assert watchdog.row(KEY) == before


def test_candidates_that_are_not_promoted_do_not_count(calm):
    for n in range(21, 60):
        assert not calm.feed(rating(n, -300.0), at=n)
    assert calm.row(KEY).doubt.total == 0


def test_games_not_against_the_newest_anchor_do_not_count(calm):
    roles = ("random", "heuristic", "champion", "recent", "member_1", "anchor_2")
    for n in range(21, 40):
        beaten = [match(0.0, 100, role, model=model(1000 + n)) for role in roles]
        assert not calm.feed(rated(0.0, *beaten, model=model(n)), promoted(n), at=n)
    assert calm.row(KEY).doubt.total == 0


def test_current_model_rated_after_its_promotion_counts_then(calm):
    """An operator may promote a model that is rated only afterwards."""
    assert not calm.feed(promoted(21), at=21)
    (alarm,) = said = calm.feed(rating(21, LEVEL - 200.0), at=22)
    assert (*detected(said), alarm.severity) == (model(21), model(20), "critical")
    assert not calm.feed(promoted(21), at=23), "its games have been counted"


def test_candidate_games_wait_while_current_model_is_rerated(calm):
    calm.feed(rating(21, LEVEL - 200.0), rating(20, LEVEL), at=21)
    assert detected(calm.feed(promoted(21), at=22)) == (model(21), model(20))


def test_restored_model_without_an_alarm_sets_the_level(calm):
    calm.feed(rolled_back(model(20), model(19), 19), rating(20, -300.0), at=30)
    assert calm.row(KEY).level is None
    calm.feed(rating(19, 60.0), at=31)
    row = calm.row(KEY)
    assert (row.last_good, row.level.opponent) == (model(19), ANCHOR)
    assert row.level.elo == pytest.approx(60.0, abs=1.0)


def test_the_next_regression_after_a_rollback_is_noticed_too(calm):
    """The restored model is rated again to keep the level. Otherwise the next bad model would set it."""
    calm.feed(rolled_back(model(20), model(19), 19), rating(19, LEVEL), promoted(21), at=31)
    (alarm,) = said = calm.feed(rating(21, LEVEL - 300.0), at=32)
    assert (*detected(said), alarm.severity) == (model(21), model(19), "critical")


@pytest.fixture
def restored(watchdog: Driven) -> Driven:
    """Return a watchdog after an alarm and its rollback from model 21 to model 20."""
    steady(watchdog)
    watchdog.feed(rating(21, LEVEL - 300.0), at=21)
    assert detected(watchdog.feed(promoted(21), at=22)) == (model(21), model(20))
    level = watchdog.row(KEY).level
    watchdog.feed(rolled_back(model(21), model(20), 20), at=23)
    assert (watchdog.row(KEY).level, watchdog.row(KEY).last_good) == (level, None)
    return watchdog


def test_restored_model_after_an_alarm_is_tested_too(restored):
    """By luck, a bad model may count as the last good one."""
    assert detected(restored.feed(rating(20, LEVEL - 300.0), at=24)) == (model(20), None)


def test_restored_model_that_reaches_the_level_is_last_good(restored):
    (cleared,) = restored.feed(rating(20, LEVEL), at=24)
    assert (type(cleared), restored.row(KEY).last_good) == (RegressionCleared, model(20))


def test_rollback_of_the_only_anchor_leaves_the_random_bot(restored):
    """No later model plays the former anchor. A level above it would never be compared with anything."""
    for n in (20, 22, 23):
        against_random(restored, n, 300.0)
    assert restored.row(KEY).level.opponent is None
    assert detected(against_random(restored, 24, 0.0)) == (model(24), model(23))


def test_games_against_the_random_bot_count_without_an_anchor(watchdog):
    for n in range(1, 21):
        against_random(watchdog, n, 150.0)
    assert detected(against_random(watchdog, 21, 0.0)) == (model(21), model(20))


def test_level_above_a_restored_anchor_is_0(calm):
    calm.feed(rolled_back(model(20), ANCHOR, 1), at=30)
    before = calm.row(KEY)
    assert (before.level.opponent, before.level.elo, before.level.variance) == (ANCHOR, 0.0, 0.0)
    assert not calm.feed(rated(0.0, match(0.0, 200), model=ANCHOR))
    assert calm.row(KEY) == before, "rated again, it is not compared with the random bot"


@pytest.mark.parametrize(("elo", "alarms"), [(-150.0, 1), (0.0, 0)])
def test_against_an_anchor_that_was_current_before_0_is_expected(watchdog, elo, alarms):
    """A new anchor makes the level against the old one worthless."""
    said = promote(steady(watchdog), 21, elo, anchor=model(20))
    assert [type(payload) for payload in said] == [RegressionDetected] * alarms
    assert watchdog.row(KEY).level.opponent == model(20)


@pytest.mark.parametrize("anchor", [20, 21, 22])
@pytest.mark.parametrize(("elo", "alarms"), [(-170.0, 1), (0.0, 0)])
def test_against_champions_since_the_last_match_0_is_expected(watchdog, anchor, elo, alarms):
    """Champions 21 and 22 had no gauntlet. Each may be the anchor of the next rating."""
    steady(watchdog).feed(promoted(21), promoted(22))
    said = promote(watchdog, 23, elo, anchor=model(anchor))
    assert [type(payload) for payload in said] == [RegressionDetected] * alarms
    assert watchdog.row(KEY).level.opponent == model(anchor)


def test_level_against_an_unknown_anchor_is_as_measured(watchdog):
    assert not promote(steady(watchdog), 21, 30.0, anchor=model(7))
    level = watchdog.row(KEY).level
    assert (level.opponent, level.elo) == (model(7), pytest.approx(30.0, abs=1.0))


@pytest.mark.parametrize("difference", [-200_000.0, -9000.0, 9000.0, 200_000.0])
@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
def test_opponents_thousands_of_elo_away_are_no_error(difference, score):
    assert 0 <= cusum_step(0.0, score, 100, difference, 50.0) < float("inf")
