"""Report: what a run trained, what each controller decided, and where its time went; also as one file to send."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.api.run_reader import distinct_names
from app.api.runs import open_journal
from app.api.selection import before_since
from app.core import FlyballError
from app.dashboard.layout import HERE, feed_of, render, templates
from app.dashboard.overlaid import overlaid
from app.replay.run_comparison import ComparedRun, RunComparison, compare, side_by_side
from app.replay.run_report import RunReport, read_report


class NotCompared(FlyballError):
    """The dashboard was started without a run to compare with."""


def report(request: Request) -> Response:
    """Show the report of the run, or of its time since what the query names; for that the journal is read again."""
    feed, since = feed_of(request), request.query_params.get("since", "").strip()
    if since:
        with open_journal(feed.place) as reader:
            made = read_report(reader, lambda _: None, after=before_since(reader, since))
    else:
        with feed.reading() as model:
            made = model.reports.report(feed.status())
    return render(request, "report.html", report=made, since=since, compares=request.app.state.other is not None)


def comparison(request: Request) -> Response:
    """Show the run beside the one that the dashboard was started with. No page can name another one."""
    feed, other = feed_of(request), request.app.state.other
    if other is None:
        hint = "Start it with flyball dashboard --compare FOLDER."
        raise NotCompared("This dashboard does not compare its run with another one.", hint=hint)
    names = distinct_names(feed.place, other.place)
    with feed.reading(), other.reading():
        sides = (
            ComparedRun.of(name, one.model.reports, one.status())
            for name, one in zip(names, (feed, other), strict=True)
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
    return {"compared": made, "rows": tuple(side_by_side(made.a.report, made.b.report)), "charts": overlaid(made)}


ROUTES = (Route("/report", report), Route("/report/comparison", comparison))
