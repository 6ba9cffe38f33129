"""Parts that the dashboard's and the documentation's servers share."""

from collections.abc import Callable, Sequence
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Mount
from starlette.staticfiles import StaticFiles

from flyball.app.api.kept_games import NoSuchGame
from flyball.app.config.loading import UnknownConfig
from flyball.app.core import FlyballError
from flyball.app.dashboard.access import Access
from flyball.app.dashboard.layout import HERE, Page, render
from flyball.app.dashboard.recorded import NoSuchEvent
from flyball.app.dashboard.security import Guard

DRAIN_SECONDS = 2
"""Longest wait for open requests at the end."""


def web_application(
    pages: Sequence[Page],
    access: Access,
    *,
    others: Sequence[BaseRoute] = (),
    lifespan: Callable[[Starlette], Any] | None = None,
) -> Starlette:
    """Return an application of guarded pages and their static files. It shows no run unless ``state.feed`` is set."""
    app = Starlette(
        routes=[
            *(route for page in pages for route in page.routes),
            *others,
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={404: _failed, FlyballError: _failed},
        lifespan=lifespan,
    )
    app.state.feed, app.state.access, app.state.pages = None, access, pages
    return app


def _failed(request: Request, error: Exception) -> Response:
    """Show an error as a page."""
    message, hint = (error.message, error.hint) if isinstance(error, FlyballError) else ("There is no such page.", "")
    refused = isinstance(error, FlyballError) and not isinstance(error, NoSuchEvent | UnknownConfig | NoSuchGame)
    code, title = (400, "Refused") if refused else (404, "Not found")
    return render(request, "error.html", status_code=code, title=title, message=message, hint=hint)


def server_config(app: Starlette) -> uvicorn.Config:
    """Return the settings of an application's server."""
    return uvicorn.Config(
        app,
        loop="asyncio",  # not whichever is installed: some packages bring uvloop
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
