"""The dashboard's server."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from types import FrameType

import uvicorn
from starlette.applications import Starlette

from flyball.app.api.runs import RunLocation
from flyball.app.dashboard import session, stream
from flyball.app.dashboard.access import Access
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.jobs import PageJobs
from flyball.app.dashboard.layout import Page
from flyball.app.dashboard.pages import (
    actions,
    configuration,
    controllers,
    docs,
    events,
    games,
    kept_games,
    league,
    logs,
    overview,
    play,
    report,
    training,
    what_if,
)
from flyball.app.dashboard.pages.actions import Pending
from flyball.app.dashboard.playing import PlayedGames
from flyball.app.dashboard.web import server_config, web_application
from flyball.daemons.supervisor import Notifier

PAGES: tuple[Page, ...] = (
    overview.PAGE,
    configuration.PAGE,
    controllers.PAGE,
    events.PAGE,
    league.PAGE,
    training.PAGE,
    games.PAGE,
    what_if.PAGE,
    logs.PAGE,
    docs.PAGE,
)
"""In the order of the navigation."""

TICKS_PER_SECOND = 10
"""Rate of ``uvicorn.Server.on_tick``."""


def application(place: RunLocation, access: Access, compared: RunLocation | None = None) -> Starlette:
    """Return the dashboard of a run as an ASGI application. ``compared`` is the run that its report compares with."""
    feed, jobs, played = Feed(place), PageJobs(), PlayedGames()
    other = Feed(compared) if compared else None

    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        try:
            async with (
                jobs.running(),
                played.running(),
                feed.following(),
                other.following() if other else nullcontext(),
            ):
                yield
        except BaseException:  # of a task, not of a request
            app.state.broken = True
            raise

    others = (*stream.ROUTES, *session.ROUTES, *actions.ROUTES, *report.ROUTES, *play.ROUTES, *kept_games.ROUTES)
    app = web_application(PAGES, access, others=others, lifespan=lifespan)
    app.state.feed, app.state.other, app.state.jobs, app.state.played = feed, other, jobs, played
    app.state.pending, app.state.broken = dict[str, Pending](), False
    return app


def serve(place: RunLocation, access: Access, server: socket.socket, compared: RunLocation | None = None) -> None:
    """Serve the dashboard until SIGTERM or SIGINT. Exits with 1 if the feed breaks, as pages would go stale."""
    app, notifier = application(place, access, compared), Notifier()

    class Server(uvicorn.Server):
        """A server that ends when its feed breaks.

        It then ends its streams, because otherwise it would wait for them. It notifies systemd that it listens, and
        that its event loop runs.
        """

        async def startup(self, sockets: list[socket.socket] | None = None) -> None:
            await super().startup(sockets)
            notifier.tell("READY=1")

        async def on_tick(self, counter: int) -> bool:
            if counter % TICKS_PER_SECOND == 0:
                notifier.tell("WATCHDOG=1")
            if app.state.broken:
                app.state.feed.close()
            return await super().on_tick(counter) or app.state.broken

        def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - uvicorn's signature
            """End in order; a second signal does not wait.

            With uvicorn's own handler, the process would end as if killed by the signal.
            """
            notifier.tell("STOPPING=1")
            app.state.feed.close()
            self.force_exit, self.should_exit = self.should_exit, True

    asyncio.run(Server(server_config(app)).serve(sockets=[server]))
    if app.state.broken:
        raise SystemExit(1)
