"""Report: what a run trained, what each controller decided, and where its time went; also as one file to send."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.dashboard.layout import HERE, feed_of, render, templates
from app.replay.run_report import RunReport


def report(request: Request) -> Response:
    """Show the report of the whole run."""
    feed = feed_of(request)
    with feed.reading() as model:
        made = model.reports.report(feed.status())
    return render(request, "report.html", report=made)


def report_file(made: RunReport, run: str) -> str:
    """Return a report as a page that needs no other file."""
    style = (HERE / "static" / "flyball.css").read_text(encoding="utf-8")
    return templates.get_template("report_file.html").render(report=made, run=run, style=style)


ROUTES = (Route("/report", report),)
