"""Values that controllers' rules watch, their thresholds, and how near a rule is to acting."""

from datetime import timedelta
from typing import Any

import pytest
from driving import KEY, NEED, NEW, OLD, Driven, gated, match, promoted, rated, run_settings, scored, trained

from flyball.app.controllers import (
    CurriculumIntegration,
    EvaluationFeedbackHandler,
    FeedbackLoopController,
    GauntletFeedbackController,
    LossWatch,
    ModelLifecycleCoordinator,
    ModelPerformanceWatchdog,
    TrainingTrigger,
)
from flyball.app.controllers.controller import Watched
from flyball.app.core import HEURISTIC
from flyball.app.events import ClockTick, HyperparameterUpdated, PromotionRejected, TrainingFailed
from flyball.app.events.envelope import EPOCH
from flyball.app.status.watched import amount, bar, watched_text

NOW, SOON = EPOCH + timedelta(days=1), "decides in about 3 min"
HALF = "[#####.....] gain: 1 (boost once it rises to 2"


def watched(driven: Driven) -> dict[tuple[str, str], Watched]:
    """Return what a driven controller watches, by what it is and what it does."""
    (controller,) = (reducer for reducer in driven.fold.reducers if reducer.name == driven.name)
    rules = controller.watches(driven.fold.rows(driven.name), driven.fold.states, KEY)
    return {(rule.what, rule.effect): rule for rule in rules}


def rule(value: float | None, threshold: float, acts: str, unit: str = "", **more: Any) -> Watched:
    return Watched("gain", value, threshold, acts, "boost", unit=unit, **more)


@pytest.mark.parametrize(
    ("value", "threshold", "acts", "progress"),
    [
        *(
            (5.0, 10.0, "above", 0.5),
            (10.0, 10.0, "above", 1.0),
            (12.0, 10.0, "above", 1.0),
            (-3.0, 10.0, "above", 0.0),
        ),
        *((60.0, 30.0, "below", 0.5), (30.0, 30.0, "below", 1.0), (-9.0, 30.0, "below", 1.0)),
        *((-5.0, -10.0, "below", 0.5), (5.0, -10.0, "below", 0.0), (-11.0, -10.0, "below", 1.0)),
    ],
)
def test_progress_is_how_near_the_rule_is_to_acting(value, threshold, acts, progress):
    assert rule(value, threshold, acts).progress == progress


@pytest.mark.parametrize(
    ("shown", "text"),
    [
        (rule(12_345, 8192, "above", "rows"), "[##########] gain: 12,345 rows (boost once it rises to 8,192 rows)"),
        (rule(0.35, 0.7, "above", "%"), "[#####.....] gain: 35% (boost once it rises to 70%)"),
        (rule(None, 30, "below", "Elo"), "[----------] gain: - (boost once it falls to +30.0 Elo)"),
        (
            rule(1, 2, "above", setting="a.b", waits="1 game"),
            f"{HALF}, a.b); 1 game",
        ),
        (
            rule(1, 2, "above", until=NOW + timedelta(minutes=3)),
            f"{HALF}); {SOON}",
        ),
        (
            rule(1, 2, "above", waits="w", until=NOW + timedelta(minutes=3)),
            f"{HALF}); w, {SOON}",
        ),
        (rule(1, 2, "above", until=NOW - timedelta(minutes=3)), f"{HALF})"),
    ],
)
def test_text_names_value_threshold_effect_and_setting(shown, text):
    assert f"{bar(shown, 10)} {watched_text(shown, NOW)}" == text
    assert amount(shown.threshold, shown) in text


def test_stall_watches_the_greatest_likely_gain_in_a_window():
    """Ratings a minute apart, so that a window has twenty minutes. 60 Elo in it are too many for a stall."""
    loop = Driven(FeedbackLoopController, run_settings(stall={"check_seconds": 600}))
    for minute in range(30):
        loop.feed(rated(3.0 * minute, stderr=2.0), at=60 * minute)
    gain = watched(loop)["greatest likely gain in a window of 20 min", "exploration x 1.5"]
    assert gain.value == pytest.approx(60, abs=15)
    assert gain.value >= 60, "an upper bound"
    assert gain.threshold == pytest.approx(30)
    assert gain.progress == pytest.approx(30 / gain.value)


def test_quality_is_watched_for_the_opposite_once_a_rule_acted():
    loop = Driven(FeedbackLoopController)
    loop.feed(scored(0.9))
    before = watched(loop)
    assert before["quality of its data", "self-play rate x 0.5"].progress == pytest.approx(0.3 / 0.9)
    assert before["quality of its data", "training pauses"].threshold == 0.5
    for second in range(20):
        loop.feed(scored(0.0), at=600 * second)
    after = watched(loop)
    assert after["quality of its data", "penalty lifted"].threshold == 0.4
    assert after["quality of its data", "training goes on"].acts == "above"


def test_learning_rate_watches_mean_gain_and_rejections():
    handler = Driven(EvaluationFeedbackHandler, run_settings(learning_rate={"confidence": 0.0, "maximum": 1.0}))
    few = watched(handler)["mean gain of the last 5 ratings", "learning rate x 0.8"]
    assert (few.value, few.waits) == (None, "0 of 6 ratings")
    for number in range(6):
        handler.feed(rated(100.0 - 5.0 * number), at=number)
    handler.feed(PromotionRejected(model=NEW, current=OLD, step=1, evidence=promoted().evidence), at=9)
    rules = watched(handler)
    lowers = rules["mean gain of the last 5 ratings", "learning rate x 0.8"]
    assert (lowers.value, lowers.threshold, lowers.progress) == (pytest.approx(-5), -10, pytest.approx(0.5))
    assert rules["consecutive rejections", "learning rate x 0.5"].progress == pytest.approx(1 / 3)


