"""``flyball state``: a configuration's FeedbackState, each value with the event that set it."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import click
from rich.text import Text

from app.api.runs import Place, check_config, check_played, open_run
from app.cli.options import json_option, placed
from app.cli.output import complain, show, show_table, show_time, write_json
from app.config import PARAMETERS
from app.controllers import RatingPoint
from app.controllers.lineage import Champion, DistributedModel
from app.core import ConfigKey, FlyballError
from app.events import Cause, Event, MatchmakingUpdated, OpponentPick, Payload, Row
from app.journal import history
from app.journal.history import voided_events
from app.status.state import FIELDS, STATE_READS, Field, state_fields
from app.status.summary import event_text, short

UNSET = frozenset({"training_block", "boost_set_by", "matchmaking", "training", "candidate", "distributed"})
"""Fields whose ``None`` means "none", not "unknown"."""

COLUMNS = ("field", "value", "set by", "event", "at")
"""Columns of a table of fields: the event's name, id and time, which are empty for initial values."""

BRIEF_PICKS = 2
"""Opponents that the table names; ``flyball state KEY matchmaking`` names all."""


class UnknownField(FlyballError):
    """FeedbackState has no field of this name."""


@click.command()
@click.argument("config_key", metavar="CONFIG")
@click.argument("field", required=False)
@json_option
@placed
def state(place: Place, config_key: str, field: str | None, *, as_json: bool) -> None:
    """Show the FeedbackState of CONFIG, or one FIELD of it: each value with the event that set it.

    `flyball trace ID` shows what led to that event.
    """
    with open_run(place) as reader:
        check_config(reader, config_key)
        check_played(reader, place, config_key)
        if field is not None and field not in FIELDS:
            raise UnknownField(f"FeedbackState has no field {field!r}.", hint=f"It has: {', '.join(FIELDS)}.")
        events = history(reader, types=STATE_READS, on_dead=complain)
        fields = state_fields(events, ConfigKey(config_key), frozenset(voided_events(reader)))
    if field is not None:
        fields = {field: fields[field]}
    if as_json:
        write_json({name: _written(one) for name, one in fields.items()})
    elif field is not None:
        _show_field(field, fields[field])
    else:
        show_table(COLUMNS, field_rows(fields), left=COLUMNS)


def field_rows(fields: Mapping[str, Field]) -> list[tuple[str, str, str, str, str]]:
    """Return the rows of a table of fields; see ``COLUMNS``."""
    return [(name, _shown(name, _brief(one.value), one), *_set_by(one.event)) for name, one in fields.items()]


def _show_field(name: str, field: Field) -> None:
    parts = field.value if isinstance(field.value, tuple) and field.value else (field.value,)
    for part in parts:
        show(Text(f"{name}  {_shown(name, part, field)}"))
    if field.event is None:
        show(Text("No event has set it yet."))
    else:
        show(Text("set by ").append_text(event_text(field.event)), Text(f"flyball trace {short(field.event.id)}"))


def _set_by(event: Event[Any] | None) -> tuple[str, str, str]:
    return ("", "", "") if event is None else (event.data.event_name, short(event.id), _text(event.recordedtime))


def _written(field: Field) -> dict[str, Any]:
    notes = {"fixed": field.fixed, "owner": field.owner}
    known = {name: note for name, note in notes.items() if note is not None}
    return {"value": _json(field.value), "event": _origin(field.event), **known}


def _origin(event: Event[Any] | None) -> dict[str, Any] | None:
    if event is None:
        return None
    return {
        "name": event.data.event_name,
        "id": event.id,
        "sequence": event.sequence,
        "recordedtime": event.recordedtime.isoformat(),
    }


def _json(value: Any) -> Any:
    match value:
        case tuple():
            return [_json(one) for one in value]
        case Row():
            return value.to_builtins()
        case Payload():
            return value.model_dump(mode="json")
        case datetime():
            return value.isoformat()
    return value


def _brief(value: Any) -> Any:
    """Return a value as the table shows it: a matchmaking by its likeliest opponents."""
    if not isinstance(value, MatchmakingUpdated) or len(value.picks) <= BRIEF_PICKS + 1:
        return value
    likeliest = sorted(value.picks, key=lambda pick: -pick.probability)[:BRIEF_PICKS]
    return f"{_picks(likeliest)}, {len(value.picks) - BRIEF_PICKS} more"


def _picks(picks: Sequence[OpponentPick]) -> str:
    return ", ".join(f"{_text(pick.agent)} {pick.probability:.0%}" for pick in picks)


def _shown(name: str, value: Any, field: Field) -> str:
    """Return a field's value as text, with its owner if it was taken over; an undecided knob is "as configured"."""
    text = _text(value)
    if value is None and name in PARAMETERS:
        text = f"as configured; {field.fixed}" if field.fixed else "as configured"
    elif value is None and name in UNSET:
        text = "none"
    return f"{text}; owned by {field.owner}" if field.owner else text


def _text(value: Any) -> str:  # noqa: C901 - one case a kind of value
    match value:
        case None:
            return "unknown"
        case datetime():
            return show_time(value)
        case float():
            return f"{value:.4g}"
        case tuple():
            return f"{len(value)} in all"
        case RatingPoint():
            return f"{_text(value.time)}  {value.elo:+.0f} ± {value.stderr:.0f} Elo"
        case Champion():
            rating = "" if value.elo is None else f"  {value.elo:+.0f} ± {value.elo_stderr:.0f} Elo"
            return f"{short(value.model)}  step {value.step}{rating}"
        case DistributedModel():
            return f"{short(value.model)}  step {value.step}"
        case MatchmakingUpdated():
            return _picks(value.picks)
        case Cause():
            return short(value.id)
    return short(value) if isinstance(value, str) and len(value) in {32, 64} else str(value)
