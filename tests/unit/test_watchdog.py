"""ModelPerformanceWatchdog: each rule at its threshold and next to it."""

import numpy as np
import pytest
from driving import KEY, Driven, match, rated, run_settings

from app.controllers import ModelPerformanceWatchdog, cusum_step
from app.controllers.watchdog import severity_of
from app.core import expected_score
from app.events import Evidence, MatchesRequested, ModelPromoted, ModelRolledBack, RegressionCleared, RegressionDetected

EVIDENCE = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)
ANCHOR = "f" * 64
LEVEL = 100.0
"""Elo of good models above the anchor."""


def model(n: int) -> str:
    return f"{n:064x}"


def promoted(n: int) -> ModelPromoted:
    return ModelPromoted(model=model(n), previous=model(n - 1), step=n, elo=0.0, evidence=EVIDENCE)


def rating(n: int, elo: float, games: int = 100, anchor: str = ANCHOR):
    """Return a rating with the expected score against the anchor.

    All other opponents beat the model.
    """
    others = (match(0.0, 200, "random"), match(0.0, 100, "champion", model="c" * 64))
    return rated(elo, match(expected_score(elo), games, "anchor_1", model=anchor), *others, model=model(n))


def retest(elo: float, n: int, games: int = 20, anchor: str = ANCHOR):
    """Return a retest with the expected score."""
    played = match(expected_score(elo), games, "member_1", model=anchor)
    return rated(elo, played, model=model(n)).replace(purpose="retest")


def promote(watchdog: Driven, n: int, elo: float = LEVEL, anchor: str = ANCHOR) -> list:
    watchdog.feed(rating(n, elo, anchor=anchor), at=n)
    return watchdog.feed(promoted(n), at=n)


def steady(watchdog: Driven, models: int = 20) -> Driven:
    """Promote a series of equally strong models."""
    for n in range(1, models + 1):
        assert not promote(watchdog, n)
    return watchdog


@pytest.fixture
def watchdog():
    return Driven(ModelPerformanceWatchdog)


class Played:
    """A series of models with simulated games and retests.

    Results are random. A rating has 100 games. Requested retests are played.
    """

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
        """Rate, promote and retest a model; return whether there was an alarm."""
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
    """Constant strength is the worst case, because growth keeps alarms away.

    No model is rolled back.
    """
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


def test_steady_and_improving_models_raise_no_alarm(watchdog):
    assert not [said for n in range(1, 60) for said in promote(watchdog, n, 5.0 * n)]


def test_planted_regression_is_detected_with_last_good_model(watchdog):
    (detected,) = promote(steady(watchdog), 21, LEVEL - 120.0)
    assert isinstance(detected, RegressionDetected)
    assert (detected.model, detected.last_good) == (model(21), model(20))
    assert detected.severity == "critical"
    assert detected.elo_drop == pytest.approx(120, abs=5)
    assert detected.games == 100


@pytest.mark.parametrize(("threshold", "alarms"), [(2.65, 1), (2.66, 0)])
def test_the_alarm_is_raised_at_the_threshold(threshold, alarms):
    """A hundred games 100 Elo below the level give evidence of 2.654.

    The total is 4.002, of which 66% is certain.
    """
    watchdog = steady(Driven(ModelPerformanceWatchdog, run_settings(watchdog={"threshold": threshold})))
    said = promote(watchdog, 21, LEVEL - 100.0)
    assert sum(isinstance(payload, RegressionDetected) for payload in said) == alarms


@pytest.mark.parametrize(("suspicion", "requests"), [(0.179, 1), (0.180, 0)])
def test_suspicious_model_is_retested_against_the_same_opponent(suspicion, requests):
    """A hundred games 60 Elo below the level give evidence of 0.466.

    This is 0.1793 of the threshold.
    """
    watchdog = steady(Driven(ModelPerformanceWatchdog, run_settings(watchdog={"suspicion": suspicion})))
    said = promote(watchdog, 21, LEVEL - 60.0)
    asked = [(request.model, request.purpose, request.step, request.opponents, request.games) for request in said]
    assert asked == [(model(21), "retest", 21, (ANCHOR,), 20)] * requests


def test_a_suspicion_is_looked_into_by_so_many_matches_in_a_row():
    settings = {"suspicion": 0.01, "most_matches": 4, "threshold": 50.0}
    watchdog = steady(Driven(ModelPerformanceWatchdog, run_settings(watchdog=settings)))
    said, asked = promote(watchdog, 21, LEVEL - 300.0), 0
    while said:
        asked += 1
        said = watchdog.feed(retest(LEVEL - 300.0, 21))
    assert asked == 3
    assert watchdog.row(KEY).doubt.matches == 4


