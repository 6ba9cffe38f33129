"""The server of the documentation alone, which needs no run."""

import socket

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flyball.app.core.hosts import LOOPBACK_NAMES
from flyball.app.dashboard.access import Access
from flyball.app.dashboard.pages import docs
from flyball.app.dashboard.web import server_config, web_application


def documentation() -> Starlette:
    """Return the documentation as an ASGI application, for this machine only."""
    access = Access(LOOPBACK_NAMES, token=None, private=False)
    return web_application((docs.PAGE,), access, others=(Route("/", _first),))


def _first(_: Request) -> Response:
    return RedirectResponse(docs.PAGE.path, status_code=303)


def serve(server: socket.socket) -> None:
    """Serve the documentation until SIGTERM or SIGINT."""
    uvicorn.Server(server_config(documentation())).run(sockets=[server])
