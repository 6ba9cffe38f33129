"""Report: what a run trained, what each controller decided, and where its time went; also as one file to send."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.api.runs import open_journal
from app.api.selection import before_since
from app.dashboard.layout import HERE, feed_of, render, templates
from app.replay.run_report import RunReport, read_report


def report(request: Request) -> Response:
    """Show the report of the run, or of its time since what the query names; for that the journal is read again."""
    feed, since = feed_of(request), request.query_params.get("since", "").strip()
    if since:
        with open_journal(feed.place) as reader:
            made = read_report(reader, lambda _: None, after=before_since(reader, since))
    else:
        with feed.reading() as model:
            made = model.reports.report(feed.status())
    return render(request, "report.html", report=made, since=since)


def report_file(made: RunReport, run: str) -> str:
    """Return a report as a page that needs no other file."""
    style = (HERE / "static" / "flyball.css").read_text(encoding="utf-8")
    return templates.get_template("report_file.html").render(report=made, run=run, style=style)


ROUTES = (Route("/report", report),)
