"""A status says what each next training waits for, by the trigger's own rules."""

from typing import Any

import pytest
from driving import KEY, NEED, NEW, OLD, distributed, promoted, run_settings, scored, trained
from recorded_run import Recording

from flyball.app.config import RunSettings
from flyball.app.core import ModelHash
from flyball.app.events import (
    CurriculumRebalanced,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    RunConfigured,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
)
from flyball.app.status.next_training import TRAININGS_READ
from flyball.app.status.status import Board
from flyball.app.status.tables import next_trainings

SETTINGS = run_settings(trigger={"cooldown_seconds": 30.0})
READY = ("selfplay_worker", "training", "evaluation", "distribution")
SECOND = 1_000_000
PAUSED = TrainingIntensityChanged(intensity="paused", previous="normal", quality_score=0.25)


class Waiting:
    """A board, fed with events a second apart."""

    def __init__(self, settings: RunSettings = SETTINGS) -> None:
        self.run, self.board, self.settings = Recording([]), Board(), settings
        self.feed(RunConfigured(run_id="r", settings=settings.model_dump(mode="json")), subject=None)

    def feed(self, *payloads: Payload, subject: str | None = KEY) -> None:
        cause = self.run.events[0] if self.run.events else None
        self.board.feed([self.run.add(data, cause, subject) for data in payloads])

    def text(self, after_seconds: float = 0.0, ready: tuple[str, ...] = READY) -> str | None:
        now_us = self.run.events[-1].recorded_us + round(after_seconds * SECOND)
        return self.board.trainings.waits_for(KEY, self.settings, ready, now_us)


def shard(number: int, rows: int, score: float = 0.9) -> QualityScoreUpdated:
    return scored(score, rows=rows, request=f"q{number}", shard=f"{number:064x}")


def requested() -> TrainingRequested:
    return TrainingRequested(base_model=ModelHash(OLD), shards=(), step=0, seed=1, learning_rate=1e-3, epochs=1)


@pytest.fixture
def waiting() -> Waiting:
    """Return a run whose first model has just been distributed."""
    run = Waiting()
    run.feed(trained(OLD, None, 0), promoted(OLD, step=0), distributed(OLD))
    return run


def test_rows_are_counted_without_an_estimate_at_first(waiting: Waiting) -> None:
    waiting.feed(shard(1, 100))
    assert waiting.text() == f"rows 100 of {NEED:,}"


