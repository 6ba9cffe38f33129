"""Overview: all configurations, daemons, and what needs attention."""

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from app.dashboard.layout import Page, feed_of, render


def overview(request: Request) -> Response:
    """Show the page."""
    feed = feed_of(request)
    with feed.reading():
        status = feed.status()
    return render(request, "overview.html", status=status)


def daemons(request: Request) -> Response:
    """Show the table of daemons, which the page refreshes."""
    feed = feed_of(request)
    with feed.reading():
        status = feed.status()
    return render(request, "overview_daemons.html", status=status)


PAGE = Page("/", "Overview", (Route("/", overview), Route("/overview/daemons", daemons)))
