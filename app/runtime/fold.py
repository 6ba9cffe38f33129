"""Hosting reducers: events in, emissions and changed rows out. No I/O: daemons, replay and simulation share it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from app.config import RunSettings
from app.core import FlyballError, ModelHash
from app.events import (
    AnyRow,
    Cause,
    Emission,
    Envelope,
    Event,
    HyperparameterUpdated,
    ModelPromoted,
    ModelRolledBack,
    Parameter,
    Payload,
    Reducer,
    Row,
    RunConfigured,
    Step,
    follow,
)
from app.feedback import Controller, FeedbackFold

RowKey = tuple[str, str]
"""(reducer, row)."""

Changed = dict[RowKey, AnyRow | RunSettings | None]
"""Rows to save (``None``: deleted), and the settings."""

Hosted = Reducer[Any] | Controller[Any]
Factory = Callable[[RunSettings], Hosted]
HOST = "host"
SETTINGS_KEY: RowKey = (HOST, "settings")
CURRENT = "current "
"""What the keys of rows begin with that say which model of a configuration is current."""


class CurrentModel(Row, frozen=True):
    """The current model of a configuration, as the journal tells it."""

    model: ModelHash


class UndeclaredEmission(FlyballError):
    """A reducer emitted a payload type that it does not declare, or set a parameter that it does not own."""


class Conclusion(NamedTuple):
    """Something that a reducer said: who, the position of its cause, and the event to publish."""

    by: str
    position: int
    envelope: Envelope[Payload]


@dataclass(slots=True)
class Outcome:
    """What a batch of events led to: what was said, rows to save (``None``: deleted)."""

    conclusions: list[Conclusion] = field(default_factory=list)
    changed: Changed = field(default_factory=dict)

    @property
    def envelopes(self) -> list[Envelope[Payload]]:
        """The events to publish."""
        return [conclusion.envelope for conclusion in self.conclusions]

    def saved(self) -> dict[RowKey, bytes | None]:
        """Return the changed rows as a state store takes them. Written here, once, however often a row changed."""
        return written(self.changed)


def written(rows: Changed) -> dict[RowKey, bytes | None]:
    """Return rows as a state store takes them."""
    return {key: None if row is None else row.model_dump_json().encode() for key, row in rows.items()}


SUCCESSIONS = frozenset({ModelPromoted, ModelRolledBack})
"""What makes a model current."""


class _Seat(NamedTuple):
    """A reducer at its place: its rows, and what its step takes after the event: FeedbackState if it is a controller.

    Its step is looked up once: a replay takes millions.
    """

    reducer: Hosted
    name: str
    step: Callable[..., Step[Any]]
    rows: dict[str, AnyRow]
    shown: tuple[Mapping[str, Any], ...]


class Fold:
    """The state of some reducers, folded from events.

    The reducers are built from the settings in RUN_CONFIGURED, and built anew when a later one brings other
    settings; their rows stay. They are given what is about the system, or about a configuration that the run still
    plays. FeedbackState, if hosted, comes first: controllers see it as each event leaves it.

    A rollback from a model that is not current any more is given to nobody: told twice, it counts once. Where
    rollbacks are read, promotions have to be.
    """

    def __init__(self, factories: Sequence[Factory], saved: dict[RowKey, bytes] | None = None) -> None:
        self._factories = factories
        self._saved = saved or {}
        self._rows: dict[str, dict[str, AnyRow]] = {}
        self._readers: dict[type[Payload], tuple[_Seat, ...]] = {}
        self.reducers: tuple[Hosted, ...] = ()
        self.settings: RunSettings | None = None
        self._concerned: frozenset[str | None] = frozenset({None})
        self._current: dict[str, ModelHash] = {
            key.removeprefix(CURRENT): CurrentModel.model_validate_json(row).model
            for (owner, key), row in self._saved.items()
            if owner == HOST and key.startswith(CURRENT)
        }
        if SETTINGS_KEY in self._saved:
            self._build(RunSettings.model_validate_json(self._saved[SETTINGS_KEY]))

    def rows(self, reducer: str) -> dict[str, Any]:
        """Return the rows of the reducer with this name."""
        return self._rows.get(reducer, {})

    def tables(self) -> Mapping[str, Mapping[str, AnyRow]]:
        """Return the rows of all reducers, by the reducers' names."""
        return {reducer.name: self._rows[reducer.name] for reducer in self.reducers}

    def feed(self, events: Iterable[Event[Payload]]) -> Outcome:
        """Fold events in order."""
        outcome = Outcome()
        for event in events:
            data = event.envelope.data
            if type(data) is RunConfigured:
                settings = RunSettings.recorded(data.settings)
                outcome.changed[SETTINGS_KEY] = settings
                self._build(settings)
            if event.envelope.subject in self._concerned:
                if type(data) in SUCCESSIONS and not self._succeeds(event, outcome):
                    continue
                for seat in self._readers.get(type(data), ()):
                    _apply(seat, event, outcome)
        return outcome

    def _succeeds(self, event: Event[Payload], outcome: Outcome) -> bool:
        """Note which model is current after a decision about it; return whether it was one."""
        key = event.subject
        match event.data:
            case ModelPromoted(model=model):
                current = model
            case ModelRolledBack(to_model=model) as back if back.holds(self._current.get(key)):
                current = model
            case _:
                return False
        self._current[key] = current
        outcome.changed[HOST, CURRENT + key] = CurrentModel(model=current)
        return True

    def _build(self, settings: RunSettings) -> None:
        self.settings = settings
        self._concerned = frozenset({None, *(config.key for config in settings.configs)})
        self.reducers = tuple(factory(settings) for factory in self._factories)
        seats = [self._seat(reducer) for reducer in self.reducers]
        read = frozenset[type[Payload]]().union(*(reducer.reads for reducer in self.reducers))
        self._readers = {kind: tuple(seat for seat in seats if kind in seat.reducer.reads) for kind in read}

    def _seat(self, reducer: Hosted) -> _Seat:
        if reducer.name not in self._rows:
            self._rows[reducer.name] = self._load(reducer)
        shown = (self._rows.setdefault(FeedbackFold.name, {}),) if isinstance(reducer, Controller) else ()
        return _Seat(reducer, reducer.name, reducer.step, self._rows[reducer.name], shown)

    def _load(self, reducer: Hosted) -> dict[str, AnyRow]:
        return {
            key: reducer.row.model_validate_json(row)
            for (owner, key), row in self._saved.items()
            if owner == reducer.name
        }


