"""Fold of events by reducers, without I/O, for daemons, replay and simulation."""

from collections import ChainMap
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, NamedTuple, Self

from flyball.app.config import ForeignSettings, RunSettings
from flyball.app.controllers.advice import as_advice
from flyball.app.controllers.controller import Controller
from flyball.app.controllers.feedback_fold import FeedbackFold
from flyball.app.controllers.own_steps import check_step
from flyball.app.controllers.ownership import Owners, knob_of
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.core import FlyballError, located
from flyball.app.events import (
    Cause,
    Emission,
    Envelope,
    Event,
    EventVoided,
    Follower,
    HyperparameterUpdated,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    Reducer,
    Row,
    RunConfigured,
    Step,
    decode,
    encode,
    follow,
)

RowKey = tuple[str, str]
"""(reducer's name, row's key)."""

Changed = dict[RowKey, Row | RunSettings | None]
"""Rows to save (``None``: to delete), and the run's settings."""

Recorded = tuple[str, str]
"""(id, type) of an event that was published."""

Hosted = Reducer[Any] | Controller | Follower[Any]
Factory = Callable[[RunSettings], Hosted]
HOST = "host"
SETTINGS_KEY: RowKey = (HOST, "settings")
VOIDED_KEY: RowKey = (HOST, "voided")
PENDING = "pending "
"""Prefix of the keys of rows that hold decisions not recorded yet."""

MOST_PENDING = 1000
"""Positions after its cause within which a decision must be recorded; later it is dropped. A decision may never be
recorded, as in the replay of another version's run. Positions, unlike times, are the same for every host."""


class PendingDecision(Row, frozen=True):
    """A controller's decision that is not recorded yet.

    Attributes:
        by: the controller.
        envelope: the decision's envelope, as JSON.
        sequence: position of its cause, because the decision has none yet.
        recorded_us: recording time of its cause, for the same reason.
    """

    by: str
    envelope: str
    sequence: int
    recorded_us: int

    @classmethod
    def of(cls, by: str, event: Event[Payload]) -> Self:
        """Serialise a decision."""
        written = encode(event.envelope).decode()
        return cls(by=by, envelope=written, sequence=event.sequence, recorded_us=event.recorded_us)

    def event(self) -> Event[Payload]:
        """Return the decision."""
        return Event(decode(self.envelope.encode()), self.sequence, self.recorded_us, self.by)


class VoidedEvents(Row, frozen=True):
    """Positions of voided events, which the saved rows leave out."""

    positions: tuple[int, ...]


class UndeclaredEmission(FlyballError):
    """A reducer emitted a payload whose type it does not declare, or whose parameter it does not own."""


class Conclusion(NamedTuple):
    """An event to publish.

    Attributes:
        by: the reducer that emitted the event.
        position: the position of the event's cause.
        envelope: the event.
    """

    by: str
    position: int
    envelope: Envelope[Payload]


class Failure(NamedTuple):
    """A reducer's failure at an event, after which its rows are as before the event."""

    by: str
    event: Event[Payload]
    error: str


@dataclass(slots=True)
class Outcome:
    """The outcome of a batch of events.

    Attributes:
        conclusions: events that the reducers emitted.
        changed: rows to save (``None``: deleted).
        failures: events that could not be folded.
        dropped: the reducers of steps dropped because their decisions differ from the recorded ones.
    """

    conclusions: list[Conclusion] = field(default_factory=list)
    changed: Changed = field(default_factory=dict)
    failures: list[Failure] = field(default_factory=list)
    dropped: list[str] = field(default_factory=list)

    @property
    def envelopes(self) -> list[Envelope[Payload]]:
        """The events to publish."""
        return [conclusion.envelope for conclusion in self.conclusions]

    def saved(self) -> dict[RowKey, bytes | None]:
        """Return the changed rows as bytes for a state store, each serialised once."""
        return written(self.changed)


def written(rows: Changed) -> dict[RowKey, bytes | None]:
    """Return rows as bytes for a state store."""
    return {key: None if row is None else _written(row) for key, row in rows.items()}


def _written(row: Row | RunSettings) -> bytes:
    return row.to_json() if isinstance(row, Row) else row.model_dump_json().encode()


