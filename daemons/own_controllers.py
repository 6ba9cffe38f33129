"""Controllers of the user's own, which the settings name (ADR-033)."""

import sys
from collections.abc import Iterable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from flyball.app.config import BadSettings, RunSettings
from flyball.app.controllers import Controller
from flyball.app.controllers.controller import Origin
from flyball.app.controllers.fold import HOST
from flyball.app.core import UnknownPlugin, load_plugin, misspelling_hint, misspelt
from flyball.app.events import Payload, Row
from flyball.daemons.saved_state import PROGRESS_KEY, READY_KEY

CONTROLLERS = "flyball.controllers"
"""Group of entry points that are controllers."""

RESERVED = frozenset({HOST, PROGRESS_KEY[0], READY_KEY[0], "replay"})
"""Names under which hosts, archives and replays save rows of their own."""


def own_controllers(settings: Iterable[RunSettings]) -> tuple[type[Controller], ...]:
    """Return the controllers that any of these settings name.

    Each class has the name of its table. Raises ``BadSettings``, which names the table and the class.
    """
    tables = dict.fromkeys((name, table.use) for run in settings for name, table in run.controllers.items())
    return tuple(_load(name, use) for name, use in tables)


@cache
def _load(name: str, use: str) -> type[Controller]:
    if name in RESERVED:
        raise BadSettings(f"No controller can be named {name!r}.", hint=f"Rename the table controllers.{name}.")
    try:
        controller = load_plugin(CONTROLLERS, use)
    except UnknownPlugin as error:
        raise BadSettings(f"controllers.{name}: {error.message}", hint=error.hint) from error
    file = getattr(sys.modules.get(getattr(controller, "__module__", "")), "__file__", None)
    where = f"controllers.{name} ({use}{f' in {file}' if file else ''})"
    _check_class(controller, where)
    digest = sha256(Path(file).read_bytes()).hexdigest() if file else ""
    attributes = {
        "name": name,
        "origin": Origin(use, where, digest),
        "emits": frozenset(controller.emits),
        "__module__": __name__,
    }
    return type(controller.__name__, (controller,), attributes | {"__setattr__": _refuse_memory})


def _refuse_memory(_: Any, name: str, value: Any) -> None:
    """Refuse state outside of rows, which replays and restarted daemons would lack."""
    raise TypeError(f"{name} = {value!r} would be lost at a restart: keep it in a row")


def _check_class(controller: Any, where: str) -> None:
    """Check what a controller declares."""
    if not isinstance(controller, type) or not issubclass(controller, Controller):
        raise BadSettings(
            f"{where} is not a controller: {controller!r}.", hint="Name a subclass of flyball.Controller."
        )
    if unknown := misspelt(controller, Controller):
        raise BadSettings(f"{where} has {unknown[0]}, which no controller has.", hint=misspelling_hint(*unknown))
    if not controller.reads:
        raise BadSettings(f"{where} handles no event.", hint="Mark its methods with @handles(EventType).")
    emits = getattr(controller, "emits", None)
    if not isinstance(emits, set | frozenset) or not all(_is_payload(kind) for kind in emits):
        raise BadSettings(
            f"{where} does not declare what it emits.", hint="Write: emits = frozenset({HyperparameterUpdated})."
        )
    try:
        if not issubclass(controller.row, Row):
            raise TypeError(f"{controller.row!r} is not a Row")  # noqa: TRY301 - reported like a row type without a schema
        controller.row.json_schema()
    except Exception as error:  # msgspec raises various errors for types that it cannot save
        raise BadSettings(
            f"{where} has rows that cannot be saved: {error}.",
            hint="Write: class MyRow(Row, frozen=True), with fields of plain types, tuples, dicts or other rows.",
        ) from error


def _is_payload(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Payload)
