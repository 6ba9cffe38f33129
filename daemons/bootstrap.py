"""The wiring of events, derived from the types that reducers declare.

No handler is subscribed by hand: a reducer declares the types it reads and emits. Before a daemon starts, ``check``
refuses types that are read but never emitted, and knobs with two owners.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from app import events
from app.config import Parameter
from app.controllers import Controller
from app.controllers.fold import Hosted
from app.core import BROKER, FlyballError
from app.events import CATALOGUE, DaemonFact, Payload
from daemons.registry import DAEMONS
from daemons.spec import DaemonSpec

Edges = Mapping[type[Payload], frozenset[str]]

OUTSIDERS: Mapping[str, frozenset[type[Payload]]] = {
    "every daemon": frozenset(payload for payload in CATALOGUE if issubclass(payload, DaemonFact)),
    BROKER: frozenset({events.RunConfigured, events.ClockTick}),
    "an operator": frozenset({events.RollbackRequested, events.EventVoided}),
}
"""Emitters other than reducers, with their types: daemons' hosts, the broker, and people with ``flyball emit``."""

KNOBS: Mapping[str, frozenset[type[Payload]]] = {
    "exploration boost": frozenset({events.ExplorationBoost}),
    "self-play rate": frozenset({events.QualityPenaltyApplied}),
    "training intensity": frozenset({events.TrainingIntensityChanged}),
    "training block": frozenset({events.TrainingBlockedByQuality, events.TrainingUnblocked}),
    "epochs, games per iteration, quality threshold, base temperature": frozenset({events.HyperparameterUpdated}),
    "learning rate": frozenset({events.AdaptiveParamsChanged}),
    "curriculum weights": frozenset({events.CurriculumRebalanced}),
    "which model is current": frozenset({events.ModelPromoted, events.PromotionRejected, events.ModelRolledBack}),
    "self-play's opponents": frozenset({events.MatchmakingUpdated}),
    "quarantine of workers": frozenset({events.NodeQuarantined, events.NodeReleased}),
    "allocation of games": frozenset({events.SelfplayRequested}),
    "when to train": frozenset({events.TrainingRequested}),
}
"""Knobs, each with the events that set it."""

TERMINAL: Mapping[type[Payload], str] = {
    events.DaemonFailed: "the status shows the error; the supervisor has started the daemon again",
    events.DaemonStarted: "the status counts starts",
    events.EventVoided: "every daemon's host skips the voided event, and people read it",
    events.NodeDegraded: "the scheduler, which emits it, pauses the worker; the status shows it",
    events.NodeRecovered: "the scheduler, which emits it, resumes requests to the worker; the status shows it",
    events.NodeLost: "the scheduler, which emits it, gives the node's work to others at once; people read it",
    events.OpponentSampled: "the request that comes with it says who plays; people read why, and tests the shares",
    events.PlateauDetected: "the boost that answers it comes with it, from the same controller; people read it",
    events.RegressionCleared: "people read it",
    events.EvaluationOverdue: "the status shows it, with what an operator can do",
    events.DistributionFailed: "the distributor, which emits it, tries again; people read it",
    events.EvaluationProgress: "dashboards show it",
    events.TrainingProgress: "the curves show it",
    events.TrainingStarted: "the status shows it",
}
"""Types that no reducer reads, each with the reason."""


class LooseEnd(FlyballError):
    """A type is read but never emitted, or a knob has two owners."""


def emitters(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return the names of each payload type's emitters, both reducers and outsiders."""
    return _inverted([*OUTSIDERS.items(), *((one.name, one.emits) for one in _reducers(daemons))])


def consumers(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return the names of the reducers that read each payload type."""
    return _inverted((one.name, one.reads) for one in _reducers(daemons))


def _reducers(daemons: Mapping[str, DaemonSpec]) -> Iterator[type[Hosted]]:
    return (reducer for spec in daemons.values() for reducer in spec.reducers)


def _inverted(declared: Iterable[tuple[str, Iterable[type[Payload]]]]) -> Edges:
    found: dict[type[Payload], frozenset[str]] = defaultdict(frozenset)
    for name, payloads in declared:
        for payload in payloads:
            found[payload] |= {name}
    return dict(found)


def owners(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Mapping[Parameter, frozenset[str]]:
    """Return the owning controllers of each parameter of training and self-play."""
    controllers = [one for one in _reducers(daemons) if issubclass(one, Controller)]
    return {
        parameter: frozenset(one.name for one in controllers if parameter in one.parameters)
        for parameter in get_args(Parameter)
    }


def check(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> None:
    """Check that every type read has an emitter, and each knob or parameter one owner.

    Raises:
        LooseEnd: names the event or the knob, and the reducers concerned.
    """
    emitted = emitters(daemons)
    for payload, readers in sorted(consumers(daemons).items(), key=lambda one: one[0].event_name):
        if payload not in emitted:
            raise LooseEnd(
                f"{payload.event_name} is read by {', '.join(sorted(readers))}, and nobody emits it.",
                hint="Register the daemon that emits it, or stop reading it.",
            )
    claims: dict[str, frozenset[str]] = {}
    for knob, types in KNOBS.items():
        settings = ", ".join(sorted(payload.event_name for payload in types))
        setters = frozenset[str]().union(*(emitted.get(payload, ()) for payload in types))
        claims[f"{settings}: several owners set one knob ({knob})"] = setters
    claims |= {f"Several own one parameter ({parameter})": names for parameter, names in owners(daemons).items()}
    for claim, names in claims.items():
        if len(names) > 1:
            raise LooseEnd(
                f"{claim}: {', '.join(sorted(names))}.",
                hint="One controller sets a knob; let the others publish observations.",
            )
