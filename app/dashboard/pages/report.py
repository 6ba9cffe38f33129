"""Report: what a run trained, what each controller decided, and where its time went; also as one file to send."""

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.api.run_reader import distinct_names
from flyball.app.api.runs import open_journal
from flyball.app.api.selection import before_since
from flyball.app.core import FlyballError
from flyball.app.dashboard.jobs import may_begin
from flyball.app.dashboard.layout import HERE, feed_of, render, templates
from flyball.app.dashboard.overlaid import PICTURE, overlaid
from flyball.app.replay.run_comparison import ComparedRun, RunComparison, compare, side_by_side
from flyball.app.replay.run_report import RunReport, read_report

READING = Lock()
"""Held while a journal is read for a report, because several at once would slow all pages."""


class Busy(FlyballError):
    """Another report reads the journal."""


class NotCompared(FlyballError):
    """The dashboard was started without a run to compare with."""


def report(request: Request) -> Response:
    """Show the report of the run, or of its time since what the query names; for that the journal is read again."""
    feed, since = feed_of(request), request.query_params.get("since", "").strip() if may_begin(request) else ""
    if since:
        with one_at_a_time(), open_journal(feed.place) as reader:
            made = read_report(reader, lambda _: None, after=before_since(reader, since))
    else:
        with feed.reading() as model:
            made = model.reports.report(feed.status())
    return render(request, "report.html", report=made, since=since, compares=request.app.state.other is not None)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Hold ``READING``. Raises ``Busy`` if another request does."""
    if not READING.acquire(blocking=False):
        raise Busy("Another report is being made, and the journal is read for one at a time.", hint="Load this again.")
    try:
        yield
    finally:
        READING.release()


def comparison(request: Request) -> Response:
    """Show the run beside the one that the dashboard was started with. No page can name another one."""
    feed, other = feed_of(request), request.app.state.other
    if other is None:
        hint = "Start it with flyball dashboard --compare FOLDER."
        raise NotCompared("This dashboard does not compare its run with another one.", hint=hint)
    names = distinct_names(feed.place, other.place)
    with feed.reading(), other.reading():
        sides = (
            ComparedRun.of(name, side.model.reports, side.status())
            for name, side in zip(names, (feed, other), strict=True)
        )
        made, unread = compare(*sides), other.head - other.model.position
    return render(request, "comparison.html", unread=unread, unreadable=other.trouble, **_shown(made))


def report_file(made: RunReport, run: str) -> str:
    """Return a report as a page that needs no other file."""
    return _file("report_tables.html", f"Report of {run}", report=made)


def comparison_file(made: RunComparison) -> str:
    """Return two runs side by side as a page that needs no other file."""
    return _file("comparison_tables.html", f"{made.a.name} and {made.b.name}", **_shown(made))


def _file(tables: str, title: str, **values: Any) -> str:
    style = (HERE / "static" / "flyball.css").read_text(encoding="utf-8")
    return templates.get_template("report_file.html").render(tables=tables, title=title, style=style, **values)


def _shown(made: RunComparison) -> dict[str, Any]:
    rows = tuple(side_by_side(made.a.report, made.b.report))
    return {"compared": made, "rows": rows, "charts": overlaid(made), "picture": PICTURE}


ROUTES = (Route("/report", report), Route("/report/comparison", comparison))
