"""Events: the latest, and new ones as they come. One event is shown with its causes and effects."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.api.selection import select
from flyball.app.config import RunSettings
from flyball.app.core import FlyballError
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.layout import Page, feed_of, render, templates, whole_number
from flyball.app.dashboard.recorded import event_of, events_at, trace_of
from flyball.app.events import CATALOGUE, Event
from flyball.app.status.summary import show_offset
from flyball.app.status.trace import Trace, TracedEvent

SHOWN = 60
"""Events on a page."""


@dataclass(frozen=True, slots=True)
class EventFilter:
    """A choice of events.

    Attributes:
        pattern: a glob on event names or types; an empty string: all.
        kind: ``fact``, ``request``, ``decision``, or ``notable``; an empty string: all.
        config_key: the configuration; an empty string: any.
    """

    pattern: str
    kind: str
    config_key: str

    @classmethod
    def of(cls, query: QueryParams) -> "EventFilter":
        """Return the filter in a URL's query."""
        return cls(query.get("pattern", "").strip(), query.get("kind", ""), query.get("config", ""))

    @property
    def types(self) -> frozenset[str] | None:
        """Return the event types; ``None``: all. Raises ``UnknownEventType``."""
        if not self.pattern and not self.kind:
            return None
        chosen = select([self.pattern], None).types if self.pattern else frozenset(CATALOGUE)
        assert chosen is not None
        return frozenset(
            payload.event_type
            for payload in chosen
            if self.kind in ("", payload.kind) or (self.kind == "notable" and payload.notable)
        )

    @property
    def query(self) -> str:
        """The filter as a URL's query."""
        fields = {"pattern": self.pattern, "kind": self.kind, "config": self.config_key}
        return urlencode({name: value for name, value in fields.items() if value})


def chosen_events(feed: Feed, chosen: EventFilter, *, before: int | None) -> list[Event[Any]]:
    """Return the latest events that a filter chooses, latest first."""
    types = chosen.types
    with feed.reading() as model:
        positions = model.index.select(types, chosen.config_key or None, before=before, last=SHOWN)
    return events_at(feed, reversed(positions))


def rows_html(events: Sequence[Event[Any]], settings: RunSettings | None) -> str:
    """Return table rows of events, as the stream sends them. ``settings`` name user-defined controllers."""
    return templates.get_template("events_rows.html").render(events=events, settings=settings)


def events(request: Request) -> Response:
    """Show the page."""
    feed, query = feed_of(request), request.query_params
    chosen, wrong = EventFilter.of(query), None
    before = whole_number(query.get("before", ""))
    with feed.reading() as model:
        keys, position = list(model.board.configs), model.position
    try:
        shown = chosen_events(feed, chosen, before=before if before is not None else position + 1)
    except FlyballError as error:
        shown, wrong = [], error
    return render(
        request,
        "events.html",
        key=chosen.config_key,
        chosen=chosen,
        shown=shown,
        keys=keys,
        names=sorted(payload.event_name for payload in CATALOGUE),
        before=before,
        older=shown[-1].sequence if len(shown) == SHOWN else None,
        page_position=position,
        wrong=wrong,
    )


def event(request: Request) -> Response:
    """Show one event with its causes and effects."""
    feed = feed_of(request)
    shown = event_of(feed, request.query_params.get("id", ""))
    attributes = shown.to_cloudevent()
    data = json.dumps(attributes.pop("data"), indent=2, ensure_ascii=False)
    trace = trace_of(feed, shown)
    return render(
        request,
        "event.html",
        key=shown.subject,
        event=shown,
        attributes=attributes,
        data=data,
        trace=trace,
        tree=_tree(trace),
        published="published" in request.query_params,
    )


def _tree(trace: Trace) -> list[tuple[TracedEvent, str]]:
    """Return the traced events with their times after the shown one; negative for causes."""
    start = next(node.event.recorded_us for node in trace.nodes if node.event.id == trace.id)
    return [(node, show_offset(node.event.recorded_us - start)) for node in trace.nodes]


PAGE = Page("/events", "Events", (Route("/events", events), Route("/event", event)))
