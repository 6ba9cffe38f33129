"""Events as OpenTelemetry spans, for a collector of traces. Needs ``flyball[otel]``.

An event is a span from the record of its cause to its own: for a result, the time that its job waited and took. An
event without a recorded cause is a span from when its producer wrote it. Ids are the events' own
(``flyball.app.events.tracing``), so an event that is exported twice is one span.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Sequence
from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from flyball.app.config.monitoring import COLLECTOR
from flyball.app.core import SECOND_US, FlyballError
from flyball.app.events import CATALOGUE, ClockTick, Event, Payload, RollCall, parent_span_id, span_id, trace_id
from flyball.app.events.envelope import EPOCH
from flyball.app.telemetry.webhook import Undelivered

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

REMEMBERED = 20_000
"""Latest events whose record times are remembered. Later events may follow from them."""

NANOSECONDS = 1000  # of a microsecond


class NoOpenTelemetry(FlyballError):
    """OpenTelemetry is not installed."""


def check_otel() -> None:
    """Raise ``NoOpenTelemetry`` if the SDK or the exporter is not installed."""
    try:
        import opentelemetry.exporter.otlp.proto.http
        import opentelemetry.sdk.trace  # noqa: F401
    except ImportError as error:
        raise NoOpenTelemetry(
            "deployment.traces.endpoint needs OpenTelemetry.", hint="pip install 'flyball[otel]'"
        ) from error


def otlp_exporter(endpoint: str, timeout_seconds: float) -> "SpanExporter":
    """Return an exporter that speaks OTLP over HTTP. Raises ``NoOpenTelemetry``."""
    check_otel()
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

    return OTLPSpanExporter(endpoint=endpoint, timeout=timeout_seconds)


class SpanReceiver:
    """A receiver of events that exports them as spans; see ``flyball.daemons.receivers.Receiver``.

    A clock tick begins a trace only if an event follows from it, and is exported with that event.

    Args:
        exporter: called in a thread, because it waits for its collector.
    """

    name = COLLECTOR
    types: frozenset[type[Payload]] = frozenset(CATALOGUE) - {RollCall}
    most = 500

    def __init__(self, exporter: "SpanExporter") -> None:
        self._exporter = exporter
        self._recorded_us: OrderedDict[str, int] = OrderedDict()
        self._ticks: OrderedDict[str, Event[Any]] = OrderedDict()

    def wants(self, _: Event[Any], /) -> bool:
        """See ``Receiver.wants``."""
        return True

    async def send(self, events: Sequence[Event[Any]]) -> None:
        """Export events. Raises ``Undelivered``."""
        from opentelemetry.sdk.trace.export import SpanExportResult

        spans = self.spans(events)
        if spans and await asyncio.to_thread(self._exporter.export, spans) is not SpanExportResult.SUCCESS:
            raise Undelivered("The collector of traces did not take the spans.", hint="Look at its log and address.")
        for event in events:
            self._ticks.pop(event.envelope.causationid or "", None)  # only now, because a failed message is sent again

    def spans(self, events: Sequence[Event[Any]]) -> "list[ReadableSpan]":
        """Return the spans of events. A tick comes before the first event that follows from it."""
        shown: dict[str, Event[Any]] = {}
        for event in events:
            if isinstance(event.data, ClockTick):
                self._ticks[event.id] = event
            else:
                if (cause := event.envelope.causationid) and (tick := self._ticks.get(cause)):
                    shown.setdefault(tick.id, tick)
                shown[event.id] = event
            self._recorded_us[event.id] = event.recorded_us
        spans = [self._span(event) for event in shown.values()]
        for memory in (self._ticks, self._recorded_us):
            while len(memory) > REMEMBERED:
                memory.popitem(last=False)
        return spans

    def close(self) -> None:
        """Shut the exporter down; a waiting export gives up."""
        self._exporter.shutdown()

    def _span(self, event: Event[Any]) -> "ReadableSpan":
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.sdk.util.instrumentation import InstrumentationScope
        from opentelemetry.trace import Status, StatusCode

        envelope = event.envelope
        parent = parent_span_id(envelope)
        written_us = round((envelope.time - EPOCH).total_seconds() * SECOND_US)
        start_us = self._recorded_us.get(envelope.causationid or "", written_us)
        error = getattr(event.data, "error", None) if event.data.event_name.endswith("_FAILED") else None
        attributes = {
            "flyball.event.id": event.id,
            "flyball.event.kind": event.data.kind.value,
            "flyball.sequence": event.sequence,
            **({"flyball.config": event.subject} if event.subject else {}),
        }
        return ReadableSpan(
            name=event.data.event_name,
            context=_context(trace_id(envelope), span_id(event.id), is_remote=False),
            parent=_context(trace_id(envelope), parent, is_remote=True) if parent else None,
            resource=_resource(event.source),
            attributes=attributes,
            status=Status(StatusCode.ERROR, str(error)) if error else Status(),
            start_time=min(start_us, event.recorded_us) * NANOSECONDS,
            end_time=event.recorded_us * NANOSECONDS,
            instrumentation_scope=InstrumentationScope("flyball", version("flyball")),
        )


def _context(trace: str, span: str, *, is_remote: bool) -> "SpanContext":
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace, 16), int(span, 16), is_remote=is_remote, trace_flags=flags)


@cache
def _resource(source: str) -> "Resource":
    from opentelemetry.sdk.resources import Resource

    daemon, _, node = source.partition("@")
    return Resource({"service.namespace": "flyball", "service.name": daemon, "host.name": node})
