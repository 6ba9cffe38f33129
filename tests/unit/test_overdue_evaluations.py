"""EVALUATION_OVERDUE: emitted once per gap, and shown with a remedy."""

from datetime import timedelta

import pytest
from driving import HOUR, KEY, NEW, Driven, distributed, rated, run_settings, scored, trained

from flyball.app.api.following import is_shown
from flyball.app.controllers import FeedbackLoopController
from flyball.app.events import (
    ClockTick,
    DistributionFailed,
    EvaluationFailed,
    EvaluationOverdue,
    ExplorationBoost,
    Payload,
    PlateauDetected,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from flyball.app.events.envelope import EPOCH
from flyball.app.status.status import Board
from flyball.app.status.summary import summarise

TICK = ClockTick(period_seconds=10)


@pytest.fixture
def loop() -> Driven:
    return Driven(FeedbackLoopController, run_settings(stall={"check_seconds": 600}))


def tick(loop: Driven, hours: float, start: float = 0.0) -> list[Payload]:
    count = round(hours * 6)
    return [said for n in range(1, count + 1) for said in loop.feed(TICK, key=None, at=start * HOUR + 600 * n)]


def overdue(said: list[Payload]) -> list[EvaluationOverdue]:
    return [one for one in said if isinstance(one, EvaluationOverdue)]


def test_evaluations_that_stop_are_said_once_after_the_window(loop):
    for hour in range(4):
        loop.feed(rated(100.0 * hour), at=hour * HOUR)
        tick(loop, 1.0, start=hour)
    assert not overdue(tick(loop, 4.9, start=4))
    (found,) = overdue(tick(loop, 20.0, start=8.9))
    assert found.hours == pytest.approx(6.0, abs=0.2)
    assert (found.model, found.attempts) == (None, 0)


def test_overdue_follows_and_names_what_was_asked(loop):
    loop.feed(trained(), EvaluationFailed(request_id="e", purpose="rating", model=NEW, error="no"), at=1)
    (found,) = overdue(tick(loop, 7.0))
    assert (found.model, found.attempts) == (NEW, 2)


def test_overdue_again_only_after_an_evaluation(loop):
    assert overdue(tick(loop, 7.0))
    loop.feed(rated(), at=7 * HOUR)
    assert not overdue(tick(loop, 5.9, start=7))
    assert overdue(tick(loop, 1.0, start=12.9))


def test_time_in_which_the_run_was_off_is_not_overdue(loop):
    tick(loop, 3.0)
    assert not overdue(tick(loop, 2.9, start=24))
    assert overdue(tick(loop, 1.0, start=26.9))


def test_overdue_evaluations_are_no_plateau(loop):
    """Flat ratings are no evidence about the time after them."""
    said = []
    for n in range(12):
        said += loop.feed(rated(0.0, stderr=4.0), at=2400 * n)
        said += tick(loop, 2 / 3, start=2 * n / 3)
    assert any(isinstance(one, PlateauDetected) for one in said)
    later = tick(loop, 30.0, start=8)
    first = later.index(overdue(later)[0])
    assert not any(isinstance(one, PlateauDetected) for one in later[first:])
    boosts = [one.multiplier for one in later[first:] if isinstance(one, ExplorationBoost)]
    assert boosts[-1] == 1.0, "the boost decays"


def test_overdue_follows_from_the_last_evaluation(loop):
    loop.feed(rated(), at=1)
    last = loop.events[-1].id
    envelopes = [one for n in range(60) for one in loop.envelopes(TICK, key=None, at=600 * n)]
    assert [one.causationid for one in envelopes if isinstance(one.data, EvaluationOverdue)] == [last]


OVERDUE = EvaluationOverdue(hours=6.1, model=NEW, attempts=2)
PAUSED = TrainingIntensityChanged(intensity="paused", previous="normal", quality_score=0.42)
POOR = scored(0.2).model_copy(update={"components": {"diversity": 0.1, "originality": 0.02}})
RESUMED = TrainingIntensityChanged(intensity="reduced", previous="paused", quality_score=0.5)
LOST = DistributionFailed(
    model=NEW, step=1, node="laptop", attempt=2, retry_seconds=60, damaged=False, readable=None, error="Restore it."
)
BLOCKED = TrainingBlockedByQuality(reason="3 of 16 games differ from the rules")


@pytest.mark.parametrize(
    ("payloads", "said"),
    [
        ([], None),
        ([OVERDUE], ["6.1 h", "bbbbbbbb was asked for 2 times", "flyball tail EVALUATION_FAILED"]),
        ([EvaluationOverdue(hours=6.1, model=None, attempts=0)], ["6.1 h", "no training", "flyball tail"]),
        ([OVERDUE, rated()], None),
        ([PAUSED, OVERDUE], ["paused", "0.42", "below 0.5", "feedback.intensity.reduced", "min_quality"]),
        ([POOR, PAUSED], ["above all by originality 0.02"]),
        ([PAUSED, RESUMED], None),
        ([PAUSED, BLOCKED], ["blocked", "3 of 16 games", "flyball emit TRAINING_UNBLOCKED", KEY]),
        ([LOST], ["bbbbbbbb cannot be distributed (attempt 2): Restore it."]),
        ([LOST, distributed(NEW)], None),
        ([BLOCKED, TrainingUnblocked(reason="by hand")], None),
    ],
)
def test_status_says_what_is_waited_for_and_what_to_do(payloads, said):
    driven = Driven(FeedbackLoopController, run_settings(stall={"check_seconds": 600}))
    driven.feed(*payloads)
    board = Board()
    board.feed(driven.events)
    (config,) = board.status(EPOCH + timedelta(hours=1), presence=None, running=True).configs
    if said is None:
        assert config.waiting_for is None
    else:
        assert all(part in config.waiting_for for part in said)


def test_up_says_that_training_pauses_and_goes_on():
    faster = TrainingIntensityChanged(intensity="hot_path", previous="normal", quality_score=0.95)
    assert [is_shown(one) for one in (PAUSED, RESUMED, faster)] == [True, True, False]
    assert summarise(PAUSED) == (
        "normal → paused because data quality 0.42 is below feedback.intensity.reduced. What to do: flyball status"
    )
    assert summarise(faster) == "normal → hot_path because data quality 0.95 is at least feedback.intensity.hot_path"
