"""Events follow from their causes: the same cause gives the same event."""

from datetime import UTC, datetime, timedelta

import pytest
from pydantic import ValidationError

from app.core import ModelHash
from app.events import (
    ClockTick,
    EvaluationRequested,
    Event,
    Payload,
    RegressionCleared,
    TrainingUnblocked,
    follow,
    originate,
)

NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MODEL = ModelHash("a" * 64)
REQUEST = EvaluationRequested(purpose="rating", model=MODEL, step=3, seed=1)


def cause(*, subject: str | None = "hex7_2p", event_id: str = "first") -> Event[Payload]:
    data = TrainingUnblocked(reason="parity holds") if subject else ClockTick(period_seconds=60)
    envelope = originate(data, event_id=event_id, time=NOON, subject=subject)
    return Event(envelope, sequence=7, recorded_us=1_767_355_205_000_001, source="loop@laptop")


def test_the_first_event_of_a_story_correlates_with_itself() -> None:
    envelope = cause().envelope
    assert (envelope.correlationid, envelope.causationid, envelope.time) == ("first", None, NOON)


def test_the_same_cause_gives_the_same_event() -> None:
    once, again = (follow(REQUEST, cause().cause, by="trigger", index=2) for _ in range(2))
    assert once == again
    assert (once.causationid, once.correlationid, once.subject) == ("first", "first", "hex7_2p")


def test_another_index_producer_or_cause_gives_another_id() -> None:
    ids = [
        follow(REQUEST, cause(event_id=event_id).cause, by=by, index=index).id
        for event_id in ("first", "second")
        for by in ("trigger", "loop")
        for index in (0, 1)
    ]
    assert len(set(ids)) == len(ids)


def test_a_chain_keeps_the_correlation_of_its_first_event() -> None:
    second = follow(REQUEST, cause().cause, by="trigger")
    third = follow(
        RegressionCleared(model=MODEL),
        Event(second, sequence=8, recorded_us=1_767_355_206_000_000, source="trigger@laptop").cause,
        by="watchdog",
    )
    assert (third.correlationid, third.causationid) == ("first", second.id)


def test_follow_defaults_to_the_recorded_time_of_the_cause() -> None:
    event = cause()
    assert follow(REQUEST, event.cause, by="trigger").time == datetime(2026, 1, 2, 12, 0, 5, 1, tzinfo=UTC)
    later = NOON + timedelta(hours=1)
    assert follow(REQUEST, event.cause, by="trigger", time=later).time == later


def test_system_event_caused_by_a_configuration_has_no_subject() -> None:
    assert follow(ClockTick(period_seconds=60), cause().cause, by="clock").subject is None


def test_configuration_event_caused_by_the_system_needs_subject() -> None:
    tick = cause(subject=None).cause
    assert follow(REQUEST, tick, by="trigger", subject="go7_2p").subject == "go7_2p"
    with pytest.raises(ValidationError, match="EVALUATION_REQUESTED needs a subject"):
        follow(REQUEST, tick, by="trigger")


def test_a_system_event_with_a_subject_is_refused() -> None:
    with pytest.raises(ValidationError, match="CLOCK_TICK takes no subject"):
        originate(ClockTick(period_seconds=60), event_id="e", time=NOON, subject="hex7_2p")


def test_a_naive_time_is_refused() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        originate(ClockTick(period_seconds=60), event_id="e", time=NOON.replace(tzinfo=None))


def test_recorded_time_is_exact_to_the_microsecond() -> None:
    assert cause().recordedtime == datetime(2026, 1, 2, 12, 0, 5, 1, tzinfo=UTC)
    assert cause().subject == "hex7_2p"
    assert cause(subject=None).subject == ""
