"""ModelPerformanceWatchdog: the sequential test and what it says (DESIGN §4, figures of MEASURED)."""

import numpy as np
import pytest
from driving import KEY, Driven, match, rated

from app.core import expected_score
from app.events import Evidence, ModelPromoted, ModelRolledBack, RegressionCleared, RegressionDetected
from app.feedback import ModelPerformanceWatchdog, cusum_step
from app.feedback.watchdog import severity_of

EVIDENCE = Evidence(evaluation_id="e", statistic="x", value=0, threshold=0, games=1, elo=0, elo_stderr=1)


def model(n: int) -> str:
    return f"{n:064x}"


def promoted(n: int, elo: float) -> ModelPromoted:
    return ModelPromoted(model=model(n), previous=model(n - 1), step=n, elo=elo, evidence=EVIDENCE)


def promote(watchdog: Driven, n: int, elo: float, games: int = 100) -> list:
    """Evaluate a model of a true strength against anchors at 0 and 200, exactly as expected, then promote it."""
    matches = [
        match(expected_score(elo - anchor), games, name, anchor)
        for name, anchor in (("random", 0.0), ("recent", 200.0))
    ]
    watchdog.feed(rated(elo, *matches, model=model(n)), at=n)
    return watchdog.feed(promoted(n, elo), at=n)


@pytest.fixture
def watchdog():
    return Driven(ModelPerformanceWatchdog)


def detections(drop: float, rounds: int, seed: int, change_at: int) -> list[int]:
    """Games from the change to the alarm, of a test at even strength with h = 5 and a design drop of 50 Elo."""
    rng, delays = np.random.default_rng(seed), []
    for _ in range(rounds):
        statistic, games = 0.0, 0
        while statistic < 5.0:
            score = float(rng.random() < expected_score(-drop if games >= change_at else 0.0))
            statistic, games = cusum_step(statistic, score, 1, 0.0, 50.0), games + 1
        delays.append(games - change_at)
    return delays


def test_a_drop_of_100_elo_is_caught_within_170_games_on_average():
    assert np.mean(detections(100.0, rounds=300, seed=1, change_at=0)) <= 170


def test_false_alarms_are_more_than_15000_games_apart():
    """Simulated in bulk: the mean run length of a healthy test over 120 runs."""
    rng, runs = np.random.default_rng(2), 240
    win, loss = (cusum_step(100.0, score, 1, 0.0, 50.0) - 100.0 for score in (1.0, 0.0))
    statistic, alive, lengths = np.zeros(runs), np.ones(runs, dtype=bool), np.zeros(runs)
    while alive.any():
        step = np.where(rng.random((runs,)) < 0.5, win, loss)
        statistic = np.maximum(0.0, statistic + step)
        lengths += alive
        alive &= statistic < 5.0
    assert lengths.mean() >= 15_000 * (1 - 2 / np.sqrt(runs))


@pytest.mark.parametrize(
    ("drop", "severity"),
    [(19, "minor"), (20, "minor"), (34, "minor"), (35, "moderate"), (50, "severe"), (74, "severe"), (75, "critical")],
)
def test_severity_by_drop(drop, severity):
    assert severity_of(drop, (20, 35, 50, 75)) == severity


def test_steady_and_improving_models_raise_no_alarm(watchdog):
    assert not [said for n in range(1, 200) for said in promote(watchdog, n, 300.0 + n)]


def test_a_planted_regression_is_detected_and_names_the_last_good_model(watchdog):
    for n in range(1, 21):
        assert not promote(watchdog, n, 300.0)
    said = [detection for n in range(21, 26) for detection in promote(watchdog, n, 200.0)]
    detected = said[0]
    assert isinstance(detected, RegressionDetected)
    assert detected.last_good == model(20)
    assert detected.severity == "critical"
    assert detected.elo_drop == pytest.approx(100, abs=5)
    assert detected.games <= 400


def test_it_is_cleared_by_enough_games_without_evidence(watchdog):
    for n in range(1, 21):
        promote(watchdog, n, 300.0)
    said = [p for n in range(21, 26) for p in promote(watchdog, n, 200.0)]
    assert isinstance(said[0], RegressionDetected)
    said = [p for n in range(26, 60) for p in promote(watchdog, n, 320.0)]
    assert [type(p) for p in said].count(RegressionCleared) == 1


def test_candidates_that_are_not_promoted_do_not_count(watchdog):
    for n in range(1, 11):
        promote(watchdog, n, 300.0)
    for n in range(11, 60):
        assert not watchdog.feed(rated(0.0, match(0.5), model=model(n)), at=n)
    assert watchdog.row(KEY).statistic == 0


def test_a_current_model_that_is_rated_only_afterwards_counts_then(watchdog):
    """An operator promotes what nobody rated: its rating comes after the promotion, and counts once."""
    for n in range(1, 21):
        promote(watchdog, n, 300.0)
    assert not watchdog.feed(promoted(21, 300.0), at=21)
    rating = rated(-200.0, match(expected_score(-200.0), 100), model=model(21))
    (detected,) = watchdog.feed(rating, at=22)
    assert isinstance(detected, RegressionDetected)
    assert (detected.model, detected.last_good, detected.severity) == (model(21), model(20), "critical")
    assert not watchdog.feed(promoted(21, -200.0), at=23), "its games have been counted"


def test_after_a_rollback_the_model_gone_back_to_is_the_one_watched(watchdog):
    for n in range(1, 21):
        promote(watchdog, n, 300.0)
    back = ModelRolledBack(from_model=model(20), to_model=model(19), step=19, reason="x")
    watchdog.feed(back, rated(310.0, model=model(19)), rated(-300.0, match(0.1), model=model(20)), at=30)
    row = watchdog.row(KEY)
    assert (row.current, row.reference, row.statistic) == (model(19), 310.0, 0.0)


def test_the_next_regression_after_a_rollback_is_noticed_too(watchdog):
    """The model gone back to is rated afresh: without a reference, the next bad model would become it."""
    for n in range(1, 21):
        promote(watchdog, n, 300.0)
    back = ModelRolledBack(from_model=model(20), to_model=model(19), step=19, reason="x")
    watchdog.feed(back, rated(300.0, match(expected_score(300.0), 100), model=model(19)), at=30)
    watchdog.feed(promoted(21, 300.0), at=31)
    (detected,) = watchdog.feed(rated(-200.0, match(expected_score(-200.0), 100), model=model(21)), at=32)
    assert (detected.model, detected.last_good, detected.severity) == (model(21), model(19), "critical")


def test_the_champion_is_no_anchor(watchdog):
    promote(watchdog, 1, 300.0)
    for n in range(2, 30):
        watchdog.feed(rated(300.0, match(0.2, 100, "champion", 300.0), model=model(n)), at=n)
        assert not watchdog.feed(promoted(n, 300.0), at=n)


@pytest.mark.parametrize("difference", [-200_000.0, -9000.0, 9000.0, 200_000.0])
@pytest.mark.parametrize("score", [0.0, 0.5, 1.0])
def test_opponents_thousands_of_elo_away_are_no_error(difference, score):
    assert 0 <= cusum_step(0.0, score, 100, difference, 50.0) < float("inf")
