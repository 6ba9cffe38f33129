"""Trace contexts follow from the events' own ids."""

import re

import pytest
from event_strategies import traceparents
from hypothesis import given
from hypothesis import strategies as st

from app.core import NAME_LENGTH, derive_id
from app.events import (
    BadTraceparent,
    ClockTick,
    Envelope,
    Event,
    Payload,
    RegressionCleared,
    TrainingUnblocked,
    check_traceparent,
    follow,
    originate,
    parent_span_id,
    span_id,
    trace_id,
    traceparent_of,
)
from app.events.envelope import EPOCH

VALID = re.compile(r"00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
CALLER = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
CLEARED = RegressionCleared(model="a" * 64)


def root(event_id: str = derive_id("root"), traceparent: str | None = None) -> Event[Payload]:
    data = TrainingUnblocked(reason="why not")
    envelope = originate(data, event_id=event_id, time=EPOCH, subject="hex7_2p", traceparent=traceparent)
    return Event(envelope, 1, 1, "cli@laptop")


def after(cause: Event[Payload], by: str = "watchdog") -> Event[Payload]:
    return Event(follow(CLEARED, cause.cause, by=by), cause.sequence + 1, 2, f"{by}@laptop")


def test_trace_of_our_own_ids_is_named_by_them() -> None:
    first = root()
    second = after(first)
    assert trace_id(second.envelope) == first.id
    assert second.id.startswith(span_id(second.id))
    assert parent_span_id(second.envelope) == span_id(first.id)
    assert parent_span_id(first.envelope) is None
    assert traceparent_of(second.envelope) == f"00-{first.id}-{second.id[:16]}-01"
    assert traceparent_of(root().envelope) == traceparent_of(root().cause)
    assert "traceparent" not in after(root()).envelope.attributes()


def test_foreign_trace_is_kept_through_all_that_follows() -> None:
    first = root(traceparent=CALLER)
    third = after(after(first), by="lifecycle")
    assert parent_span_id(first.envelope) == "b7ad6b7169203331"
    assert {trace_id(one.envelope) for one in (first, third)} == {"0af7651916cd43dd8448eb211c80319c"}
    assert traceparent_of(third.envelope).endswith(f"-{span_id(third.id)}-00"), "the caller does not sample"


def test_evidence_and_not_the_tick_leads_the_trace() -> None:
    tick = originate(ClockTick(period_seconds=1), event_id=derive_id("tick"), time=EPOCH)
    evidence = root()
    concluded = follow(
        CLEARED, Event(tick, 9, 9, "broker@laptop").cause, by="x", subject="hex7_2p", evidence=evidence.cause
    )
    assert trace_id(concluded) == evidence.id
    assert parent_span_id(concluded) == span_id(evidence.id)


@given(event_id=st.text(min_size=1, max_size=NAME_LENGTH) | st.sampled_from(["0" * 32, "0" * 16 + "1" * 16]))
def test_any_id_gives_a_valid_context(event_id: str) -> None:
    first = root(event_id)
    contexts = [traceparent_of(one.envelope) for one in (first, after(first))]
    assert all(VALID.fullmatch(one) for one in contexts)
    assert len({one.split("-")[1] for one in contexts}) == 1


@given(recorded=traceparents())
def test_any_recorded_context_gives_a_valid_one(recorded: str) -> None:
    envelope: Envelope[Payload] = root(traceparent=recorded).envelope
    assert VALID.fullmatch(traceparent_of(envelope))


@pytest.mark.parametrize(
    "wrong",
    ["", "x", CALLER[:-1], CALLER + "\n", CALLER.replace("0af7", "0AF7"), f"00-{'0' * 32}-{'1' * 16}-01",
     f"00-{'1' * 32}-{'0' * 16}-01", f"ff-{'1' * 32}-{'1' * 16}-01"],
)  # fmt: skip
def test_invalid_context_of_a_caller_is_refused(wrong: str) -> None:
    with pytest.raises(BadTraceparent, match="is no trace context"):
        check_traceparent(wrong)
    assert check_traceparent(CALLER) == CALLER
