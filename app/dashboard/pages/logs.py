"""Logs: the latest lines of all daemons' structured logs."""

import json
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.dashboard.layout import Page, feed_of, render
from flyball.app.dashboard.logs import LEVELS, latest_lines, log_names

SHOWN = 200
"""Lines on a page."""


def logs(request: Request) -> Response:
    """Show the page."""
    return render(request, "logs.html", levels=LEVELS[:-1], **_values(request))


def lines(request: Request) -> Response:
    """Show the lines, which the page refreshes."""
    return render(request, "logs_lines.html", **_values(request))


def _values(request: Request) -> dict[str, Any]:
    query, folder = request.query_params, feed_of(request).place.folder
    chosen = {name: query.get(name, "").strip() for name in ("daemon", "level", "event_id")}
    latest = latest_lines(folder, SHOWN, **chosen)
    shown = [(line, json.dumps(line.attributes, indent=2, ensure_ascii=False)) for line in latest]
    return {"chosen": chosen, "lines": shown, "daemons": log_names(folder), "query": request.url.query}


PAGE = Page("/logs", "Logs", (Route("/logs", logs), Route("/logs/lines", lines)))
