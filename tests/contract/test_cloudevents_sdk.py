"""The CloudEvents SDK reads what Flyball writes."""

import json
import re
from datetime import UTC, datetime

import pytest
from cloudevents.core.exceptions import CloudEventValidationError
from cloudevents.core.formats.json import JSONFormat
from cloudevents.core.v1.event import CloudEvent
from event_strategies import events
from hypothesis import given, settings
from profiles import examples

from flyball.app.events import ClockTick, Event, Payload, encode, originate

SDK = JSONFormat()
NOON = datetime(2026, 1, 2, 12, tzinfo=UTC)


@settings(max_examples=examples(100))
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


@settings(max_examples=examples(50))
@given(event=events())
def test_attributes_have_names_and_types_of_the_specification(event: Event[Payload]) -> None:
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


def test_the_sdk_refuses_what_has_not_been_stamped() -> None:
    envelope = originate(ClockTick(period_seconds=60), event_id="e", time=NOON)
    with pytest.raises(CloudEventValidationError):
        SDK.read(CloudEvent, encode(envelope))
