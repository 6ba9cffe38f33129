"""The stream of news, as server-sent events.

The ids of the events are positions in the journal. A browser that reconnects sends the last id that it received, and
gets everything after it, once.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route

from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.layout import feed_of, whole_number
from flyball.app.dashboard.pages.events import EventFilter, rows_html
from flyball.app.dashboard.recorded import events_at
from flyball.app.events import Event

PING_SECONDS = 15.0
"""Time without news after which a comment is sent. Otherwise proxies would close the connection."""

LEAST_SECONDS = 0.5
"""Time between two messages to a client."""

RETRY_MS = 1000
ROWS = 100
"""Most rows of events in one message."""

LINE_BREAK = re.compile(r"\r\n|\r|\n")
"""Ends of lines in a stream: https://html.spec.whatwg.org/multipage/server-sent-events.html."""


def message(name: str, data: str, position: int | None = None) -> str:
    """Return one server-sent event; its data may have several lines."""
    lines = [] if position is None else [f"id: {position}"]
    lines += [f"event: {name}", *(f"data: {line}" for line in LINE_BREAK.split(data))]
    return "\n".join(lines) + "\n\n"


async def live(request: Request) -> Response:
    """Serve the stream, which names the configurations that have news.

    It begins after the last event that the client got, else after the position of its page. A client that names what
    it knows of the run, ``running=true`` or ``running=false``, is sent ``run`` whenever that changes.
    """
    feed, position = feed_of(request), request.headers.get("last-event-id") or request.query_params.get("after")
    after = whole_number(position or "")
    if after is None:
        return PlainTextResponse("Name the position to begin after: ?after=0\n", status_code=400)
    chosen = EventFilter.of(request.query_params) if "rows" in request.query_params else None
    if chosen is not None:
        _ = chosen.types  # refuses an unknown type now, because a stream has no other answer once it has begun
    headers = {"x-accel-buffering": "no"}  # nginx would hold messages back
    return StreamingResponse(
        _news(feed, after, chosen, request.query_params.get("running")), media_type="text/event-stream", headers=headers
    )


async def _news(feed: Feed, after: int, chosen: EventFilter | None, running: str | None) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    while not feed.closing:
        now = json.dumps(feed.broker.running)
        if running not in (None, now):
            yield message("run", running := now)
        with feed.reading() as model:
            position, head = model.position, feed.head
            changed = sorted(key for key, at in model.latest.items() if at > after)
        if after > head > 0:  # another run has replaced the one that the page shows
            yield message("reset", "")
            return
        if position > after:
            while chosen is not None and (events := await asyncio.to_thread(_rows, feed, chosen, after, position)):
                after = events[-1].sequence
                yield message("rows", rows_html(events, feed.model.board.settings), after)
            news = {"position": position, "head": feed.head, "configs": changed}
            yield message("news", json.dumps(news), position)
            after = position
            await asyncio.sleep(LEAST_SECONDS)
        else:
            await feed.wait(PING_SECONDS)
            if feed.model.position == after:
                yield ": nothing new\n\n"


def _rows(feed: Feed, chosen: EventFilter, after: int, upto: int) -> list[Event[Any]]:
    """Return the next chosen events up to a position, in order."""
    with feed.reading() as model:
        positions = model.index.select(
            chosen.types, chosen.config_key or None, after=after, before=upto + 1, first=ROWS
        )
    return events_at(feed, positions)


ROUTES = (Route("/live", live),)
