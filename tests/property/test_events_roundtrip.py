"""Written events can be read; others are refused in one way."""

import json
from contextlib import suppress
from typing import Any

import pytest
from event_strategies import envelopes, events
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator
from msgspec.structs import asdict
from profiles import examples

from flyball.app.events import (
    CATALOGUE,
    Envelope,
    Event,
    MalformedEvent,
    NoUpcast,
    Payload,
    decode,
    encode,
    envelope_model,
)
from flyball.app.events.codec import _decode_fast, _decode_slowly
from flyball.app.events.schemas import envelope_schema

quick = settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])

VALIDATORS = {payload.event_type: Draft7Validator(envelope_schema(payload)) for payload in CATALOGUE}


@pytest.mark.parametrize("payload", CATALOGUE, ids=lambda payload: payload.event_name)
@quick
@given(data=st.data())
def test_decode_is_the_inverse_of_encode(payload: type[Payload], data: st.DataObject) -> None:
    envelope = data.draw(envelopes(payload))
    body = encode(envelope)
    assert decode(body) == envelope
    assert encode(decode(body)) == body
    assert envelope_model(payload)(**asdict(envelope)).model_dump_json().encode() == body, "as the models write it"
    VALIDATORS[payload.event_type].validate(json.loads(body))


@quick
@given(event=events())
def test_a_cloudevent_fits_the_schema_of_its_type(event: Event[Payload]) -> None:
    VALIDATORS[event.envelope.type].validate(event.to_cloudevent())


def refused_or_read(body: bytes) -> None:
    """Read a document, or refuse it with ``MalformedEvent`` or ``NoUpcast``. Any other exception fails the test."""
    with suppress(MalformedEvent, NoUpcast):
        assert decode(encode(decode(body))) == decode(body)


@settings(max_examples=examples(300))
@given(body=st.binary(max_size=200))
@example(body=b"\xff\xfe")
@example(body=b"")
@example(body=b'"\\ud800"')
@example(body=b'{"type": "\\ud800"}')
@example(body=b"[" * 100_000)
@example(body=b'{"type":' + b'{"type":' * 100_000)
def test_arbitrary_bytes_are_refused_in_one_way(body: bytes) -> None:
    refused_or_read(body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event=events(), path=st.sampled_from(["type", "dataversion", "data", "time", "id", "subject"]), value=anything)
@example(event=None, path="dataversion", value=10**30)
@example(event=None, path="dataversion", value=-(10**9))
@example(event=None, path="dataversion", value=float("inf"))
@example(event=None, path="dataversion", value=int("9" * 4000))
def test_one_wrong_attribute_is_refused_in_one_way(event: Event[Payload] | None, path: str, value: Any) -> None:
    body: dict[str, Any] = {"type": "flyball.clock.tick", "data": {}} if event is None else event.to_cloudevent()
    refused_or_read(json.dumps(body | {path: value}).encode())


attributes = st.sampled_from([*Envelope.__struct_fields__, "priority"])


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event=events(), name=attributes, value=anything | st.text(min_size=250, max_size=260))
def test_what_is_read_fast_is_read_as_by_the_models(event: Event[Payload], name: str, value: Any) -> None:
    body = json.dumps(json.loads(encode(event.envelope)) | {name: value}).encode()
    with suppress(ValueError, KeyError, RecursionError):
        assert _decode_fast(body) == _decode_slowly(body)


@settings(max_examples=examples(300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(event=events(), field=st.integers(0, 20), value=anything)
def test_one_wrong_field_is_refused_in_one_way(event: Event[Payload], field: int, value: Any) -> None:
    body = event.to_cloudevent()
    name = sorted(body["data"])[field % len(body["data"])]
    refused_or_read(json.dumps(body | {"data": body["data"] | {name: value}}).encode())
