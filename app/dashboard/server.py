"""The dashboard's server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from app.api.runs import Place
from app.config.loading import UnknownConfig
from app.core import FlyballError
from app.dashboard import session, stream
from app.dashboard.access import Access
from app.dashboard.feed import Feed
from app.dashboard.jobs import PageJobs
from app.dashboard.layout import HERE, render
from app.dashboard.pages import PAGES, actions
from app.dashboard.pages.actions import Pending
from app.dashboard.recorded import NoSuchEvent
from app.dashboard.security import Guard

DRAIN_SECONDS = 2
"""Longest wait for open requests at the end."""


def application(place: Place, access: Access) -> Starlette:
    """Return the dashboard of a run as an ASGI application."""
    feed, jobs = Feed(place), PageJobs()

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            async with jobs.running(), feed.following():
                yield
        except BaseException:  # of a task, not of a request
            app.state.broken = True
            raise

    app = Starlette(
        routes=[
            *(route for page in PAGES for route in page.routes),
            *stream.ROUTES,
            *session.ROUTES,
            *actions.ROUTES,
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={404: _failed, FlyballError: _failed},
        lifespan=lifespan,
    )
    app.state.feed, app.state.jobs, app.state.access, app.state.pages = feed, jobs, access, PAGES
    app.state.pending, app.state.broken = dict[str, Pending](), False
    return app


def _failed(request: Request, error: Exception) -> Response:
    """Show an error as a page."""
    message, hint = (error.message, error.hint) if isinstance(error, FlyballError) else ("There is no such page.", "")
    refused = isinstance(error, FlyballError) and not isinstance(error, NoSuchEvent | UnknownConfig)
    code, title = (400, "Refused") if refused else (404, "Not found")
    return render(request, "error.html", status_code=code, title=title, message=message, hint=hint)


def serve(place: Place, access: Access, server: socket.socket) -> None:
    """Serve the dashboard until SIGTERM or SIGINT; exit with 1 if its feed breaks, because pages would stand still."""
    app = application(place, access)

    class Server(uvicorn.Server):
        """A server that ends with its feed, and its streams with it: otherwise it would wait for them."""

        async def on_tick(self, counter: int) -> bool:
            if app.state.broken:
                app.state.feed.close()
            return await super().on_tick(counter) or app.state.broken

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.feed.close()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app,
        log_config=None,
        log_level="warning",
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=DRAIN_SECONDS,
    )
    asyncio.run(Server(config).serve(sockets=[server]))
    if app.state.broken:
        raise SystemExit(1)
