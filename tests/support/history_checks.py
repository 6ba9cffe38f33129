"""Checks that hold for every journal, whatever happened to its daemons."""

from collections import Counter

from flyball.app.events import (
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    Kind,
    Payload,
    QualityDegraded,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    TrainingCompleted,
    TrainingFailed,
)

RESULTS = (
    (SelfplayComplete, SelfplayFailed),
    (QualityScoreUpdated, QualityDegraded),
    (TrainingCompleted, TrainingFailed),
    (EvaluationCompleted, EvaluationFailed),
)


def check_history(events: list[Event[Payload]]) -> None:
    """Check the order of events, and that nothing counts twice. No event, no decision and no result may occur twice."""
    assert [event.sequence for event in events] == list(range(1, len(events) + 1))
    recorded = [event.recorded_us for event in events]
    assert recorded == sorted(recorded)
    _once(event.id for event in events)
    _once(
        (event.data.event_name, event.subject, event.envelope.causationid, event.data.model_dump_json())
        for event in events
        if event.data.kind is Kind.DECISION
    )
    for types in RESULTS:
        _once(event.data.request_id for event in events if isinstance(event.data, types))
    trained = [event.data for event in events if isinstance(event.data, TrainingCompleted)]
    _once((data.parent, data.step, data.model) for data in trained)
    causes = {event.id for event in events}
    assert all(event.envelope.causationid in causes for event in events if event.envelope.causationid)


def _once(keys: object) -> None:
    twice = [key for key, count in Counter(keys).items() if count > 1]
    assert not twice, f"counted twice: {twice}"
