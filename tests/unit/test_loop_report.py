"""Reports of runs, against independent counts of their events."""

from collections import Counter

import pytest
from driving import KEY
from generated_run import generated, laptop
from msgspec.structs import replace

from flyball.app.config import RunSettings
from flyball.app.core import ModelHash, derive_id
from flyball.app.events import (
    AgentRating,
    CurriculumRebalanced,
    EloUpdated,
    EvaluationCompleted,
    Event,
    ModelPromoted,
    ModelRolledBack,
    PromotionRejected,
    TrainingBlockedByQuality,
    TrainingCompleted,
    originate,
)
from flyball.app.replay.run_report import RunReport, RunReports
from flyball.app.status.status import READS, Board

EVENTS = tuple(generated(3000, seed=2))
MIDDLE = 1500
CHANGES = (ModelPromoted, ModelRolledBack)


def folded(after: int = 0, events: tuple[Event, ...] = EVENTS) -> RunReport:
    reports = RunReports(after=after)
    for event in events:
        reports.take(event)
    return reports.report(None)


@pytest.fixture(scope="module", params=[0, MIDDLE])
def after(request) -> int:
    return request.param


def test_counts_are_those_of_the_covered_events(after):
    report, covered = folded(after), EVENTS[after:]
    counts = Counter((event.subject, event.data.event_name) for event in covered)
    initial = {"TRAINING_COMPLETED": "parent", "MODEL_PROMOTED": "previous"}
    for event in covered:  # the initial model is neither trained nor promoted over another
        if (field := initial.get(event.data.event_name)) and getattr(event.data, field) is None:
            counts[event.subject, event.data.event_name] -= 1
    for config in report.configs:
        names = ("TRAINING_COMPLETED", "MODEL_PROMOTED", "PROMOTION_REJECTED", "MODEL_ROLLED_BACK", "PLATEAU_DETECTED")
        found = (config.trainings, config.promotions, config.rejections, config.rollbacks, config.stalls)
        assert found == tuple(counts[config.key, name] for name in names)
    assert (report.events, report.first, report.last) == (
        len(covered),
        covered[0].recordedtime,
        covered[-1].recordedtime,
    )
    promoted = sum(config.promotions for config in report.configs)
    assert report.decided["ModelLifecycleCoordinator"]["MODEL_PROMOTED"] == promoted > 0
    assert not any(name.endswith("_REQUESTED") for counts in report.decided.values() for name in counts)


def test_worker_time_is_the_sum_of_the_covered_jobs_seconds(after):
    report = folded(after)
    seconds = Counter()
    for event in EVENTS[after:]:
        seconds[event.subject] += getattr(event.data, "seconds", None) or 0.0
    for config in report.configs:
        assert config.worker_time.total == pytest.approx(seconds[config.key])
    assert report.worker_seconds == pytest.approx(sum(seconds[config.key] for config in report.configs))
    assert 0 < report.evaluation_share < 1


def test_asked_is_the_share_of_weights_at_each_second_of_work(after):
    report = folded(after)
    weights, asked, worked = {config.key: 1.0 for config in report.configs}, Counter(), 0.0
    for event in EVENTS:
        if isinstance(event.data, CurriculumRebalanced):
            weights |= event.data.weights
        elif event.sequence > after and (seconds := getattr(event.data, "seconds", None)):
            worked += seconds
            asked.update({key: seconds * weight / sum(weights.values()) for key, weight in weights.items()})
    assert weights != dict.fromkeys(weights, 1.0)
    for config in report.configs:
        assert config.asked == pytest.approx(asked[config.key] / worked)


def test_time_far_from_what_was_asked_is_explained():
    report = folded()
    first, *others = report.configs
    shares = {config.key: config.worker_time.total / report.worker_seconds for config in report.configs}

    def explained(more: float, **changes: bool) -> str:
        """Return the sentence where the first configuration was asked this much more, and the others as they had."""
        asked = replace(first, asked=shares[first.key] + more)
        return replace(
            report, configs=(asked, *(replace(one, asked=shares[one.key]) for one in others)), **changes
        ).apart

    assert explained(0.04) == explained(-0.04) == explained(0.2, advises=True) == ""
    sentence = explained(0.2)
    had = f"{shares[first.key]:.0%} for {shares[first.key] + 0.2:.0%} asked"
    assert sentence.startswith(f"Of the workers' time {first.key} had {had}, because a configuration wants few games")
    assert others[0].key not in sentence


def test_ratings_are_the_champions_before_and_at_the_end(after):
    def ratings(events: tuple[Event, ...]) -> list[tuple[float, float]]:
        """Return the ratings of the model that is current after some events."""
        data = [event.data for event in events if event.subject == KEY]
        current = [getattr(item, "to_model", None) or item.model for item in data if isinstance(item, CHANGES)][-1:]
        rated = list[tuple[str, float, float]]()
        for item in data:
            if isinstance(item, ModelPromoted):
                rated.append((item.model, item.evidence.elo, item.evidence.elo_stderr))
            elif isinstance(item, EvaluationCompleted) and item.purpose == "rating":
                rated.append((item.model, item.elo, item.elo_stderr))
        return [(elo, stderr) for model, elo, stderr in rated if model in current]

    # Errors that differ, because in the generated run all are alike.
    events = tuple(
        replace(event, envelope=replace(event.envelope, data=event.data.replace(elo_stderr=float(event.sequence))))
        if isinstance(event.data, EvaluationCompleted)
        else event
        for event in EVENTS
    )
    first = next(event.data for event in events if event.subject == KEY and isinstance(event.data, EvaluationCompleted))
    first = (first.elo, first.elo_stderr)
    (config,) = (config for config in folded(after, events).configs if config.key == KEY)
    before = ratings(events[:after])[-1] if after else first
    assert (config.elo_before, config.elo_before_stderr) == before
    assert (config.elo, config.elo_stderr) == ratings(events)[-1]


