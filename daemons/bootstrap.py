"""The wiring of events, derived from the types that reducers declare.

No handler is subscribed by hand: a reducer declares the types it reads and emits. Before a daemon starts, ``check``
refuses types that are read but never emitted, and knobs with two owners.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from types import MappingProxyType

from flyball.app import events
from flyball.app.config import KNOBS, BadSettings, Knob, RunSettings
from flyball.app.config.loading import Loaded
from flyball.app.controllers import Controller
from flyball.app.controllers.fold import Hosted, own_name
from flyball.app.controllers.ownership import SET_BY, knobs_set
from flyball.app.core import BROKER, FlyballError, located
from flyball.app.events import CATALOGUE, DaemonFact, Payload
from flyball.app.telemetry.spans import check_otel
from flyball.daemons.notifications import check_notifications
from flyball.daemons.registry import DAEMONS, daemons_of
from flyball.daemons.spec import DaemonSpec
from flyball.daemons.suitability import check_bots, check_devices, check_playable, check_trainers

Edges = Mapping[type[Payload], frozenset[str]]

OUTSIDERS: Mapping[str, frozenset[type[Payload]]] = {
    "every daemon": frozenset(payload for payload in CATALOGUE if issubclass(payload, DaemonFact)),
    BROKER: frozenset(
        {
            events.RunConfigured,
            events.ClockTick,
            events.AccessRefused,
            events.NodeLost,
            events.NodeReturned,
            events.RollCall,
        }
    ),
    "an operator": frozenset({events.AdaptiveParamsChanged, events.RollbackRequested, events.EventVoided}),
}
"""Emitters other than reducers, with their types: daemons' hosts, the broker, and people with ``flyball emit``."""

TERMINAL: Mapping[type[Payload], str] = {
    events.AccessRefused: "people read it",
    events.DaemonHeartbeat: "the status reads it in older journals; signs of life are not recorded any more (ADR-009)",
    events.EventVoided: "every daemon's host skips the voided event, and people read it",
    events.NodeDegraded: "the scheduler, which emits it, pauses the worker; the status shows it",
    events.NodeRecovered: "the scheduler, which emits it, resumes requests to the worker; the status shows it",
    events.OpponentSampled: "the request that comes with it says who plays; people read why, and tests the shares",
    events.PlateauDetected: "the boost that answers it comes with it, from the same controller; people read it",
    events.RegressionCleared: "people read it",
    events.EvaluationOverdue: "the status shows it, with what an operator can do",
    events.ModelAdvised: "people read it, beside a loop that goes on without it",
    events.ModelCached: "the distributors, which emit it, report the nodes that lack a model",
    events.DistributionLate: "the status shows it; the node goes on trying, and its jobs fetch the model themselves",
    events.EvaluationProgress: "dashboards show it",
    events.TrainingProgress: "the curves show it",
    events.TrainingStarted: "the status shows it",
}
"""Types that no reducer reads, each with the reason."""


class LooseEnd(FlyballError):
    """A type read but never emitted, or a knob owned twice."""


Taken = Mapping[Knob, str]
"""The user's own controllers, by the knobs that they take over."""

NOTHING: Taken = MappingProxyType({})


def emitters(daemons: Mapping[str, DaemonSpec] = DAEMONS, taken: Taken = NOTHING) -> Edges:
    """Return the names of each payload type's emitters, both reducers and outsiders."""
    return _names_by_type(
        [*OUTSIDERS.items(), *((reducer.name, _emitted_types(reducer, taken)) for reducer in _reducers(daemons))]
    )