SUCCESSIONS = frozenset({ModelPromoted, ModelRolledBack})
"""Event types that make a model current."""


class _HostedReducer(NamedTuple):
    """A hosted reducer with its rows.

    ``step`` is looked up once, because a replay takes millions of steps. If the reducer follows another one, ``reads``
    includes the other reducer's types, and ``followed`` are the other reducer's rows.
    """

    reducer: Hosted
    name: str
    step: Callable[..., Step[Any]]
    rows: dict[str, Row]
    is_controller: bool
    is_own: bool
    reads: frozenset[type[Payload]]
    followed: Mapping[str, Row] | None


class Fold:
    """Reducers and their rows, folded from events.

    The reducers are built from the settings in RUN_CONFIGURED. A later RUN_CONFIGURED rebuilds them and keeps their
    rows. They receive events about the system and about configurations in the run's settings. If there are
    controllers, FeedbackState folds each event before them. User-defined controllers take part while the settings
    name them. Decisions about the knobs that they take over are dropped, except their own.

    In a run that only advises, requests are dropped and verdicts on models become advice (``as_advice``).

    A controller sees its own decisions in FeedbackState at once, and their records are not passed to it. So an event
    of a type that it emits and reads comes from an operator, or from another controller that took over its knob.
    Promotions and rollbacks that change nothing are dropped.

    A reducer that ``follows`` another one comes after it. The follower is also called at the other reducer's events,
    and shown the other reducer's rows.

    A reducer that fails at an event skips it: its rows stay as they were, the failure is in the outcome, and the other
    reducers go on. Voided events are skipped by all reducers.

    Args:
        factories: build the reducers from a run's settings.
        saved: rows to start from.
        voided: positions of voided events, in addition to those in ``saved``.
    """

    def __init__(
        self,
        factories: Sequence[Factory],
        saved: dict[RowKey, bytes] | None = None,
        voided: Collection[int] = (),
    ) -> None:
        self._factories = factories
        self._saved = saved or {}
        self.voided = frozenset(voided) | voided_in(self._saved)
        self._to_void: set[int] = set()
        self._rows: dict[str, dict[str, Row]] = {}
        self._readers: dict[type[Payload], tuple[_HostedReducer, ...]] = {}
        self._pending: dict[str, tuple[str, Event[Payload]]] = {}
        self.reducers: tuple[Hosted, ...] = ()
        self.settings: RunSettings | None = None
        self._concerned: frozenset[str | None] = frozenset({None})
        pending = [
            PendingDecision.from_json(row)
            for (owner, key), row in self._saved.items()
            if owner == HOST and key.startswith(PENDING)
        ]
        for decision in sorted(pending, key=lambda decision: decision.sequence):
            with suppress(FlyballError):  # written by another version and unreadable; its record will be a dead letter
                event = decision.event()
                self._pending[event.id] = decision.by, event
        if SETTINGS_KEY in self._saved:
            self._build(RunSettings.model_validate_json(self._saved[SETTINGS_KEY]))

    def rows(self, reducer: str) -> dict[str, Any]:
        """Return the rows of the reducer with this name."""
        return self._rows.get(reducer, {})

    @property
    def states(self) -> States:
        """FeedbackState of every configuration, if controllers are hosted."""
        return self.rows(FeedbackFold.name)

    def tables(self) -> Mapping[str, Mapping[str, Row]]:
        """Return the rows of all reducers, by the reducers' names."""
        return {reducer.name: self._rows[reducer.name] for reducer in self.reducers}

    @property
    def to_void(self) -> frozenset[int]:
        """Positions that were voided after they were folded, which requires a new fold."""
        return frozenset(self._to_void)

    def feed(  # noqa: C901 - events are dropped in one place
        self, events: Iterable[Event[Payload]], recorded: Collection[Recorded] | None = None
    ) -> Outcome:
        """Fold events in order.

        Args:
            events: in the journal's order.
            recorded: all published decisions caused by these events, if they are settled. A step with a decision that
                is not among them is dropped, because its rows would wait for answers that never come.
        """
        outcome = Outcome()
        for event in events:
            decider = self._recorded(event, outcome) if self._pending else None
            if event.sequence in self.voided:
                continue
            data = event.envelope.data
            if type(data) is EventVoided and data.position not in self.voided and self._factories:
                self._to_void.add(data.position)
            elif type(data) is RunConfigured and not self._configured(event, outcome):
                continue
            if event.envelope.subject in self._concerned:
                if type(data) in SUCCESSIONS:
                    lineage = state_of(self.states, event.subject).lineage
                    if not lineage.changes_current(data):
                        continue
                for hosted in self._readers.get(type(data), ()):
                    if hosted.name != decider:
                        self._apply(hosted, event, outcome, recorded)
        return outcome

    def _configured(self, event: Event[Any], outcome: Outcome) -> bool:
        """Apply the run's settings, and return whether they are usable."""
        try:
            settings = RunSettings.recorded(event.data.settings, event.source)
        except ForeignSettings as error:
            outcome.failures.append(Failure(HOST, event, str(error)))
            return False
        outcome.changed[SETTINGS_KEY] = settings
        outcome.failures += [Failure(name, event, error) for name, error in self._build(settings).items()]
        return True

    def _recorded(self, event: Event[Payload], outcome: Outcome) -> str | None:
        """Return the reducer whose pending decision an event records.

        The decision is dropped, and so are overdue ones. ``None`` if the event records no pending decision.
        """
        oldest = event.sequence - MOST_PENDING
        overdue = [name for name, (_, decision) in self._pending.items() if decision.sequence < oldest]
        for name in overdue:
            del self._pending[name]
            outcome.changed[HOST, PENDING + name] = None
        decider, _ = self._pending.pop(event.id, (None, None))
        if decider is not None:
            outcome.changed[HOST, PENDING + event.id] = None
        return decider

    def _states_for(self, name: str) -> States:
        """Return the states with a controller's own pending decisions applied."""
        decisions = [
            event for by, event in self._pending.values() if by == name and event.envelope.subject in self._concerned
        ]
        if not decisions:
            return self.states
        states: ChainMap[str, FeedbackState] = ChainMap({}, self.rows(FeedbackFold.name))
        for event in decisions:
            if type(event.data) in FeedbackFold.reads:
                states.update(self._feedback.step(states, event).rows)  # type: ignore[arg-type]  # no row is deleted
        return states

    def _decided(self, hosted: _HostedReducer, event: Event[Payload]) -> tuple[Step[Any], list[Envelope[Payload]]]:
        """Return a reducer's step, and the events that it emits. Raises whatever the reducer raises."""
        reducer, name, step, rows, is_controller, is_own, _, followed = hosted
        if is_own:  # its mistakes must not reach the state of others
            done = step(MappingProxyType(rows), event, MappingProxyType(self._states_for(name)))
            check_step(reducer.row, done, self._concerned)
        elif followed is not None:
            done = step(rows, event, followed)
        else:
            done = step(rows, event, self._states_for(name)) if is_controller else step(rows, event)
        return done, draft(reducer, event.cause, done.emissions) if done.emissions else []

    def _apply(
        self, hosted: _HostedReducer, event: Event[Payload], outcome: Outcome, recorded: Collection[Recorded] | None
    ) -> None:
        reducer, name, rows = hosted.reducer, hosted.name, hosted.rows
        try:
            done, drafted = self._decided(hosted, event)
        except Exception as error:  # noqa: BLE001 - an event that one reducer cannot fold must not stop the others
            outcome.failures.append(Failure(name, event, f"{type(error).__name__}: {located(error)}"))
            return
        allowed = self._allowed(name, drafted) if drafted else drafted
        if allowed is None:
            return
        if recorded is not None and any(
            (envelope.id, envelope.data.event_type) not in recorded for envelope in allowed
        ):
            outcome.dropped.append(name)
            return
        for key, row in done.rows.items():
            if row is None:
                rows.pop(key, None)
            else:
                rows[key] = row
            outcome.changed[name, key] = row
        for envelope in allowed:
            outcome.conclusions.append(Conclusion(name, event.sequence, envelope))
            if hosted.is_controller and type(envelope.data) in FeedbackFold.reads | reducer.reads:
                decision = Event(envelope, event.sequence, event.recorded_us, name)
                self._pending[envelope.id] = name, decision
                outcome.changed[HOST, PENDING + envelope.id] = PendingDecision.of(name, decision)

    def _allowed(self, name: str, drafted: list[Envelope[Payload]]) -> list[Envelope[Payload]] | None:
        """Return what a reducer may publish. ``None``: drop the whole step."""
        allowed = self._owners.allowed(name, drafted)
        return as_advice(allowed) if allowed and self._advises else allowed

    def _build(self, settings: RunSettings) -> dict[str, str]:
        """Build the reducers, and return the errors of user-defined controllers that cannot be built, by name."""
        self.settings, self._owners = settings, Owners(settings)
        self._concerned = frozenset({None, *(config.key for config in settings.configs)})
        self._advises = settings.advises
        self._feedback = FeedbackFold(settings)
        hosted, errors = list[Hosted](), dict[str, str]()
        for factory in self._factories:
            name = own_name(factory)
            if name is None:
                hosted.append(factory(settings))
            elif is_named(factory, settings):
                try:
                    hosted.append(factory(settings))
                except Exception as error:  # noqa: BLE001 - constructors of the user's may raise anything
                    errors[name] = f"{type(error).__name__}: {error}"
        shows_states = any(isinstance(reducer, Controller | FeedbackFold) for reducer in hosted)
        others = tuple(reducer for reducer in hosted if not isinstance(reducer, FeedbackFold))  # it must fold once only
        self.reducers = (self._feedback, *others) if shows_states else others
        readers = [self._hosted(reducer) for reducer in self.reducers]
        read = frozenset[type[Payload]]().union(*(reader.reads for reader in readers))
        self._readers = {kind: tuple(reader for reader in readers if kind in reader.reads) for kind in read}
        return errors

    def _hosted(self, reducer: Hosted) -> _HostedReducer:
        if reducer.name not in self._rows:
            self._rows[reducer.name] = self._load(reducer)
        rows, is_own, reads, followed = self._rows[reducer.name], own_name(reducer) is not None, reducer.reads, None
        if follows := getattr(reducer, "follows", None):
            reads |= next(other.reads for other in self.reducers if other.name == follows)
            followed = self._rows[follows]
        is_controller = isinstance(reducer, Controller)
        return _HostedReducer(reducer, reducer.name, reducer.step, rows, is_controller, is_own, reads, followed)

    def _load(self, reducer: Hosted) -> dict[str, Row]:
        return {key: reducer.row.from_json(row) for (owner, key), row in self._saved.items() if owner == reducer.name}


