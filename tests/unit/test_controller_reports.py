"""Reports of controllers, folded from generated runs."""

from collections import Counter
from itertools import pairwise

import pytest
from driving import KEY
from generated_run import generated, hasty, laptop

from flyball.app.config import BadSettings, RunSettings
from flyball.app.config.controllers import ControllerSettings
from flyball.app.core import Name
from flyball.app.dashboard.model import RunModel
from flyball.app.events import (
    Event,
    ModelPromoted,
    NodeQuarantined,
    NodeReleased,
    Payload,
    PlateauDetected,
    QualityScoreUpdated,
    follow,
)
from flyball.app.replay.controller_reports import LISTED, ControllerReports, Decision

EVENTS = tuple(generated(4000, seed=2))
ONLY = {
    "FeedbackLoopController": ("EXPLORATION_BOOST", "TRAINING_INTENSITY_CHANGED", "PLATEAU_DETECTED"),
    "CurriculumIntegration": ("CURRICULUM_REBALANCED",),
    "ModelLifecycleCoordinator": ("MODEL_PROMOTED", "PROMOTION_REJECTED", "MODEL_ROLLED_BACK"),
    "TrainingTrigger": ("TRAINING_REQUESTED",),
    "SelfplayScheduler": ("SELFPLAY_REQUESTED",),
}
"""Events that one controller alone emits in a run without operators."""


@pytest.fixture(scope="module")
def folded() -> ControllerReports:
    reports = ControllerReports()
    for event in EVENTS:
        reports.take(event)
    return reports


def own(use: str, **options: float) -> RunSettings:
    table = ControllerSettings(use=use, takes_over=("learning_rate",), options=options)
    return RunSettings.model_validate(laptop().model_dump() | {"controllers": {"mine": table.model_dump()}})


def test_counts_are_those_of_the_journal(folded):
    recorded = Counter(
        event.data.event_name
        for event in EVENTS
        if None not in (getattr(event.data, "previous", ""), getattr(event.data, "base_model", ""))
    )
    counts = {report.name: report.counts for report in folded.reports()}
    found = {by: {name: counts[by][name] for name in names} for by, names in ONLY.items()}
    assert found == {by: {name: recorded[name] for name in names} for by, names in ONLY.items()}
    assert recorded["MODEL_PROMOTED"] > 10


def test_decisions_are_the_latest_of_the_asked_configuration(folded):
    (report,) = (one for one in folded.reports((KEY,)) if one.name == "ModelLifecycleCoordinator")
    judged = [event for event in EVENTS if event.subject == KEY and event.data.event_name in ONLY[report.name]]
    assert [decision.event.id for decision in report.decisions] == [event.id for event in reversed(judged)][:LISTED]
    assert set(report.watched) == {KEY}
    (curriculum,) = (one for one in folded.reports((KEY,)) if one.name == "CurriculumIntegration")
    assert all(decision.event.subject == "" for decision in curriculum.decisions), "weights are about the run"
    assert all(decision.elo_before is None for decision in curriculum.decisions)


def test_promotion_has_the_ratings_of_both_champions(folded):
    (report,) = (one for one in folded.reports((KEY,)) if one.name == "ModelLifecycleCoordinator")
    promotions = [one for one in reversed(report.decisions) if isinstance(one.event.data, ModelPromoted)]
    for before, decision in pairwise(promotions):
        assert decision.elo_before == before.event.data.elo
        assert decision.elo_after == decision.event.data.elo
    assert len(promotions) >= 3


def test_voided_decision_counts_for_nobody(folded):
    promoted = (event for event in EVENTS if event.data.event_name == "MODEL_PROMOTED" and event.subject == KEY)
    voided = next(event for event in promoted if event.data.previous is not None)
    reports = ControllerReports(voided={voided.sequence})
    for event in EVENTS:
        reports.take(event)
    counts = [
        next(one.counts["MODEL_PROMOTED"] for one in found.reports() if one.name == "ModelLifecycleCoordinator")
        for found in (folded, reports)
    ]
    assert counts[1] == counts[0] - 1


def _begins(decision: Decision) -> bool:
    return isinstance(decision.event.data, NodeQuarantined)


