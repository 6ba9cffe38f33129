"""Every event type there is, by class, by CloudEvents type and by event name."""

from difflib import get_close_matches
from inspect import getmembers, isclass
from typing import Any, Literal, cast

from pydantic import create_model

from app.core import FlyballError
from app.events import decisions, facts, requests
from app.events.envelope import EnvelopeModel
from app.events.payload import TYPE_PREFIX, Payload


class UnknownEventType(FlyballError):
    """No event type has this name."""


def _collect() -> tuple[type[Payload], ...]:
    modules = (facts, requests, decisions)
    members = {member for module in modules for _, member in getmembers(module, isclass)}
    return tuple(
        sorted(
            (m for m in members if issubclass(m, Payload) and "event_type" in vars(m)),
            key=lambda payload: payload.event_type,
        )
    )


CATALOGUE: tuple[type[Payload], ...] = _collect()
"""All payload classes, sorted by type."""

BY_TYPE: dict[str, type[Payload]] = {payload.event_type: payload for payload in CATALOGUE}
BY_NAME: dict[str, type[Payload]] = {payload.event_name: payload for payload in CATALOGUE}


def _concrete(payload: type[Payload]) -> type[EnvelopeModel[Any]]:
    fields: dict[str, Any] = {
        "type": (Literal[payload.event_type], ...),
        "dataversion": (Literal[payload.dataversion], ...),
        "data": (payload, ...),
    }
    model = create_model(f"{payload.__name__}Envelope", __base__=EnvelopeModel[payload], **fields)  # type: ignore[valid-type]
    return cast("type[EnvelopeModel[Any]]", model)


ENVELOPES: dict[str, type[EnvelopeModel[Any]]] = {payload.event_type: _concrete(payload) for payload in CATALOGUE}
"""The model of each event type's envelope: the JSON Schemas are made from them."""


def resolve(name: str) -> type[Payload]:
    """Find a payload class by its type (``flyball.training.completed``, the prefix may be left out) or its seed
    name (``TRAINING_COMPLETED``).

    Raises:
        UnknownEventType: nothing is called so; the message names the nearest.
    """
    found = BY_TYPE.get(name) or BY_TYPE.get(TYPE_PREFIX + name) or BY_NAME.get(name.upper())
    if found is None:
        near = get_close_matches(name, BY_TYPE, n=1) if "." in name else get_close_matches(name.upper(), BY_NAME, n=1)
        hint = f"Did you mean {near[0]}?" if near else "List them with: flyball events list"
        raise UnknownEventType(f"There is no event type {name!r}.", hint=hint)
    return found
