"""What-if runs: controllers' conclusions from the same facts with other settings."""

import re
from collections import Counter
from typing import Any

import pytest
from generated_run import hasty
from golden_runs import load
from replayed import replay

from flyball.app.config import BadSettings, RunSettings, flatten
from flyball.app.config.loading import changed, parse
from flyball.app.events import (
    EvaluationRequested,
    Event,
    ExplorationBoost,
    Kind,
    ModelPromoted,
    Payload,
    PlateauDetected,
    PromotionRejected,
    QualityPenaltyApplied,
    SelfplayRequested,
    TrainingRequested,
)
from flyball.app.replay.what_if import Divergence, WhatIf

KEY = "tic_tac_toe_2p"
SETTINGS = hasty().model_dump(mode="json")


@pytest.fixture(scope="module")
def run() -> list[Event[Payload]]:
    """Return the events of a run with every kind of decision."""
    return load("generated")


def divergences(run: list[Event[Payload]], *assignments: str) -> list[Divergence]:
    what_if = WhatIf(parse(assignments))
    return [one for event in run for one in what_if.feed(event)]


def test_only_changed_configurations_differ(run):
    assert replay(run).differing == 0
    assert divergences(run, "feedback.stall.velocity=4000.0") == []
    found = divergences(run, f"games.{KEY}.rows_per_training=1000")
    assert {one.envelope.subject for one in found if isinstance(one.envelope.data, TrainingRequested)} == {KEY}


@pytest.mark.parametrize(
    "assignment", ["feedback.scheduler.starvation_floor=1.0", "feedback.scheduler.waiting_seconds=0"]
)
def test_what_changes_is_about_the_same_configuration(run, assignment):
    found = divergences(run, assignment)
    assert found
    assert all(one.before.subject == one.after.subject for one in found if one.kind == "changed")


def of_a_stall(envelope):
    return (
        envelope is not None and isinstance(envelope.data, ExplorationBoost) and "gains at most" in envelope.data.reason
    )


def test_decisions_that_would_not_have_been_taken(run):
    found = divergences(run, "feedback.stall.velocity=-1000")
    boosts = [one for one in found if of_a_stall(one.before)]
    assert boosts
    assert [one.before for one in boosts] == [event.envelope for event in run if of_a_stall(event.envelope)]
    assert not any(of_a_stall(one.after) for one in found)
    assert {one.by for one in boosts} == {"FeedbackLoopController"}
    temperatures = [one for one in found if isinstance(one.envelope.data, SelfplayRequested)]
    assert all(one.before is not None and one.after is not None for one in temperatures)
    stalled = [one for one in temperatures if of_a_stall(latest_boost(run, one))]
    assert stalled
    assert all(
        one.before.data.temperature > one.after.data.temperature for one in stalled
    )  # nothing is boosted any more


def latest_boost(run: list[Event[Payload]], found: Divergence) -> Any:
    """Return the configuration's latest recorded boost; boosts for other reasons may decay later without a stall's."""
    own = [event for event in run[: found.position] if event.subject == found.envelope.subject]
    boosts = [event.envelope for event in own if isinstance(event.data, ExplorationBoost)]
    return boosts[-1] if boosts else None


def test_decisions_are_added_changed_or_missing(run):
    found = divergences(run, "feedback.quality.penalty_below=0.84", "feedback.quality.lift_at=0.9")
    kinds = Counter((type(one.envelope.data), one.kind) for one in found)
    assert kinds[QualityPenaltyApplied, "added"] > 0
    assert not kinds[ModelPromoted, "added"]
    for one in found:
        cause = run[one.position - 1]
        assert one.time == cause.recordedtime
        assert (one.before is None) == (one.kind == "added")
        assert (one.after is None) == (one.kind == "missing")
    found = divergences(run, "feedback.stall.boost=2.0")
    (first, *_) = [one for one in found if one.kind == "changed"]
    before, after = first.before, first.after
    assert isinstance(before.data, ExplorationBoost)
    assert (before.data.multiplier, after.data.multiplier) == (1.5, 2.0)
    assert before.id == after.id


def test_consequences_of_changes_are_seen_or_gone(run):
    found = divergences(run, "feedback.lifecycle.elo0=900", "feedback.lifecycle.elo1=1000")
    later = {event.id for event in run if isinstance(event.data, ModelPromoted) and event.data.step > 0}
    assert later <= {one.before.id for one in found if one.before and isinstance(one.before.data, ModelPromoted)}
    assert not [one for one in found if one.after and isinstance(one.after.data, ModelPromoted) and one.after.data.step]
    found = divergences(run, "feedback.lifecycle.max_games=2")
    kinds = Counter((type(one.envelope.data), one.kind) for one in found)
    replaced = sum(one.kind == "replaced" and isinstance(one.after.data, PromotionRejected) for one in found)
    assert kinds[PromotionRejected, "added"] + replaced > 0
    assert kinds[EvaluationRequested, "missing"] + kinds[EvaluationRequested, "changed"] > 0
    found = divergences(run, "feedback.stall.velocity=-1000")
    before = Counter(type(one.before.data) for one in found if one.before and one.before.data.kind is Kind.FACT)
    after = Counter(type(one.after.data) for one in found if one.after and one.after.data.kind is Kind.FACT)
    assert (before - after).keys() == {PlateauDetected}
    assert before >= after


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("feedback.stal.velocity=3", r"Did you mean feedback\.stall\.velocity"),
        ("feedback.stall.velocity", "has no value"),
        ("velocity=3", "Unknown setting 'velocity'."),
        ("deployment.node=x", "does not decide anything"),
        ("profile=full", "does not decide anything"),
        ("configs=['hex7_2p']", "does not decide anything"),
        ("games.hex7_2p.row_per_training=3", r"Did you mean games\.hex7_2p\.rows_per_training"),
    ],
)
def test_what_cannot_be_set_is_refused(assignment, said):
    with pytest.raises(BadSettings) as refused:
        parse([assignment])
    assert re.search(said, str(refused.value))


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("games.hearts_4p.rows_per_training=3", "no configuration 'hearts_4p'"),
        ("feedback.stall.boost=0.5", "feedback.stall.boost: Input"),
        ("seed=many", "seed: Input"),
        ("feedback.quality.lift_at=0.1", "must lie above"),
        (f"games.{KEY}.rows_per_training=0", "greater than or equal to 1"),
    ],
)
def test_values_that_cannot_be_used_are_refused(assignment, said):
    with pytest.raises(BadSettings, match=said):
        changed(hasty(), parse([assignment]))


@pytest.mark.parametrize(
    ("assignment", "value"),
    [
        ("feedback.stall.velocity=3", 3.0),
        ("min_quality = 0.5", 0.5),
        ("feedback.watchdog.severity_elo=[1, 2, 3, 4]", [1.0, 2.0, 3.0, 4.0]),
        ("feedback.lifecycle.rollback_at=critical", "critical"),
        ('selfplay_workers=["a@b"]', ["a@b"]),
    ],
)
def test_settings_are_changed_where_they_are(assignment, value):
    after: Any = changed(hasty(), parse([assignment]))
    assert RunSettings.model_validate(after)
    assert flatten(after) == flatten(SETTINGS) | {assignment.partition("=")[0].strip(): value}


def test_a_configuration_is_changed_alone():
    after: Any = changed(hasty(), parse([f"games.{KEY}.epochs=9", f"games.{KEY}.max_moves=7"]))
    for before, config in zip(SETTINGS["configs"], after["configs"], strict=True):
        if config["key"] == KEY:
            assert (config["epochs"], config["max_moves"]) == (9, 7)
        else:
            assert config == before