def test_a_suspicion_that_more_games_refute_is_over(watchdog):
    (request,) = promote(steady(watchdog), 21, LEVEL - 85.0)
    assert isinstance(request, MatchesRequested)
    assert not watchdog.feed(retest(LEVEL + 50.0, 21, games=100))
    row = watchdog.row(KEY)
    assert (row.doubt.total, row.last_good) == (0.0, model(21))


def test_a_suspicion_that_a_retest_confirms_is_an_alarm(watchdog):
    (request,) = promote(steady(watchdog), 21, LEVEL - 85.0)
    (detected,) = watchdog.feed(retest(LEVEL - 200.0, 21))
    assert (type(detected), detected.model, detected.games) == (RegressionDetected, model(21), 100 + request.games)


def test_retest_without_an_anchor_is_against_the_random_bot(watchdog):
    for n in range(1, 10):
        watchdog.feed(rated(200.0, match(expected_score(200.0), 200), model=model(n)), promoted(n), at=n)
    watchdog.feed(rated(120.0, match(expected_score(130.0), 200), model=model(10)), at=10)
    (request,) = watchdog.feed(promoted(10), at=10)
    assert (request.purpose, request.opponents) == ("retest", ("random",))
    played = rated(0.0, match(0.3, 40), model=model(10)).replace(purpose="retest")
    (detected,) = watchdog.feed(played, at=11)
    assert (type(detected), detected.games) == (RegressionDetected, 240)


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


def test_retest_of_a_model_without_a_level_changes_nothing(watchdog):
    assert not watchdog.feed(promoted(1), retest(-500.0, 1))
    assert watchdog.row(KEY).level is None


def test_it_is_cleared_by_enough_games_without_evidence(watchdog):
    assert isinstance(promote(steady(watchdog), 21, LEVEL - 120.0)[0], RegressionDetected)
    said = [payload for n in range(22, 40) for payload in promote(watchdog, n)]
    assert [type(payload) for payload in said] == [RegressionCleared]


def test_candidates_that_are_not_promoted_do_not_count(watchdog):
    steady(watchdog)
    for n in range(21, 60):
        assert not watchdog.feed(rating(n, -300.0), at=n)
    assert watchdog.row(KEY).doubt.total == 0


def test_current_model_rated_after_its_promotion_counts_then(watchdog):
    """An operator may promote a model that is rated only afterwards."""
    steady(watchdog)
    assert not watchdog.feed(promoted(21), at=21)
    (detected,) = watchdog.feed(rating(21, LEVEL - 200.0), at=22)
    assert isinstance(detected, RegressionDetected)
    assert (detected.model, detected.last_good, detected.severity) == (model(21), model(20), "critical")
    assert not watchdog.feed(promoted(21), at=23), "its games have been counted"


def test_candidate_games_wait_while_current_model_is_rerated(watchdog):
    steady(watchdog)
    watchdog.feed(rating(21, LEVEL - 200.0), rating(20, LEVEL), at=21)
    (detected,) = watchdog.feed(promoted(21), at=22)
    assert (type(detected), detected.model) == (RegressionDetected, model(21))


def test_restored_model_without_an_alarm_sets_the_level(watchdog):
    steady(watchdog)
    back = ModelRolledBack(from_model=model(20), to_model=model(19), step=19, reason="x")
    watchdog.feed(back, rating(20, -300.0), at=30)
    assert watchdog.row(KEY).level is None
    watchdog.feed(rating(19, 60.0), at=31)
    row = watchdog.row(KEY)
    assert (row.last_good, row.level.opponent) == (model(19), ANCHOR)
    assert row.level.elo == pytest.approx(60.0, abs=1.0)


def test_the_next_regression_after_a_rollback_is_noticed_too(watchdog):
    """The restored model is rated again to keep the level.

    Otherwise the next bad model would set it.
    """
    steady(watchdog)
    back = ModelRolledBack(from_model=model(20), to_model=model(19), step=19, reason="x")
    watchdog.feed(back, rating(19, LEVEL), at=30)
    watchdog.feed(promoted(21), at=31)
    (detected,) = watchdog.feed(rating(21, LEVEL - 300.0), at=32)
    assert (detected.model, detected.last_good, detected.severity) == (model(21), model(19), "critical")


def alarmed(watchdog: Driven) -> RegressionDetected:
    """Raise an alarm by a model weaker than all before."""
    steady(watchdog)
    watchdog.feed(rating(21, LEVEL - 300.0), at=21)
    (detected,) = watchdog.feed(promoted(21), at=22)
    return detected