def consumers(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return the names of the reducers that read each payload type."""
    return _names_by_type((reducer.name, reducer.reads) for reducer in _reducers(daemons))


def _reducers(daemons: Mapping[str, DaemonSpec]) -> Iterator[type[Hosted]]:
    return (reducer for spec in daemons.values() for reducer in spec.reducers)


def _names_by_type(declared: Iterable[tuple[str, Iterable[type[Payload]]]]) -> Edges:
    names_by_type: dict[type[Payload], frozenset[str]] = defaultdict(frozenset)
    for name, payloads in declared:
        for payload in payloads:
            names_by_type[payload] |= {name}
    return dict(names_by_type)


def owners(daemons: Mapping[str, DaemonSpec] = DAEMONS, taken: Taken = NOTHING) -> Mapping[Knob, frozenset[str]]:
    """Return the owning controllers of each knob."""
    reducers = list(_reducers(daemons))
    return {knob: frozenset(reducer.name for reducer in reducers if knob in _owned(reducer, taken)) for knob in KNOBS}


def _owned(reducer: type[Hosted], taken: Taken) -> frozenset[Knob]:
    """Return the knobs that a reducer owns, by its declarations or by having taken them over."""
    if own_name(reducer) is not None:
        return frozenset(knob for knob, name in taken.items() if name == reducer.name)
    parameters = reducer.parameters if issubclass(reducer, Controller) else frozenset[Knob]()
    return (parameters | {SET_BY[payload] for payload in reducer.emits if payload in SET_BY}) - taken.keys()


def _emitted_types(reducer: type[Hosted], taken: Taken) -> frozenset[type[Payload]]:
    """Return a reducer's types, except those setting only others' knobs."""
    owned = _owned(reducer, taken) if taken else frozenset[Knob]()
    return frozenset(
        payload for payload in reducer.emits if not taken or not knobs_set(payload) or knobs_set(payload) & owned
    )


def check(daemons: Mapping[str, DaemonSpec] = DAEMONS, taken: Taken = NOTHING) -> None:
    """Check that types read have emitters, and knobs one owner each.

    Raises:
        LooseEnd: names the event or the knob, and the reducers concerned.
    """
    described = {reducer.name: getattr(reducer, "origin", None) for reducer in _reducers(daemons)}

    def listed(names: Iterable[str]) -> str:
        return ", ".join(origin.where if (origin := described.get(name)) else name for name in sorted(names))

    emitted = emitters(daemons, taken)
    for payload, readers in sorted(consumers(daemons).items(), key=lambda item: item[0].event_name):
        if payload not in emitted and not knobs_set(payload) & taken.keys():
            raise LooseEnd(
                f"{payload.event_name} is read by {listed(readers)}, and nobody emits it.",
                hint="Register the daemon that emits it, or stop reading it.",
            )
    for knob, names in owners(daemons, taken).items():
        if len(names) > 1:
            raise LooseEnd(
                f"Several own one knob ({knob}): {listed(names)}.",
                hint="One controller sets a knob; let the others publish observations.",
            )


def check_settings(loaded: Loaded) -> None:
    """Check that a run with these settings can start. Raises ``BadSettings`` or ``LooseEnd``."""
    check_playable(loaded.run)
    check_trainers(loaded.run, loaded.folder)
    check_bots(loaded.run, loaded.folder)
    check_controllers(loaded.run)
    check_devices(loaded.deployment)
    check_notifications(loaded)
    if loaded.deployment.traces.endpoint:
        check_otel()


def check_controllers(settings: RunSettings) -> None:
    """Check that the user's own controllers can be built and wired.

    Raises:
        BadSettings: a controller cannot be used; names its table, its class and its file.
        LooseEnd: see ``check``.
    """
    daemons = daemons_of(settings)
    results = frozenset().union(*(spec.worker.emits for spec in daemons.values() if spec.worker))
    others = results | OUTSIDERS["every daemon"] | OUTSIDERS[BROKER] | {events.EventVoided}
    for reducer in _reducers(daemons):
        if issubclass(reducer, Controller) and reducer.origin:
            _check_knobs(reducer, settings, others)
            try:
                reducer(settings)
            except Exception as error:  # constructors of the user's may raise anything
                raise BadSettings(
                    f"{reducer.origin.where} cannot be built: {type(error).__name__}: {located(error)}.",
                    hint=f"Look at controllers.{reducer.name}.options.",
                ) from error
    check(daemons, settings.taken_over)


def _check_knobs(controller: type[Controller], settings: RunSettings, others: frozenset[type[Payload]]) -> None:
    """Check that a user's controller sets its knobs, and no others."""
    assert controller.origin is not None
    where, owned = controller.origin.where, frozenset(settings.controllers[controller.name].takes_over)
    for payload in sorted(controller.emits, key=lambda payload: payload.event_name):
        if payload in others:
            raise BadSettings(
                f"{where} emits {payload.event_name}, which workers, hosts or operators publish.",
                hint="A controller emits decisions, requests and observations.",
            )
        if payload is events.AdaptiveParamsChanged:
            raise BadSettings(
                f"{where} emits {payload.event_name}, which sets several knobs.",
                hint="Emit HYPERPARAMETER_UPDATED for each parameter.",
            )
        if (knobs := knobs_set(payload)) and not knobs & owned:
            raise BadSettings(
                f"{where} emits {payload.event_name}, which sets {' or '.join(sorted(knobs))}.",
                hint=f"Name that knob in controllers.{controller.name}.takes_over, or do not emit it.",
            )
    for knob in sorted(owned):
        if not any(knob in knobs_set(payload) for payload in controller.emits):
            setting = sorted(payload.event_name for payload in CATALOGUE if knob in knobs_set(payload))
            names = " or ".join(name for name in setting if name != events.AdaptiveParamsChanged.event_name)
            raise BadSettings(
                f"{where} takes over {knob} and does not emit {names}: nobody would set it.",
                hint=f"Add it to `emits`, or take {knob} out of controllers.{controller.name}.takes_over.",
            )