def test_estimate_is_of_the_rate_of_the_last_shards(waiting: Waiting) -> None:
    waiting.feed(*(shard(number, NEED // 20) for number in range(1, 11)))
    missing = NEED - 10 * (NEED // 20)
    assert waiting.text() == f"rows {NEED - missing:,} of {NEED:,}, about {missing / (NEED // 20):.0f} s"


def test_estimate_is_left_out_where_rows_stop_or_take_days(waiting: Waiting) -> None:
    waiting.feed(*(shard(number, 1) for number in range(1, 11)))
    assert waiting.text() == f"rows 10 of {NEED:,}, about {(NEED - 10) / 3600:.0f} h"
    assert waiting.text(after_seconds=3.1) == f"rows 10 of {NEED:,}"
    for number in range(11, 41):
        waiting.run.events += [waiting.run.events[-1]] * 600  # ten minutes between shards
        waiting.feed(shard(number, 1))
    assert waiting.text() == f"rows 40 of {NEED:,}", "it would take weeks"


def test_poor_and_stale_rows_do_not_count(waiting: Waiting) -> None:
    waiting.feed(shard(1, 100), shard(2, 100, score=0.1), scored(model=NEW, rows=100, shard="e" * 64))
    assert waiting.text() == f"rows 100 of {NEED:,}"


def failed(waiting: Waiting) -> None:
    """Request a training, which fails."""
    waiting.feed(requested())
    request = waiting.board.trainings.states[KEY].lineage.training
    assert request is not None
    waiting.feed(TrainingFailed(request_id=request, reason="error", error="e"))


def test_enough_rows_wait_for_the_cooldown(waiting: Waiting) -> None:
    failed(waiting)
    waiting.feed(shard(1, NEED))
    assert waiting.text() == f"rows {NEED:,} of {NEED:,}, pause between trainings for 28 s more"
    assert waiting.text(after_seconds=28) == f"rows {NEED:,} of {NEED:,}"


def test_consecutive_failures_bring_a_pause(waiting: Waiting) -> None:
    failed(waiting)
    assert waiting.text() == f"rows 0 of {NEED:,}"
    failed(waiting)
    seconds = SETTINGS.feedback.trigger.pause_after(2)
    assert waiting.text() == f"pause after 2 consecutive failures, {seconds:.0f} s more"
    assert waiting.text(after_seconds=seconds) == f"rows 0 of {NEED:,}"


@pytest.mark.parametrize(
    ("events", "ready", "text"),
    [
        ((requested(),), READY, "training under way for 0 s"),
        ((requested(),), ("evaluation",), "training under way for 0 s, but no training daemon is ready"),
        ((requested(),), (), "training under way for 0 s"),
        (
            (TrainingBlockedByQuality(reason="1 of 8 games differ"), shard(1, 9)),
            READY,
            "blocked because 1 of 8 games differ",
        ),
        (
            (shard(1, 9, score=0.25), PAUSED),
            READY,
            "paused because data quality 0.25 is below 0.5",
        ),
        ((promoted(NEW, step=1),), READY, "distribution of bbbbbbbb under way"),
        ((shard(1, 9),), ("training",), f"rows 9 of {NEED:,}, but no self-play worker is ready"),
        (
            (CurriculumRebalanced(weights={KEY: 0.2}, plateaued=(KEY,), reason="r"), shard(1, 9)),
            READY,
            f"rows 9 of {NEED:,}; plateaued, so it plays at the lowest weight",
        ),
    ],
)
def test_every_pause_has_its_reason(
    waiting: Waiting, events: tuple[Payload, ...], ready: tuple[str, ...], text: str
) -> None:
    for event in events:
        waiting.feed(event, subject=None if isinstance(event, CurriculumRebalanced) else KEY)
    assert waiting.text(ready=ready) == text


def test_gate_is_awaited_until_the_verdict(waiting: Waiting) -> None:
    waiting.feed(requested())
    request = waiting.board.trainings.states[KEY].lineage.training
    waiting.feed(trained(NEW, OLD, 1).replace(request_id=request))
    assert waiting.text() == "gate of bbbbbbbb under way"
    rejected = PromotionRejected(model=ModelHash(NEW), current=ModelHash(OLD), step=1, evidence=promoted().evidence)
    waiting.feed(rejected)
    assert waiting.text() == f"rows 0 of {NEED:,}"


def test_user_defined_trigger_is_not_guessed() -> None:
    own: dict[str, Any] = {"controllers": {"mine": {"use": "own:Mine", "takes_over": ["training_start"]}}}
    run = Waiting(RunSettings.model_validate(SETTINGS.model_dump() | own))
    assert run.text() is None


def test_only_a_running_run_waits(waiting: Waiting) -> None:
    now = waiting.run.events[-1].recordedtime
    (line,) = next_trainings(waiting.board.status(now, None, running=True))
    assert line.plain == f"{KEY}  next training: rows 0 of {NEED:,}"
    assert next_trainings(waiting.board.status(now, None, running=False)) == []


@pytest.mark.parametrize(("most", "shown"), [(None, 3), (3, 3), (2, 2), (1, 1), (0, 0), (-5, 0)])
def test_lines_are_cut_to_the_room(most: int | None, shown: int) -> None:
    run = Waiting(run_settings(KEY, "connect_four_2p", "hex7_2p"))
    lines = next_trainings(run.board.status(run.run.events[-1].recordedtime, None, running=True), most)
    assert len(lines) == shown
    assert any("next trainings: flyball status" in line.plain for line in lines) == (most in (1, 2))


def test_board_goes_on_after_a_save(waiting: Waiting) -> None:
    waiting.feed(shard(1, 100))
    again = Board.from_json(waiting.board.to_json())
    assert again.trainings == waiting.board.trainings
    assert {type(event.data) for event in waiting.run.events} <= TRAININGS_READ
