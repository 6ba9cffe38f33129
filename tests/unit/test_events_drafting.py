"""Events follow from their causes: the same cause gives the same event."""

from datetime import UTC, datetime, timedelta
from itertools import product

import pytest
from pydantic import ValidationError

from flyball.app.core import ModelHash
from flyball.app.events import (
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


def test_the_same_cause_gives_the_same_event_and_no_other() -> None:
    first = cause().envelope
    assert (first.correlationid, first.causationid, first.time) == ("first", None, NOON)
    once, again = (follow(REQUEST, cause().cause, by="trigger", index=2) for _ in range(2))
    assert once == again
    assert (once.causationid, once.correlationid, once.subject) == ("first", "first", "hex7_2p")
    recorded = Event(once, sequence=8, recorded_us=1_767_355_206_000_000, source="trigger@laptop")
    third = follow(RegressionCleared(model=MODEL), recorded.cause, by="watchdog")
    assert (third.correlationid, third.causationid) == ("first", once.id)
    causes = [*product(("first", "second"), ("trigger", "loop"), (0, 1))]
    ids = {follow(REQUEST, cause(event_id=name).cause, by=by, index=index).id for name, by, index in causes}
    assert len(ids) == len(causes)
    event, exact = cause(), datetime(2026, 1, 2, 12, 0, 5, 1, tzinfo=UTC)
    assert follow(REQUEST, event.cause, by="trigger").time == event.recordedtime == exact
    later = NOON + timedelta(hours=1)
    assert follow(REQUEST, event.cause, by="trigger", time=later).time == later


def test_configuration_event_alone_has_and_needs_a_subject() -> None:
    assert (cause().subject, cause(subject=None).subject) == ("hex7_2p", "")
    assert follow(ClockTick(period_seconds=60), cause().cause, by="clock").subject is None
    tick = cause(subject=None).cause
    assert follow(REQUEST, tick, by="trigger", subject="go7_2p").subject == "go7_2p"
    with pytest.raises(ValidationError, match="EVALUATION_REQUESTED needs a subject"):
        follow(REQUEST, tick, by="trigger")


@pytest.mark.parametrize(
    ("wrong", "why"), [({"subject": "hex7_2p"}, "takes no subject"), ({"time": NOON.replace(tzinfo=None)}, "timezone")]
)
def test_system_event_with_a_subject_or_naive_time_is_refused(wrong: dict, why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        originate(ClockTick(period_seconds=60), **{"event_id": "e", "time": NOON, **wrong})