def test_status_and_report_show_the_same_ratings():
    """Also while a candidate was rated last, and once another evaluation has changed the champion's rating."""
    board, reports, differ = Board(), RunReports(), 0
    for event in (*EVENTS, rerated(EVENTS)):
        reports.take(event)
        if type(event.data) in READS:
            board.feed((event,))
        if event.sequence % 250 and event.sequence <= len(EVENTS):
            continue
        status = board.status(event.recordedtime, None, running=False)
        shown = {config.key: (config.elo, config.elo_stderr) for config in reports.report(status).configs}
        assert {config.key: (config.elo, config.elo_stderr) for config in status.configs} == shown
        differ += sum(board.configs[key].elo != elo for key, (elo, _) in shown.items())
    assert differ > 0
    assert shown[KEY] == (77.0, 7.0)


def rerated(events: tuple[Event, ...]) -> Event:
    """Return the event that changes the rating of the model that is current after other events."""
    last, promoted = events[-1], [one.data for one in events if one.subject == KEY and isinstance(one.data, CHANGES)]
    ratings = (AgentRating(agent=promoted[-1].model, elo=77.0, elo_stderr=7.0, games=100, bound=None),)
    envelope = originate(
        EloUpdated(ratings=ratings), event_id=derive_id("r", "r", 0), time=last.recordedtime, subject=KEY
    )
    return Event(envelope, last.sequence + 1, last.recorded_us, "evaluation@laptop")


@pytest.mark.parametrize("verdict", [ModelPromoted, PromotionRejected])
def test_verdict_counts_although_the_training_was_before(verdict):
    events = tuple(generated(3000, seed=2, trouble=10))
    judged = [event for event in events if isinstance(event.data, verdict) and event.data.step > 0]
    for event in judged[:20]:
        report = folded(after=event.sequence - 1, events=events[: event.sequence])
        (config,) = (config for config in report.configs if config.key == event.subject)
        assert (config.trainings, config.promotions + config.rejections) == (0, 1)
    assert judged


def test_operators_decision_is_counted_as_an_operators():
    last, data = EVENTS[-1], TrainingBlockedByQuality(reason="x")
    block = originate(data, event_id=derive_id("o", "o", 0), time=last.recordedtime, subject=KEY)
    event = Event(block, last.sequence + 1, last.recorded_us, "operator@laptop")
    report = folded(events=(*EVENTS, event))
    (operator,) = (by for by in report.decided if "operator" in by)
    assert report.decided[operator] == {"TRAINING_BLOCKED_BY_QUALITY": 1}


def test_operators_model_is_no_promotion_and_drops_the_candidate():
    """The counts of trained models add up. Status counts promotions by the same rule."""
    number = max(
        number
        for number, event in enumerate(EVENTS)
        if event.subject == KEY and isinstance(event.data, TrainingCompleted) and event.data.parent is not None
    )
    before, trained = folded(events=EVENTS[: number + 1]), EVENTS[number]
    current = next(
        one.data for one in reversed(EVENTS[:number]) if isinstance(one.data, CHANGES) and one.subject == KEY
    )
    evidence = next(one.data.evidence for one in EVENTS if isinstance(one.data, ModelPromoted))
    planted = ModelPromoted(
        model=ModelHash("f" * 64),
        previous=getattr(current, "to_model", None) or current.model,
        step=99,
        elo=1.0,
        evidence=evidence.replace(statistic="an operator's word"),
    )
    promotion = originate(planted, event_id=derive_id("o", "o", 0), time=trained.recordedtime, subject=KEY)
    event = Event(promotion, trained.sequence + 1, trained.recorded_us, "cli@laptop")
    after, board = folded(events=(*EVENTS[: number + 1], event)), Board()
    board.feed(one for one in (*EVENTS[: number + 1], event) if type(one.data) in READS)
    for report, dropped in ((before, 0), (after, 1)):
        (config,) = (config for config in report.configs if config.key == KEY)
        assert config.dropped == len(config.dropped_models) == dropped
        judged = config.promotions + config.rejections
        assert config.trainings - judged - dropped == config.awaiting == 1 - dropped
        assert config.promotions == board.configs[KEY].promotions
    assert sum(counts.get("MODEL_PROMOTED", 0) for by, counts in after.decided.items() if "operator" in by) == 1


def test_configuration_no_longer_played_stays_in_the_report():
    before = folded()
    *others, left_out = laptop().configs
    settings = RunSettings.model_validate(
        laptop().model_dump() | {"configs": [config.model_dump() for config in others]}
    )
    configured, last = next(iter(generated(1, seed=2, settings=settings))), EVENTS[-1]
    event = Event(configured.envelope, last.sequence + 1, last.recorded_us, configured.source)
    after = folded(events=(*EVENTS, event))
    assert [config.key for config in after.configs] == [*(config.key for config in others), left_out.key]
    assert after.worker_seconds == before.worker_seconds


def test_report_of_nothing_is_empty():
    report = folded(after=len(EVENTS))
    assert (report.first, report.events, report.decided) == (None, 0, {})
    assert {config.trainings for config in report.configs} == {0}
