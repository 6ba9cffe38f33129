"""Acting on a configuration. An operator's wish is shown as an event, confirmed, and then published."""

import asyncio
import json
from dataclasses import dataclass
from urllib.parse import quote

import structlog
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from flyball.app.config.loading import UnknownConfig
from flyball.app.core import FlyballError
from flyball.app.dashboard.actions import ACTIONS, Target, draft, fresh_id, publish, reason_of
from flyball.app.dashboard.layout import feed_of, render
from flyball.app.dashboard.session import form_of
from flyball.app.events import Payload

MOST_PENDING = 100
"""Most events that wait for confirmation; older ones expire."""

SEEN_SECONDS = 5.0
"""Longest wait for a published event to come back from the journal."""


class Expired(FlyballError):
    """The action to confirm is unknown. It is too old, for instance, or the dashboard was restarted."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An event that waits for confirmation."""

    key: str
    payload: Payload
    reason: str


async def ask(request: Request) -> Response:
    """Show the event that an action would publish, and ask for confirmation."""
    feed, fields = feed_of(request), await form_of(request)
    key, name = request.path_params["key"], request.path_params["name"]
    with feed.reading() as model:
        if key not in model.board.configs:
            raise UnknownConfig(f"The run does not play {key!r}.", hint="Look at the overview.")
        target = Target.of(model, key)
    if name != "scenario" and name not in ACTIONS:
        return render(request, "error.html", status_code=404, title="Unknown", message=f"No action {name!r}.", hint="")
    payload, effect = await asyncio.to_thread(draft, feed.place, name, target, fields)
    event_id, pending = fresh_id(), request.app.state.pending
    pending[event_id] = Pending(key, payload, reason_of(fields))
    while len(pending) > MOST_PENDING:
        del pending[next(iter(pending))]
    title = f"Play {fields['scenario']}" if name == "scenario" else ACTIONS[name].title
    has_reason = name != "scenario" and ACTIONS[name].has_reason
    data = json.dumps(payload.model_dump(mode="json"), indent=2, ensure_ascii=False)
    values = {"title": title, "effect": effect, "payload": payload, "data": data, "event_id": event_id, "key": key}
    return render(request, "confirm.html", reason=reason_of(fields), has_reason=has_reason, **values)


async def confirm(request: Request) -> Response:
    """Publish the confirmed event once, even if it is confirmed twice, and show it once it is recorded."""
    feed, fields = feed_of(request), await form_of(request)
    event_id = fields.get("event_id", "")
    pending: Pending | None = request.app.state.pending.get(event_id)
    if pending is None:
        raise Expired("There is nothing to confirm: it was asked for too long ago.", hint="Start the action again.")
    position = await publish(feed.place, pending.payload, pending.key, event_id)
    structlog.get_logger("actions").info(
        "operator's action",
        event_id=event_id,
        action=pending.payload.event_name,
        config_key=pending.key,
        reason=pending.reason,
        position=position,
    )
    await feed.reach(position, SEEN_SECONDS)
    return RedirectResponse(f"/event?id={quote(event_id)}&published={position}", status_code=303)


ROUTES = (
    Route("/actions/confirm", confirm, methods=["POST"]),
    Route("/actions/{key}/{name}", ask, methods=["POST"]),
)
