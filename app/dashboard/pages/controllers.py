"""Controllers: what each one watches, which knobs it owns, what it decided, and what followed."""

from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.dashboard.layout import Page, feed_of, played_configs, render, to_config
from flyball.daemons.clock import SystemClock


def controllers(request: Request) -> Response:
    """Show the page of one configuration."""
    return render(request, "controllers.html", **_values(request))


def reports(request: Request) -> Response:
    """Show the reports, which the page refreshes."""
    return render(request, "controllers_reports.html", **_values(request))


def _values(request: Request) -> dict[str, Any]:
    key = request.path_params["key"]
    with feed_of(request).reading() as model:
        configs = played_configs(request)
        return {
            "key": key,
            "now": SystemClock().now(),
            "keys": list(configs),
            "next_training": configs[key].next_training,
            "reports": model.reports.controllers.reports((key,)),
            "not_loaded": model.not_loaded,
        }


PAGE = Page(
    "/controllers",
    "Controllers",
    (
        Route("/controllers", to_config),
        Route("/controllers/{key}", controllers),
        Route("/controllers/{key}/reports", reports),
    ),
    keyed=True,
)