def test_quarantine_is_listed_where_its_games_were_wrong():
    """So are a longer one and its end, whatever brought these; the worker's next quarantine is about other games."""
    reports, last = ControllerReports(), EVENTS[-1]
    for event in EVENTS:
        if not event.data.event_name.startswith("NODE_"):
            reports.take(event)

    def decide(number: int, data: Payload, cause: Event) -> None:
        envelope = follow(data, cause.cause, by="FeedbackLoopController", index=number)
        reports.take(Event(envelope, last.sequence + number, last.recorded_us + number, "feedback@laptop"))

    def decided(key: str) -> list[str]:
        (loop,) = (one for one in reports.reports((key,)) if one.name == "FeedbackLoopController")
        names = [decision.event.data.event_name for decision in loop.decisions]
        assert loop.counts["NODE_QUARANTINED"] == names.count("NODE_QUARANTINED")
        return [name for name in names if name.startswith("NODE_")]

    inspected = [event for event in EVENTS if isinstance(event.data, QualityScoreUpdated)]
    *_, mine = (event for event in inspected if event.subject == KEY)
    *_, others = (event for event in inspected if event.subject != KEY)
    quarantined = NodeQuarantined(worker=Name("selfplay_worker@liar"), lasts_seconds=600.0, reason="wrong games")
    decide(1, quarantined, mine)
    decide(2, quarantined.replace(reason="a probe is bad"), others)
    decide(3, NodeReleased(worker=quarantined.worker, reason="good probes"), others)
    decide(4, quarantined, others)
    assert decided(KEY) == ["NODE_RELEASED", "NODE_QUARANTINED", "NODE_QUARANTINED"]
    assert decided(others.subject) == ["NODE_QUARANTINED"]
    quarantines = {
        key: [one.released for report in reports.reports((key,)) for one in report.decisions if _begins(one)]
        for key in (KEY, others.subject)
    }
    longer, begun = quarantines[KEY]
    assert (longer, begun.data.reason) == (None, "good probes")
    assert quarantines[others.subject] == [None]
    third = next(config.key for config in laptop().configs if config.key not in (KEY, others.subject))
    assert decided(third) == []


def test_stall_is_declared_only_where_its_bar_is_full():
    reports, stalls = ControllerReports(), 0
    for event in generated(5000, seed=2, settings=hasty()):
        reports.take(event)
        if isinstance(event.data, PlateauDetected):
            (loop,) = (one for one in reports.reports((event.subject,)) if one.name == "FeedbackLoopController")
            assert loop.watched[event.subject][0].progress == 1.0
            stalls += 1
    assert stalls > 0


def test_users_controller_is_reported_with_the_knobs_it_took(folded):
    before = {report.name: report.knobs for report in folded.reports()}
    settings = own("own_rules:Sets")
    reports = ControllerReports((settings,))
    for event in generated(200, seed=1, settings=settings):
        reports.take(event)
    after = {report.name: report.knobs for report in reports.reports()}
    assert before["EvaluationFeedbackHandler"] == ("learning_rate",)
    assert after["EvaluationFeedbackHandler"] == ()
    assert after["mine"] == ("learning_rate",)


def test_controller_that_cannot_show_rules_hides_no_other():
    settings = own("own_rules:WatchesWrongly")
    reports = ControllerReports((settings,))
    for event in generated(200, seed=1, settings=settings):
        reports.take(event)
    found = {report.name: report for report in reports.reports()}
    assert "ZeroDivisionError: no such value" in found["mine"].trouble
    assert not any(found["mine"].watched.values())
    assert [report.name for report in found.values() if report.trouble] == ["mine"]
    assert found["TrainingTrigger"].watched[KEY]


def test_controller_that_cannot_be_built_does_not_look_sound():
    settings = own("own_rules:Demanding", factor=2)
    reports = ControllerReports((settings,))
    for event in generated(50, seed=1, settings=settings):
        reports.take(event)
    found = {report.name: report for report in reports.reports()}
    assert "a factor of 1 or more lowers nothing" in found["mine"].trouble
    assert not any(found["mine"].watched.values())


def test_dashboard_begins_again_for_a_controller_named_later():
    model = RunModel((laptop(),))
    for event in generated(50, seed=1):
        model.take(event)
    assert not model.is_outdated
    settings = own("own_rules:Sets")
    for event in generated(1, seed=1, settings=settings):
        model.take(event)
    assert model.is_outdated
    assert not RunModel((laptop(), settings)).is_outdated


def test_controller_that_cannot_be_loaded_is_an_error():
    with pytest.raises(BadSettings, match="mine"):
        ControllerReports((own("no_such_module:Controller"),))


def test_run_without_settings_has_no_reports():
    assert ControllerReports().reports() == ()
