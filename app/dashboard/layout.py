"""The frame around every page, and the pages' templates."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from flyball.app.api.commands import completed, flyball_anywhere
from flyball.app.config.loading import UnknownConfig
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.marks import NAMES
from flyball.app.status.status import ConfigStatus
from flyball.app.status.summary import (
    UNKNOWN,
    short,
    show_age,
    show_clock,
    show_emitter,
    show_outcome,
    show_time,
    summarise,
)
from flyball.app.status.watched import acts_text, amount, waits_text

HERE = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class Page:
    """A page of the dashboard.

    Attributes:
        path: of its URL; it is in the navigation.
        title: in the navigation.
        routes: what serves the page, and its parts.
        keyed: whether it shows one configuration, named by ``key`` in its query.
    """

    path: str
    title: str
    routes: Sequence[Route]
    keyed: bool = False


def figure(value: float | None, form: str = ",.0f") -> str:
    """Return a number formatted by ``format``; a dash when unknown."""
    return UNKNOWN if value is None else format(value, form)


def breakable(name: str) -> Markup:
    """Return a name that may be broken before each part: after underscores, before capitals."""
    return Markup("<wbr>").join(re.split(r"(?<=_)|(?<=[a-z])(?=[A-Z])", name))


def _environment() -> Environment:
    """Return the environment of the templates. All inserted values are escaped, and an unknown name is an error."""
    environment = Environment(
        loader=FileSystemLoader(HERE / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "short": short,
        "breakable": breakable,
        "age": show_age,
        "figure": figure,
        "outcome": show_outcome,
        "summarise": summarise,
        "emitter": show_emitter,
        "completed": completed,
        "clock": show_clock,
        "time": show_time,
        "amount": amount,
        "acts": acts_text,
        "waits": waits_text,
        "mark_name": NAMES.__getitem__,
    }
    return environment


templates = _environment()


def whole_number(text: str) -> int | None:
    """Return a number in a query or header, for instance a position. ``None`` for anything else."""
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 19 else None  # it fits into 64 bits


def feed_of(request: Request) -> Feed:
    """Return the feed that the dashboard shows."""
    feed: Feed = request.app.state.feed
    return feed


def render(request: Request, template: str, *, status_code: int = 200, **values: Any) -> Response:
    """Render a template: a whole page extends ``base.html``; a part that a page refreshes does not."""
    feed: Feed | None = request.app.state.feed  # None: the server has documents only
    access = request.app.state.access
    shown = feed if request.state.may_act or not access.private else None
    text = templates.get_template(template).render(
        {"key": ""}
        | values
        | {
            "pages": request.app.state.pages,
            "path": request.url.path,
            "is_live": feed is not None,
            "run": shown.place.folder.path.absolute().name if shown else "",
            "start": flyball_anywhere(feed.place.folder.path, feed.place.config_file) if feed else "flyball",
            "position": shown.model.position if shown else 0,
            "settings": shown.model.board.settings if shown else None,
            "head": shown.head if shown else 0,
            "trouble": shown.trouble if shown else "",
            "running": shown.broker.running if shown else None,
            "may_act": request.state.may_act,
            "has_token": access.token is not None,
        }
    )
    # Logs may have lone surrogates, from names of files, and UTF-8 cannot encode these.
    return HTMLResponse(text.encode(errors="replace"), status_code=status_code)


def played_configs(request: Request) -> dict[str, ConfigStatus]:
    """Return the status of the run's configurations by their keys. The caller is ``reading``.

    Raises:
        UnknownConfig: the path names another configuration.
    """
    configs = {config.key: config for config in feed_of(request).status().configs}
    if (key := request.path_params["key"]) not in configs:
        raise UnknownConfig(f"The run does not play {key!r}.", hint=f"It plays {', '.join(configs)}.")
    return configs


def to_config(request: Request) -> Response:
    """Redirect to the page under this path of the query's configuration, or else of the run's first one."""
    with feed_of(request).reading():
        keys = [config.key for config in feed_of(request).status().configs]
    if not keys:
        return render(request, "configuration_none.html")
    asked = request.query_params.get("key")  # a tab may remember one of another run
    return RedirectResponse(f"{request.url.path}/{quote(asked if asked in keys else keys[0])}", status_code=303)
