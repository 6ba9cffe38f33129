"""A run folder's dashboard, for a browser or a test client."""

import asyncio
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import uvicorn
from recorded_run import write_journal
from starlette.applications import Starlette
from starlette.testclient import TestClient

from flyball.app.api.runs import locate_run
from flyball.app.config.dashboard import DashboardSettings
from flyball.app.dashboard.access import Access, listen, url_of
from flyball.app.dashboard.server import application
from flyball.app.events import Event

TOKEN = "a token of enough characters"
LOCAL = frozenset({"localhost", "127.0.0.1", "testserver"})


def dashboard_of(
    folder: Path, token: str | None = None, *, private: bool = False, compared: Path | None = None
) -> Starlette:
    """Return the dashboard of a run, perhaps with another one to compare it with."""
    other = None if compared is None else locate_run(compared)
    return application(locate_run(folder), Access(LOCAL, token, private), other)


def append(folder: Path, events: Sequence[Event[Any]]) -> None:
    """Record more events of a run, as its broker would."""
    write_journal(folder / "journal.sqlite", events)


def caught_up(client: TestClient, position: int) -> TestClient:
    """Wait until a dashboard has read its journal up to a position; return its client."""
    while client.app.state.feed.model.position < position:
        time.sleep(0.01)
    return client


@contextmanager
def served(folder: Path, token: str | None = None, port: int = 0, compared: Path | None = None) -> Iterator[str]:
    """Serve the dashboard of a run in a thread; yield its URL. The URL has no slash at its end."""
    app = dashboard_of(folder, token, compared=compared)
    loops: list[asyncio.AbstractEventLoop] = []
    with listen(DashboardSettings(port=port)) as socket:
        server = uvicorn.Server(uvicorn.Config(app, log_config=None, timeout_graceful_shutdown=1))

        async def serve() -> None:
            loops.append(asyncio.get_running_loop())
            await server.serve(sockets=[socket])

        thread = threading.Thread(target=lambda: asyncio.run(serve()), daemon=True)
        thread.start()
        try:
            while not (server.started and app.state.feed.head == app.state.feed.model.position > 0):
                assert thread.is_alive()
                time.sleep(0.02)
            yield url_of(socket).rstrip("/")
        finally:
            server.should_exit = True
            loops[0].call_soon_threadsafe(app.state.feed.close)
            thread.join(30)
            assert not thread.is_alive()
