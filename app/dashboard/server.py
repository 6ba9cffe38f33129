"""The dashboard's server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from types import FrameType

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount
from starlette.staticfiles import StaticFiles

from app.api.runs import Place
from app.config.dashboard import DashboardSettings
from app.core import FlyballError
from app.dashboard import session, stream
from app.dashboard.feed import Feed
from app.dashboard.jobs import PageJobs
from app.dashboard.layout import HERE, render
from app.dashboard.pages import PAGES
from app.dashboard.security import Access, Guard

DRAIN_SECONDS = 2
"""Longest wait for open requests at the end."""


class AddressTaken(FlyballError):
    """Another program listens at the dashboard's address."""


def listen(settings: DashboardSettings) -> socket.socket:
    """Return a socket that listens at the dashboard's address. Raises ``AddressTaken``."""
    family = socket.AF_INET6 if ip_address(settings.address).version == 6 else socket.AF_INET
    server = socket.socket(family, socket.SOCK_STREAM)
    try:
        server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        server.bind((settings.address, settings.port))
        server.listen(128)
    except OSError as error:
        server.close()
        raise AddressTaken(
            f"The dashboard cannot listen at {settings.address} port {settings.port}: {error.strerror}.",
            hint="Set deployment.dashboard.port, for instance to 0 for any free port.",
        ) from error
    return server


def url_of(server: socket.socket) -> str:
    """Return the address to open in a browser on this machine."""
    host, port = server.getsockname()[:2]
    address = ip_address(host)
    name = "localhost" if address.is_unspecified else f"[{host}]" if address.version == 6 else host
    return f"http://{name}:{port}/"


def application(place: Place, access: Access) -> Starlette:
    """Return the dashboard of a run as an ASGI application."""
    feed, jobs = Feed(place), PageJobs()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        async with jobs.running(), feed.following():
            yield

    app = Starlette(
        routes=[
            *(route for page in PAGES for route in page.routes),
            *stream.ROUTES,
            *session.ROUTES,
            Mount("/static", StaticFiles(directory=HERE / "static")),
        ],
        middleware=[Middleware(Guard, access=access)],
        exception_handlers={404: _failed, FlyballError: _failed},
        lifespan=lifespan,
    )
    app.state.feed, app.state.jobs, app.state.access, app.state.pages = feed, jobs, access, PAGES
    return app


def _failed(request: Request, error: Exception) -> Response:
    """Show an error as a page."""
    if isinstance(error, FlyballError):
        return render(request, "error.html", status_code=400, title="Refused", message=error.message, hint=error.hint)
    return render(request, "error.html", status_code=404, title="Not found", message="There is no such page.", hint="")


def serve(place: Place, access: Access, server: socket.socket) -> None:
    """Serve the dashboard until SIGTERM or SIGINT."""
    app = application(place, access)

    class Server(uvicorn.Server):
        """A server that ends its streams when it is asked to stop, because otherwise it would wait for them."""

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:
            app.state.feed.close()
            super().handle_exit(sig, frame)

    config = uvicorn.Config(
        app, log_config=None, access_log=False, server_header=False, timeout_graceful_shutdown=DRAIN_SECONDS
    )
    asyncio.run(Server(config).serve(sockets=[server]))
