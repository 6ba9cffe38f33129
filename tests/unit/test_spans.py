"""Trace contexts follow from the events' own ids; events are spans in OpenTelemetry's SDK."""

import asyncio
import re
from collections.abc import Sequence
from functools import cache

import pytest
from event_strategies import traceparents
from generated_run import generated, hasty
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from scripted_server import OK, scripted_server, status

from flyball.app.core import NAME_LENGTH, derive_id
from flyball.app.events import (
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
from flyball.app.events.envelope import EPOCH
from flyball.app.telemetry.spans import SpanReceiver, otlp_exporter
from flyball.app.telemetry.webhook import Undelivered


@cache
def events() -> tuple[Event[Payload], ...]:
    return tuple(generated(1500, seed=5, settings=hasty(), trouble=10))


async def exported(*parts: Sequence[Event[Payload]]) -> tuple[ReadableSpan, ...]:
    exporter = InMemorySpanExporter()
    receiver = SpanReceiver(exporter)
    for part in parts:
        await receiver.send(part)
    receiver.close()
    return exporter.get_finished_spans()


async def test_every_event_but_idle_ticks_is_a_span_of_its_trace() -> None:
    spans = {f"{span.context.span_id:016x}": span for span in await exported(events()[:700], events()[700:])}
    caused = {event.envelope.causationid for event in events()}
    wanted = [event for event in events() if not isinstance(event.data, ClockTick) or event.id in caused]
    assert len(spans) == len(wanted) < len(events())
    for event in wanted:
        span, cause = spans[span_id(event.id)], event.envelope.causationid
        assert span.name == event.data.event_name
        assert f"{span.context.trace_id:032x}" == trace_id(event.envelope)
        assert span.end_time == event.recorded_us * 1000 >= span.start_time
        if cause is None:
            assert span.parent is None
        else:
            parent = spans[span_id(cause)]
            assert (span.parent.span_id, span.parent.trace_id) == (parent.context.span_id, parent.context.trace_id)
            assert span.start_time == parent.end_time


async def test_span_says_who_published_and_what_failed() -> None:
    (event,) = [one for one in events() if one.data.event_name == "TRAINING_COMPLETED"][:1]
    (span,) = await exported([event])
    daemon, _, node = event.source.partition("@")
    assert (span.resource.attributes["service.name"], span.resource.attributes["host.name"]) == (daemon, node)
    assert span.attributes["flyball.config"] == event.subject
    assert span.attributes["flyball.event.id"] == event.id
    failed = [event for event in events() if event.data.event_name.endswith("_FAILED")]
    (span,) = await exported(failed[:1])
    assert not span.status.is_ok
    assert span.status.description == failed[0].data.error  # type: ignore[attr-defined]


async def test_otlp_server_gets_the_spans() -> None:
    async with scripted_server(OK) as server:
        receiver = SpanReceiver(otlp_exporter(f"http://127.0.0.1:{server.port}/v1/traces", 5.0))
        await receiver.send(events()[:50])
        receiver.close()
    (request,) = server.requests
    assert request.target == "/v1/traces"
    received = ExportTraceServiceRequest.FromString(request.body)
    names = [s.name for r in received.resource_spans for scope in r.scope_spans for s in scope.spans]
    assert len(names) == len(await exported(events()[:50]))


async def test_refused_spans_are_sent_again_with_their_ticks() -> None:
    async with scripted_server(status(400)) as server:
        receiver = SpanReceiver(otlp_exporter(f"http://127.0.0.1:{server.port}/v1/traces", 1.0))
        with pytest.raises(Undelivered, match="did not take the spans"):
            async with asyncio.timeout(200):
                await receiver.send(events()[:5])
        receiver.close()

    class Flaky(InMemorySpanExporter):
        results = iter((SpanExportResult.FAILURE, SpanExportResult.SUCCESS))

        def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
            super().export(spans)
            return next(self.results)

    tick = next(one for one in events() if isinstance(one.data, ClockTick))
    unblocked = TrainingUnblocked(reason="x")
    envelope = follow(unblocked, tick.envelope, by="test", subject="hex7_2p", time=tick.recordedtime)
    effect = Event(envelope, tick.sequence + 1, tick.recorded_us, "cli@laptop")
    receiver = SpanReceiver(exporter := Flaky())
    await receiver.send([tick])
    with pytest.raises(Undelivered):
        await receiver.send([effect])
    exporter.clear()
    await receiver.send([effect])
    assert len(exporter.get_finished_spans()) == 2


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


def test_foreign_trace_and_evidence_lead_what_follows() -> None:
    first = root(traceparent=CALLER)
    third = after(after(first), by="lifecycle")
    assert parent_span_id(first.envelope) == "b7ad6b7169203331"
    assert {trace_id(one.envelope) for one in (first, third)} == {"0af7651916cd43dd8448eb211c80319c"}
    assert traceparent_of(third.envelope).endswith(f"-{span_id(third.id)}-00"), "the caller does not sample"
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
