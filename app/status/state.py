"""FeedbackState of one configuration, each field with the event that set it."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from app.controllers import FeedbackFold, FeedbackState
from app.controllers.fold import Fold
from app.core import ConfigKey
from app.events import Event, EventVoided, Payload, RunConfigured

STATE_READS: frozenset[type[Payload]] = FeedbackFold.reads | {EventVoided, RunConfigured}
"""The events that decide the state."""


class Field(NamedTuple):
    """A field's value, and the event that set it; no event: the value is the one that it begins with."""

    value: Any
    event: Event[Any] | None


def state_fields(events: Iterable[Event[Any]], config_key: ConfigKey, voided: frozenset[int]) -> dict[str, Field]:
    """Return the fields of a configuration's FeedbackState by name, folded from all events of ``STATE_READS``."""
    fold = Fold((FeedbackFold,), voided=voided)
    state = FeedbackState(config_key=config_key)
    fields = {name: Field(getattr(state, name), None) for name in FeedbackState.__struct_fields__}
    for event in events:
        if event.envelope.subject not in (None, config_key):
            continue
        fold.feed((event,))
        after = fold.rows(FeedbackFold.name).get(config_key, state)
        for name, field in fields.items() if after is not state else ():
            if getattr(after, name) != field.value:
                fields[name] = Field(getattr(after, name), event)
        state = after
    return fields
