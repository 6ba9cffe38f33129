"""``flyball state``: a configuration's FeedbackState. Each value is shown with the event that set it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import click
from rich.text import Text

from flyball.app.api.runs import RunLocation, check_config, check_played, open_run, settings_shown
from flyball.app.cli.options import json_option, run_options
from flyball.app.cli.output import NARROW, complain, note, show, show_table, stdout_console, write_json
from flyball.app.config import RunSettings
from flyball.app.core import ConfigKey, FlyballError, suggest
from flyball.app.events import Event, Payload, Row
from flyball.app.status.state import FIELDS, Field, informative, state_fields
from flyball.app.status.summary import event_text, short, show_clock
from flyball.app.status.values import brief, shown, value_text

COLUMNS = ("field", "value", "set by", "event", "at")
"""Columns of a table of fields. The event's name, id and time are empty for initial values."""


class UnknownField(FlyballError, code="unknown"):
    """FeedbackState has no field of this name."""


@click.command()
@click.argument("config_key", metavar="CONFIG")
@click.argument("field", required=False)
@click.option("--all", "whole", is_flag=True, help="Show also fields that are unknown or at their defaults.")
@json_option
@run_options
def state(location: RunLocation, config_key: str, field: str | None, *, whole: bool, as_json: bool) -> None:
    """Show the FeedbackState of CONFIG, or one FIELD of it.

    Each value is shown with the event that set it. `flyball trace ID` shows what led to that event. Fields that are
    unknown, or at their defaults as in a new configuration, are shown with --all; JSON always has all fields.
    """
    with open_run(location) as reader:
        check_config(reader, config_key)
        check_played(reader, location, config_key)
        if field is not None and field not in FIELDS:
            raise UnknownField(f"FeedbackState has no field {field!r}.", hint=suggest(field, FIELDS, "It has: "))
        fields, settings = state_fields(reader, ConfigKey(config_key), complain), settings_shown(reader)
    if field is not None:
        fields = {field: fields[field]}
    if as_json:
        write_json({name: _field_json(value) for name, value in fields.items()})
    elif field is not None:
        _show_field(location, field, fields[field], settings)
    else:
        chosen = fields if whole else informative(config_key, fields)
        is_narrow = stdout_console().width < NARROW
        show_table(COLUMNS, field_rows(chosen, with_date=not is_narrow), left=COLUMNS, uncut=("field", "event", "at"))
        if hidden := len(fields) - len(chosen):
            what = f"Hidden: {hidden} of {len(fields)} fields, which are unknown or at their defaults."
            note(f"{what} Show all: {location.command('state', config_key, '--all')}")


def field_rows(fields: Mapping[str, Field], *, with_date: bool = True) -> list[tuple[str, str, str, str, str]]:
    """Return the rows of a table of fields; see ``COLUMNS``."""
    return [
        (name, shown(name, brief(field.value), field), *_set_by(field.event, with_date=with_date))
        for name, field in fields.items()
    ]


def _show_field(location: RunLocation, name: str, field: Field, settings: RunSettings | None) -> None:
    parts = field.value if isinstance(field.value, tuple) and field.value else (field.value,)
    for part in parts:
        show(Text(f"{name}  {shown(name, part, field)}"))
    if field.event is None:
        show(Text("No event has set it yet."))
    else:
        set_by = Text("set by ").append_text(event_text(field.event, settings))
        show(set_by, Text(location.command("trace", short(field.event.id))))


def _set_by(event: Event[Any] | None, *, with_date: bool) -> tuple[str, str, str]:
    if event is None:
        return "", "", ""
    time = value_text(event.recordedtime) if with_date else show_clock(event.recordedtime)
    return event.data.event_name, short(event.id), time


def _field_json(field: Field) -> dict[str, Any]:
    notes = {"fixed": field.fixed, "owner": field.owner}
    notes_that_apply = {name: note for name, note in notes.items() if note is not None}
    return {"value": _value_json(field.value), "event": _event_json(field.event), **notes_that_apply}


def _event_json(event: Event[Any] | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {
        "name": event.data.event_name,
        "id": event.id,
        "sequence": event.sequence,
        "recordedtime": event.recordedtime.isoformat(),
    }


def _value_json(value: Any) -> Any:
    match value:
        case tuple():
            return [_value_json(part) for part in value]
        case Row():
            return value.to_builtins()
        case Payload():
            return value.model_dump(mode="json")
        case datetime():
            return value.isoformat()
    return value