def own_name(hosted: Any) -> str | None:
    """Return the name of a user-defined controller or of its class; ``None`` for everything built in."""
    return hosted.name if getattr(hosted, "origin", None) else None


def is_named(own: Any, settings: RunSettings) -> bool:
    """Return whether settings name this user-defined controller."""
    named = settings.controllers.get(own.name)
    return named is not None and named.use == own.origin.use


def voided_in(saved: Mapping[RowKey, bytes]) -> frozenset[int]:
    """Return the positions of voided events in saved rows."""
    row = saved.get(VOIDED_KEY)
    return frozenset() if row is None else frozenset(VoidedEvents.from_json(row).positions)


def draft(reducer: Hosted, cause: Cause, emissions: Iterable[Emission]) -> list[Envelope[Payload]]:
    """Return a reducer's emissions as events that follow from their cause.

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
            f"{reducer.name} emitted {data.event_name}, which it does not declare.",
            hint="Add the payload type to its `emits`, and see who consumes it.",
        )
    if not _owns(reducer, data):
        raise UndeclaredEmission(
            f"{reducer.name} set {knob_of(data)}, which it does not own.",
            hint="Publish an observation for its owner; if there is none, add it to its `parameters`. A controller of "
            "your own sets what its table in flyball.toml names in `takes_over`.",
        )


def _owns(reducer: Hosted, data: Payload) -> bool:
    """Return whether a reducer that declares a payload's type may set its knob."""
    if isinstance(reducer, Controller) and own_name(reducer) is not None:
        return knob_of(data) in (None, *reducer.settings.controllers[reducer.name].takes_over)
    if type(data) is HyperparameterUpdated:
        return isinstance(reducer, Controller) and data.parameter in reducer.parameters
    return True
