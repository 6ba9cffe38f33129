"""Configuration: signals, knobs and lineage of one configuration. Each value is shown with the event that set it."""

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from flyball.app.config import KNOBS
from flyball.app.controllers import Lineage
from flyball.app.controllers.emitters import OWNERS
from flyball.app.dashboard.actions import ACTIONS, Target
from flyball.app.dashboard.feed import Feed
from flyball.app.dashboard.layout import Page, feed_of, played_configs, render, to_config
from flyball.app.dashboard.recorded import causes_of, event_of
from flyball.app.events import Event
from flyball.app.scenarios import SCENARIOS
from flyball.app.status.state import FIELDS, SHOWN_KNOBS, Field
from flyball.app.status.summary import show_time
from flyball.app.status.values import brief, shown
from flyball.daemons.clock import SystemClock

UNITS: Mapping[str, str] = {
    "elo_current": "Elo",
    "elo_stderr": "Elo",
    "elo_peak": "Elo",
    "elo_trend": "Elo",
    "elo_velocity": "Elo/h",
    "elo_velocity_stderr": "Elo/h",
    "elo_gain": "Elo per worker second",
    "elo_gain_stderr": "Elo per worker second",
    "data_freshness_hours": "h",
    "boost_lasts_seconds": "s",
}
KNOB_FIELDS = frozenset({name for name in SHOWN_KNOBS if name in KNOBS} | {"boost_lasts_seconds", "boost_set_by"})

MARKS_LISTED = 40
"""Latest marks and bands of the rating curve that are listed beside it."""


class ShownField(NamedTuple):
    """A field as a row of a table.

    Attributes:
        name: the field.
        value: as text.
        unit: of the value; an empty string without one.
        owner: the controller that sets it; an empty string for signals.
        until: when the value ends by itself, as text after "until"; an empty string if it does not or has ended.
        event: the event that set it; ``None``: the value is the initial one.
        parts: the value's parts as texts, if it has several.
    """

    name: str
    value: str
    unit: str
    owner: str
    until: str
    event: Event[Any] | None
    parts: tuple[str, ...]


def fields_of(feed: Feed, key: str) -> dict[str, list[ShownField]]:
    """Return the rows of a configuration, by their table's heading. The caller is inside ``feed.reading()``."""
    tables: dict[str, list[ShownField]] = {"Signals": [], "Knobs": [], "Lineage": []}
    fields = feed.model.states.of(key)
    for name in FIELDS:
        if name != "config_key":
            heading = "Lineage" if name in Lineage.__struct_fields__ or name == "current_model" else "Signals"
            heading = "Knobs" if name in KNOB_FIELDS else heading
            tables[heading].append(_shown(name, fields[name], fields))
    return tables


def _shown(name: str, field: Field, fields: Mapping[str, Field]) -> ShownField:
    value, plain = field.value, field._replace(owner=None)
    several = value if isinstance(value, tuple) else ()
    owner = field.owner or OWNERS.get(name, "") if name in KNOB_FIELDS else ""
    return ShownField(
        name,
        shown(name, brief(value), plain),
        "" if value is None else UNITS.get(name, ""),
        owner,
        _until(name, fields),
        field.event,
        tuple(shown(name, part, plain) for part in reversed(several)),
    )


def _until(name: str, fields: Mapping[str, Field]) -> str:
    """Return the time at which a boost ends by itself."""
    field = fields[name]
    if name != "exploration_boost" or field.event is None or field.value == 1:
        return ""
    end = field.event.recordedtime + timedelta(seconds=fields["boost_lasts_seconds"].value)
    return f"{show_time(end)}, if not lifted before" if end > SystemClock().now() else ""


def configuration(request: Request) -> Response:
    """Show the page."""
    values = _values(request)
    with feed_of(request).reading() as model:
        target = Target.of(model, values["key"])
    return render(request, "configuration.html", scenarios=SCENARIOS, actions=ACTIONS, target=target, **values)


def state(request: Request) -> Response:
    """Show the tables, which the page refreshes."""
    return render(request, "configuration_state.html", **_values(request))


def _values(request: Request) -> dict[str, Any]:
    feed, key = feed_of(request), request.path_params["key"]
    with feed.reading() as model:
        configs = played_configs(request)
        return {
            "key": key,
            "keys": list(configs),
            "config": configs[key],
            "tables": fields_of(feed, key),
            "marks": model.curves[key].marks.rows(MARKS_LISTED) if key in model.curves else [],
        }


def why(request: Request) -> Response:
    """Show an event and what led to it, nearest first."""
    feed = feed_of(request)
    event = event_of(feed, request.query_params.get("id", ""))
    chain = causes_of(feed, event)
    return render(request, "why.html", chain=chain, more=chain[-1].envelope.causationid)


PAGE = Page(
    "/configuration",
    "Configuration",
    (
        Route("/configuration", to_config),
        Route("/configuration/{key}", configuration),
        Route("/configuration/{key}/state", state),
        Route("/why", why),
    ),
    keyed=True,
)