def _apply(seat: _Seat, event: Event[Payload], outcome: Outcome) -> None:
    reducer, name, fold, rows, shown = seat
    step = fold(rows, event, *shown)
    for key, row in step.rows.items():
        if row is None:
            rows.pop(key, None)
        else:
            rows[key] = row
        outcome.changed[name, key] = row
    if step.emissions:
        drafted = draft(reducer, event.cause, step.emissions)
        outcome.conclusions += [Conclusion(name, event.sequence, envelope) for envelope in drafted]


def draft(reducer: Hosted, cause: Cause, emissions: Iterable[Emission]) -> list[Envelope[Payload]]:
    """Write what a reducer emitted as events that follow from their cause.

    Raises:
        UndeclaredEmission: the reducer does not declare one of the types, or does not own a parameter.
    """
    envelopes = []
    for index, (data, subject, evidence) in enumerate(emissions):
        _check_declared(reducer, data)
        envelopes.append(follow(data, cause, by=reducer.name, index=index, subject=subject, evidence=evidence))
    return envelopes


def _check_declared(reducer: Hosted, data: Payload) -> None:
    if type(data) not in reducer.emits:
        raise UndeclaredEmission(
            f"{reducer.name} emitted {data.seed_name}, which it does not declare.",
            hint="Add the payload type to its `emits`, and see who consumes it.",
        )
    owned = reducer.parameters if isinstance(reducer, Controller) else frozenset[Parameter]()
    if type(data) is HyperparameterUpdated and data.parameter not in owned:
        raise UndeclaredEmission(
            f"{reducer.name} set {data.parameter}, which it does not own.",
            hint="Publish an observation for its owner (DESIGN §4); if there is none, add it to its `parameters`.",
        )