def test_restored_model_after_an_alarm_is_tested_too(watchdog):
    """By luck, a bad model may count as the last good one.

    Untested, it would be restored after each of its children. If it fails, no model is known to be good, and the next
    rollback is to its predecessor.
    """
    detected = alarmed(watchdog)
    assert (detected.model, detected.last_good) == (model(21), model(20))
    watchdog.feed(ModelRolledBack(from_model=model(21), to_model=model(20), step=20, reason="x"), at=23)
    (again,) = watchdog.feed(rating(20, LEVEL - 300.0), at=24)
    assert (type(again), again.model, again.last_good) == (RegressionDetected, model(20), None)


def test_restored_model_that_reaches_the_level_is_last_good(watchdog):
    alarmed(watchdog)
    level = watchdog.row(KEY).level
    watchdog.feed(ModelRolledBack(from_model=model(21), to_model=model(20), step=20, reason="x"), at=23)
    assert (watchdog.row(KEY).level, watchdog.row(KEY).last_good) == (level, None)
    (cleared,) = watchdog.feed(rating(20, LEVEL), at=24)
    assert (type(cleared), watchdog.row(KEY).last_good) == (RegressionCleared, model(20))


def test_rollback_of_the_only_anchor_leaves_the_random_bot(watchdog):
    """No later model plays the former anchor.

    A level above it would never be compared with anything.
    """
    alarmed(watchdog)
    watchdog.feed(ModelRolledBack(from_model=model(21), to_model=model(20), step=20, reason="x"), at=23)
    for n, elo in ((20, 300.0), (22, 300.0), (23, 300.0)):
        watchdog.feed(rated(elo, match(expected_score(elo), 200), model=model(n)), promoted(n), at=n + 4)
    assert watchdog.row(KEY).level.opponent is None
    watchdog.feed(rated(0.0, match(expected_score(0.0), 200), model=model(24)), at=28)
    (detected,) = watchdog.feed(promoted(24), at=28)
    assert (type(detected), detected.model, detected.last_good) == (RegressionDetected, model(24), model(23))


def test_level_above_a_restored_anchor_is_0(watchdog):
    steady(watchdog)
    watchdog.feed(ModelRolledBack(from_model=model(20), to_model=ANCHOR, step=1, reason="x"), at=30)
    level = watchdog.row(KEY).level
    assert (level.opponent, level.elo, level.variance) == (ANCHOR, 0.0, 0.0)


def test_games_not_against_the_newest_anchor_do_not_count(watchdog):
    steady(watchdog)
    roles = ("random", "heuristic", "champion", "recent", "member_1", "anchor_2")
    for n in range(21, 40):
        beaten = [match(0.0, 100, role, model=model(1000 + n)) for role in roles]
        watchdog.feed(rated(0.0, *beaten, model=model(n)), at=n)
        assert not watchdog.feed(promoted(n), at=n)
    assert watchdog.row(KEY).doubt.total == 0


def test_games_against_the_random_bot_count_without_an_anchor(watchdog):
    for n in range(1, 21):
        watchdog.feed(rated(0.0, match(expected_score(150.0), 200), model=model(n)), promoted(n), at=n)
    watchdog.feed(rated(0.0, match(expected_score(0.0), 200), model=model(21)), at=21)
    (detected,) = watchdog.feed(promoted(21), at=21)
    assert (type(detected), detected.last_good) == (RegressionDetected, model(20))


@pytest.mark.parametrize(("elo", "alarms"), [(-150.0, 1), (0.0, 0)])
def test_against_an_anchor_that_was_current_before_0_is_expected(watchdog, elo, alarms):
    """A new anchor makes the level against the old one worthless."""
    steady(watchdog)
    said = promote(watchdog, 21, elo, anchor=model(20))
    assert [type(payload) for payload in said] == [RegressionDetected] * alarms
    assert watchdog.row(KEY).level.opponent == model(20)


def test_level_against_an_unknown_anchor_is_as_measured(watchdog):
    steady(watchdog)
    assert not promote(watchdog, 21, 30.0, anchor=model(7))
    level = watchdog.row(KEY).level
    assert (level.opponent, level.elo) == (model(7), pytest.approx(30.0, abs=1.0))


def test_only_anchor_rated_again_is_not_compared_with_random(watchdog):
    steady(watchdog)
    watchdog.feed(ModelRolledBack(from_model=model(20), to_model=ANCHOR, step=1, reason="x"), at=30)
    before = watchdog.row(KEY)
    assert not watchdog.feed(rated(0.0, match(0.0, 200), model=ANCHOR))
    assert watchdog.row(KEY) == before


@pytest.mark.parametrize("difference", [-200_000.0, -9000.0, 9000.0, 200_000.0])
@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
def test_opponents_thousands_of_elo_away_are_no_error(difference, score):
    assert 0 <= cusum_step(0.0, score, 100, difference, 50.0) < float("inf")