def minutes(moment: Any) -> float:
    """Return a time in minutes since the beginning."""
    return (moment - EPOCH).total_seconds() / 60


def test_learning_rate_waits_for_its_cooldown():
    """Ratings come every 10 minutes: five more after a change take 50, and the cooldown of an hour ends sooner then."""
    handler = Driven(EvaluationFeedbackHandler, run_settings(learning_rate={"maximum": 1.0}))
    names = [("mean gain of the last 5 ratings", f"learning rate x {factor}") for factor in (1.1, 0.8)]
    for number in range(7):
        handler.feed(rated(0.0), at=600 * number)
    assert [watched(handler)[name][-2:] for name in names] == [("", None)] * 2
    handler.feed(TrainingFailed(request_id="r", reason="diverged", error="e"), at=3600)
    for name in names:
        rule = watched(handler)[name]
        assert rule.waits == "cooldown, 0 of 5 ratings since its last change"
        assert minutes(rule.until) == 110
    handler.feed(rated(0.0), at=4200)
    assert watched(handler)[names[0]].waits == "cooldown, 1 of 5 ratings since its last change"
    handler.feed(ClockTick(period_seconds=10), key=None, at=3600 + 3601)
    assert [watched(handler)[name][-2:] for name in names] == [("", None)] * 2


def test_operators_learning_rate_holds_back_rejections_too():
    handler = Driven(EvaluationFeedbackHandler)
    rate = HyperparameterUpdated(parameter="learning_rate", value=5e-4, previous=1e-3, reason="r")
    handler.feed(rate, at=60)
    rule = watched(handler)["consecutive rejections", "learning rate x 0.5"]
    assert rule.waits == "cooldown, 0 of 5 ratings since its last change"
    assert minutes(rule.until) == 61


def test_few_ratings_are_awaited_at_their_rate():
    handler = Driven(EvaluationFeedbackHandler)
    for number in range(4):
        handler.feed(rated(0.0), at=120 * number)
    rule = watched(handler)["mean gain of the last 5 ratings", "learning rate x 0.8"]
    assert (rule.waits, minutes(rule.until)) == ("4 of 6 ratings", 10)


def test_gauntlet_waits_for_its_cooldown():
    gauntlet = Driven(GauntletFeedbackController, run_settings(gauntlet={"least_trainings": 0}))
    assert gauntlet.feed(rated(0.0, match(0.2)), at=60)
    gauntlet.settle()
    for rule in watched(gauntlet).values():
        assert rule.waits == "cooldown, 0 of 5 ratings since its last change"
        assert minutes(rule.until) == 61


def test_gauntlet_watches_the_scores_against_bots():
    gauntlet = Driven(GauntletFeedbackController, run_settings(gauntlet={"least_trainings": 3}))
    gauntlet.feed(rated(0.0, match(0.9), match(0.4, opponent=HEURISTIC), step=5))
    rules = {name: found for (name, _), found in watched(gauntlet).items()}
    assert rules["score against the heuristic"].value == pytest.approx(0.4)
    assert rules["score against the heuristic"].progress == pytest.approx(0.5)
    assert rules["score against the random bot"].value == pytest.approx(0.9)
    assert rules["score against the random bot"].waits == "0 of 3 trainings"


def test_curriculum_watches_plateau_and_due_change():
    curriculum = Driven(CurriculumIntegration)
    rules = {name: found for (name, _), found in watched(curriculum).items()}
    assert rules["weight that its gain alone would bring"].value is None
    assert rules["weight that its gain alone would bring"].waits == "0 of 2 stalls"
    assert rules["change of its weight that is due"].progress == 0.0


def test_watchdog_watches_evidence_against_the_champion():
    watchdog = Driven(ModelPerformanceWatchdog)
    assert [found.value for found in watched(watchdog).values()] == [None]
    watchdog.feed(promoted(OLD, step=0), rated(model=OLD, step=0), at=1)
    (found,) = watched(watchdog).values()
    assert (found.value, found.threshold) == (0.0, watchdog.settings.feedback.watchdog.threshold)
    watchdog.feed(rated(0.0, match(0.82), model=OLD, step=0), at=2)
    assert next(iter(watched(watchdog).values())).value > 0.1


def test_lifecycle_watches_the_evidence_of_the_gate():
    """At a threshold of ln 19, the sum of errors of both kinds is that of Wald's test (5% each)."""
    lifecycle = Driven(ModelLifecycleCoordinator)
    lifecycle.settle()
    lifecycle.feed(trained(NEW, OLD, 1))
    assert {found.waits for found in watched(lifecycle).values()} == {"0 gate games"}
    lifecycle.feed(gated(4, 4, 4))
    rules = {effect: found for (_, effect), found in watched(lifecycle).items()}
    assert rules["promoted"].threshold == pytest.approx(2.944, abs=1e-3)
    assert rules["rejected"].threshold == pytest.approx(-2.944, abs=1e-3)
    assert 0 < rules["promoted"].value < 2.944
    assert rules["promoted"].waits == "12 gate games"


def test_trigger_watches_fresh_rows():
    trigger = Driven(TrainingTrigger)
    trigger.settle()
    trigger.feed(scored(1.0, rows=1000))
    (rows,) = watched(trigger).values()
    assert (rows.threshold, rows.unit, rows.waits) == (NEED, "rows", "")
    assert rows.value == 1000


def test_controller_without_watches_shows_nothing():
    assert watched(Driven(LossWatch)) == {}
