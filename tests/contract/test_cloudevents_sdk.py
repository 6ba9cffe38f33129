"""Flyball and the CloudEvents SDK read what the other writes."""

import json
import re
from datetime import UTC, datetime
from typing import Any

import pytest
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from event_strategies import events
from hypothesis import given, settings

from app.core import ModelHash
from app.events import (
    ClockTick,
    EvaluationRequested,
    Event,
    MalformedEvent,
    Payload,
    encode,
    envelope_of,
    from_cloudevent,
    originate,
)

SDK = JSONFormat()
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)
MODEL = ModelHash("a" * 64)


def attributes(**changes: Any) -> dict[str, Any]:
    """What a program that only knows the SDK says of an event."""
    return {
        "id": "e-1",
        "source": "notebook@desk",
        "type": "flyball.evaluation.requested",
        "subject": "hex7_2p",
        "time": NOON,
        "datacontenttype": "application/json",
        "dataversion": 1,
        "correlationid": "e-1",
    } | changes


DATA = {"purpose": "rating", "model": MODEL, "step": 3, "seed": 1}


@settings(max_examples=100)
@given(event=events())
def test_the_sdk_reads_every_recorded_event(event: Event[Payload]) -> None:
    body = event.to_cloudevent()
    read = SDK.read(CloudEvent, json.dumps(body).encode())
    assert read.get_data() == body["data"]
    assert read.get_specversion() == "1.0"
    assert (read.get_id(), read.get_type(), read.get_source()) == (event.id, event.envelope.type, event.source)
    assert read.get_subject() == event.envelope.subject
    assert read.get_time() == event.envelope.time
    assert read.get_datacontenttype() == "application/json"
    for name in ("dataversion", "correlationid", "causationid", "traceparent"):
        assert read.get_extension(name) == getattr(event.envelope, name)
    assert int(read.get_extension("sequence")) == event.sequence
    assert datetime.fromisoformat(read.get_extension("recordedtime")) == event.recordedtime


@settings(max_examples=50)
@given(event=events())
def test_a_recorded_event_survives_the_way_through_the_sdk(event: Event[Payload]) -> None:
    passed_on = SDK.write(SDK.read(CloudEvent, json.dumps(event.to_cloudevent()).encode()))
    assert from_cloudevent(passed_on) == event


@settings(max_examples=50)
@given(event=events())
def test_attributes_have_the_names_and_types_of_the_specification(
    event: Event[Payload],
) -> None:
    for name, value in event.to_cloudevent().items():
        if name != "data":
            assert re.fullmatch(r"[a-z0-9]{1,20}", name)
            assert isinstance(value, str | int)


@pytest.mark.parametrize(("one", "next_one"), [(1, 2), (9, 10), (99, 100), (2**31, 2**31 + 1), (2**63 - 2, 2**63 - 1)])
def test_sequences_sort_as_text(one: int, next_one: int) -> None:
    envelope = originate(ClockTick(period_seconds=60), event_id="e", time=NOON)
    written = [Event(envelope, sequence, 0, "clock@a").to_cloudevent()["sequence"] for sequence in (one, next_one)]
    assert all(isinstance(sequence, str) for sequence in written)
    assert written == sorted(written)


def test_we_read_what_the_sdk_writes() -> None:
    body = SDK.write(CloudEvent(attributes(), DATA))
    envelope = envelope_of(body)
    assert envelope.data == EvaluationRequested(**DATA)
    assert (envelope.id, envelope.subject, envelope.time) == ("e-1", "hex7_2p", NOON)
    assert json.loads(encode(envelope)) == {name: value for name, value in json.loads(body).items() if name != "source"}


def test_we_read_the_stamps_that_the_sdk_writes() -> None:
    stamps = {"sequence": "0000000000000000042", "recordedtime": "2026-01-02T12:00:00.000001Z"}
    event = from_cloudevent(SDK.write(CloudEvent(attributes(**stamps), DATA)))
    assert (event.sequence, event.source) == (42, "notebook@desk")
    assert event.recordedtime == NOON.replace(microsecond=1)


@pytest.mark.parametrize(
    ("changes", "data", "said"),
    [
        ({"type": "flyball.evaluation.request"}, DATA, "flyball.evaluation.requested"),
        ({"type": "com.example.other"}, DATA, "flyball events list"),
        ({}, {"purpose": "rating", "model": MODEL, "step": 3}, "data.seed"),
        ({}, b"\x00\x01", "data"),
        ({"urgency": "high"}, DATA, "urgency"),
    ],
)
def test_what_the_sdk_writes_but_is_no_event_of_ours_is_refused(changes: Any, data: Any, said: str) -> None:
    with pytest.raises(MalformedEvent) as caught:
        envelope_of(SDK.write(CloudEvent(attributes(**changes), data)))
    assert said in caught.value.hint


def test_the_sdk_refuses_what_has_not_been_stamped() -> None:
    envelope = originate(ClockTick(period_seconds=60), event_id="e", time=NOON)
    with pytest.raises(CloudEventValidationError):
        SDK.read(CloudEvent, encode(envelope))
