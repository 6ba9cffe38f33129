"""FeedbackState by configuration, each field with the event that set it."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from flyball.app.backends import reason_fixed
from flyball.app.config import KNOBS, PARAMETERS, Knob
from flyball.app.controllers import FeedbackFold, FeedbackState, Lineage
from flyball.app.controllers.fold import Fold
from flyball.app.controllers.knobs import configured
from flyball.app.core import ConfigKey
from flyball.app.events import Event, EventVoided, Payload, RunConfigured
from flyball.app.events.frames import DeadLetter
from flyball.app.journal import JournalReader, history
from flyball.app.journal.history import voided_events

OnDead = Callable[[DeadLetter], None]
"""Receives an event that cannot be read."""

STATE_READS: frozenset[type[Payload]] = FeedbackFold.reads | {EventVoided, RunConfigured}
"""Event types that the state is folded from."""

FIELDS = (*(name for name in FeedbackState.__struct_fields__ if name != "lineage"), *Lineage.__struct_fields__)
"""Names of the shown fields. The lineage's own fields replace the field ``lineage``."""


SHOWN_KNOBS: Mapping[str, tuple[Knob, ...]] = {
    **{knob: (knob,) for knob in KNOBS if knob in FIELDS},
    "current_model": ("promotion", "rollback"),
    "champions": ("promotion", "rollback"),
}
"""The knobs that fields show."""


class Field(NamedTuple):
    """A field of the state.

    Attributes:
        value: the value.
        event: the event that set it; ``None``: the value is the initial one.
        fixed: why the feedback does not change this parameter; ``None``: it may, or the field is no parameter.
        owner: the user's own controllers that took its knobs over; ``None``: there are none.
    """

    value: Any
    event: Event[Any] | None
    fixed: str | None = None
    owner: str | None = None


class StateFields:
    """The FeedbackState fields of all configurations, folded from ``STATE_READS`` events."""

    def __init__(self, voided: frozenset[int]) -> None:
        self._fold = Fold((FeedbackFold,), voided=voided)
        self._seen: dict[str, FeedbackState] = {}
        self._fields: dict[str, dict[str, Field]] = {}

    def take(self, event: Event[Any]) -> None:
        """Fold the next event."""
        self._fold.feed((event,))
        states = self._fold.states
        for key in (event.subject,) if event.subject else tuple(states):
            before, after = self._seen.get(key), states.get(key)
            if after is None or after is before:
                continue
            self._seen[key] = after
            fields = self._fields.get(key) or self._fields.setdefault(key, _initial(key))
            for name, field in fields.items():
                if (value := _value(after, name)) is not field.value and value != field.value:
                    as_configured = _is_as_configured(name, field, value, self._fold, ConfigKey(key))
                    fields[name] = Field(value, None if as_configured else event)

    def of(self, config_key: str) -> dict[str, Field]:
        """Return the fields of one configuration, by name."""
        fields = dict(self._fields.get(config_key) or _initial(config_key))
        settings = self._fold.settings
        if settings and config_key in settings:
            config = settings.config(config_key)
            fields |= {name: fields[name]._replace(fixed=reason_fixed(name, config)) for name in PARAMETERS}
            taken = settings.taken_over
            for name, knobs in SHOWN_KNOBS.items():
                names = dict.fromkeys(taken[knob] for knob in knobs if knob in taken)
                fields[name] = fields[name]._replace(owner=" and ".join(names) or None)
        return fields


def _initial(config_key: str) -> dict[str, Field]:
    state = FeedbackState(config_key=ConfigKey(config_key))
    return {name: Field(_value(state, name), None) for name in FIELDS}


def informative(config_key: str, fields: Mapping[str, Field]) -> dict[str, Field]:
    """Return the fields whose value is known and is not that of a new configuration, and those with a note."""
    initial = _initial(config_key)
    return {
        name: field
        for name, field in fields.items()
        if field.fixed or field.owner or (field.value is not None and field.value != initial[name].value)
    }


def state_fields(reader: JournalReader, config_key: ConfigKey, on_dead: OnDead) -> dict[str, Field]:
    """Fold a journal into the fields of a configuration's FeedbackState, by name."""
    fields = StateFields(frozenset(voided_events(reader)))
    for event in _events(reader, config_key, on_dead):
        fields.take(event)
    return fields.of(config_key)


def _is_as_configured(name: str, before: Field, value: Any, fold: Fold, key: ConfigKey) -> bool:
    """Return whether an event left a parameter as configured. It may name parameters that it does not change."""
    settings = fold.settings
    if before.value is not None or name not in PARAMETERS or settings is None or key not in settings:
        return False
    return bool(value == configured(name, settings, key))


def feedback_state(reader: JournalReader, config_key: ConfigKey, on_dead: OnDead) -> FeedbackState:
    """Fold a journal into a configuration's FeedbackState."""
    fold = Fold((FeedbackFold,), voided=frozenset(voided_events(reader)))
    fold.feed(_events(reader, config_key, on_dead))
    return fold.states.get(config_key, FeedbackState(config_key=config_key))


def _events(reader: JournalReader, config_key: ConfigKey, on_dead: OnDead) -> Iterator[Event[Any]]:
    """Iterate over the events that a configuration's state depends on."""
    for event in history(reader, types=STATE_READS, on_dead=on_dead):
        if event.envelope.subject in (None, config_key):
            yield event


def _value(state: FeedbackState, name: str) -> Any:
    return getattr(state.lineage if name in Lineage.__struct_fields__ else state, name)
