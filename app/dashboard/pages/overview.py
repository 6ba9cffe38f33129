"""Overview: all configurations, daemons, and what needs attention."""

from collections import Counter
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from flyball.app.dashboard.curves import ConfigCurves
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.layout import Page, feed_of, render
from flyball.app.status.status import ConfigStatus

RATING_POINTS = 240
"""Most points of a rating curve. A chart is only a few hundred pixels wide."""


def card_of(feed: Feed, config: ConfigStatus) -> dict[str, Any]:
    """Return a card's content: a configuration's status, and values of its FeedbackState."""
    fields = feed.model.states.of(config.key)
    return {
        "config": config,
        "quality": fields["quality_score"].value,
        "intensity": fields["training_intensity"].value,
        "weight": fields["curriculum_weight"].value,
    }


def summary_of(feed: Feed) -> dict[str, Any]:
    """Return the figures of the whole run."""
    status = feed.status()
    states = Counter(daemon.state for daemon in status.daemons)
    return {
        "status": status,
        "states": states,
        "games_per_second": sum(config.games_per_second or 0 for config in status.configs),
        "jobs": sum(daemon.jobs or 0 for daemon in status.daemons),
        "capacity": sum(daemon.capacity for daemon in status.daemons),
        "waiting": [config for config in status.configs if config.waiting_for],
        "notable": list(feed.model.notable),
        "broker_trouble": feed.broker.trouble,
    }


def overview(request: Request) -> Response:
    """Show the page."""
    feed = feed_of(request)
    with feed.reading():
        summary = summary_of(feed)
        cards = [card_of(feed, config) for config in summary["status"].configs]
    return render(request, "overview.html", cards=cards, **summary)


def card(request: Request) -> Response:
    """Show the figures of one configuration, which the page refreshes."""
    feed = feed_of(request)
    with feed.reading():
        config = next((config for config in feed.status().configs if config.key == request.path_params["key"]), None)
        values = config and card_of(feed, config)
    return render(request, "overview_card.html", card=values) if values else Response(status_code=404)


def part(request: Request) -> Response:
    """Show a part that concerns the whole run, which the page refreshes."""
    feed = feed_of(request)
    with feed.reading():
        summary = summary_of(feed)
    return render(request, f"overview_{request.url.path.rsplit('/', 1)[-1]}.html", **summary)


def ratings(request: Request) -> Response:
    """Return a configuration's rating curve; an empty response if the query's ``have`` names its present tag."""
    with feed_of(request).reading() as model:
        curves = model.curves.get(request.path_params["key"]) or ConfigCurves()
        tag = f"{len(curves.elo.times)} {curves.marks.last}"
        if request.query_params.get("have") == tag:
            return Response(status_code=204)
        return JSONResponse(curves.ratings(RATING_POINTS) | {"tag": tag})


def shares(request: Request) -> Response:
    """Return the shares of worker time; an empty response if the query's ``have`` names their present tag."""
    with feed_of(request).reading() as model:
        tag, settings = model.shares.tag, model.board.settings
        if request.query_params.get("have") == tag:
            return Response(status_code=204)
        keys = [config.key for config in settings.configs] if settings else []
        return JSONResponse(model.shares.to_json(keys) | {"tag": tag})


PAGE = Page(
    "/",
    "Overview",
    (
        Route("/", overview),
        Route("/overview/card/{key}", card),
        *(Route(f"/overview/{name}", part, name=name) for name in ("summary", "daemons", "notable")),
        Route("/curves/ratings/{key}", ratings),
        Route("/curves/shares", shares),
    ),
)
