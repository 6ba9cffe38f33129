"""Events as spans in OpenTelemetry's SDK and over OTLP."""

import asyncio
from collections.abc import Sequence
from functools import cache

import pytest
from generated_run import generated, hasty
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from scripted_server import OK, scripted_server, status

from app.events import ClockTick, Event, Payload, TrainingUnblocked, follow, span_id, trace_id
from app.telemetry.spans import SpanReceiver, otlp_exporter
from app.telemetry.webhook import Undelivered


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


async def test_span_says_who_published_and_about_what() -> None:
    (event,) = [one for one in events() if one.data.event_name == "TRAINING_COMPLETED"][:1]
    (span,) = await exported([event])
    daemon, _, node = event.source.partition("@")
    assert (span.resource.attributes["service.name"], span.resource.attributes["host.name"]) == (daemon, node)
    assert span.attributes["flyball.config"] == event.subject
    assert span.attributes["flyball.event.id"] == event.id


async def test_failure_is_an_error_with_its_text() -> None:
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


async def test_refusing_collector_leaves_events_undelivered() -> None:
    async with scripted_server(status(400)) as server:
        receiver = SpanReceiver(otlp_exporter(f"http://127.0.0.1:{server.port}/v1/traces", 1.0))
        with pytest.raises(Undelivered, match="did not take the spans"):
            async with asyncio.timeout(200):
                await receiver.send(events()[:5])
        receiver.close()


async def test_tick_is_exported_again_after_a_failure() -> None:
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
