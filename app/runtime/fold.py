"""Hosting reducers: events in, emissions and changed rows out. No I/O: daemons, replay and simulation share it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pydantic import BaseModel

from app.config import RunSettings
from app.core import FlyballError
from app.events import Cause, Emission, Envelope, Event, Payload, Reducer, RunConfigured, Step, Value, follow
from app.feedback import Controller, FeedbackFold

RowKey = tuple[str, str]
"""(reducer, row)."""

Hosted = Reducer[Any] | Controller[Any]
Factory = Callable[[RunSettings], Hosted]
HOST = "host"
SETTINGS_KEY: RowKey = (HOST, "settings")


class UndeclaredEmission(FlyballError):
    """A reducer emitted a payload type that it does not declare."""


@dataclass(slots=True)
class Outcome:
    """What a batch of events led to: envelopes to publish, rows to save (``None``: deleted)."""

    envelopes: list[Envelope[Payload]] = field(default_factory=list)
    changed: dict[RowKey, BaseModel | None] = field(default_factory=dict)


class Fold:
    """The state of some reducers, folded from events.

    The reducers are built from the settings in RUN_CONFIGURED, and built anew when a later one brings other
    settings; their rows stay. FeedbackState, if hosted, comes first: controllers see it as each event leaves it.
    """

    def __init__(self, factories: Sequence[Factory], saved: dict[RowKey, bytes] | None = None) -> None:
        self._factories = factories
        self._saved = saved or {}
        self._rows: dict[str, dict[str, Value]] = {}
        self.reducers: tuple[Hosted, ...] = ()
        if SETTINGS_KEY in self._saved:
            self._build(RunSettings.model_validate_json(self._saved[SETTINGS_KEY]))

    def rows(self, reducer: str) -> dict[str, Any]:
        """Return the rows of the reducer with this name."""
        return self._rows.get(reducer, {})

    def feed(self, events: Iterable[Event[Payload]]) -> Outcome:
        """Fold events in order."""
        outcome = Outcome()
        for event in events:
            if isinstance(event.data, RunConfigured):
                settings = RunSettings.model_validate(event.data.settings)
                outcome.changed[SETTINGS_KEY] = settings
                self._build(settings)
            for reducer in self.reducers:
                if type(event.data) in reducer.reads:
                    self._apply(reducer, event, outcome)
        return outcome

    def _build(self, settings: RunSettings) -> None:
        self.reducers = tuple(factory(settings) for factory in self._factories)
        for reducer in self.reducers:
            self._rows.setdefault(reducer.name, self._load(reducer))

    def _load(self, reducer: Hosted) -> dict[str, Value]:
        return {
            key: reducer.row.model_validate_json(row)
            for (owner, key), row in self._saved.items()
            if owner == reducer.name
        }

    def _step(self, reducer: Hosted, rows: Mapping[str, Any], event: Event[Payload]) -> Step[Any]:
        if isinstance(reducer, Controller):
            return reducer.step(rows, event, self.rows(FeedbackFold.name))
        return reducer.step(rows, event)

    def _apply(self, reducer: Hosted, event: Event[Payload], outcome: Outcome) -> None:
        rows = self._rows[reducer.name]
        step = self._step(reducer, rows, event)
        for key, row in step.rows.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
            outcome.changed[reducer.name, key] = row
        if step.emissions:
            outcome.envelopes += draft(reducer, event.cause, step.emissions)


def draft(reducer: Hosted, cause: Cause, emissions: Iterable[Emission]) -> list[Envelope[Payload]]:
    """Write what a reducer emitted as events that follow from their cause.

    Raises:
        UndeclaredEmission: the reducer does not declare one of the types.
    """
    envelopes = []
    for index, emission in enumerate(emissions):
        if type(emission.data) not in reducer.emits:
            raise UndeclaredEmission(
                f"{reducer.name} emitted {emission.data.seed_name}, which it does not declare.",
                hint="Add the payload type to its `emits`, and see who consumes it.",
            )
        envelopes.append(follow(emission.data, cause, by=reducer.name, index=index, subject=emission.subject))
    return envelopes
