"""The wiring of events: derived from the types that reducers declare, and checked.

No handler is subscribed by hand: a reducer declares the types it reads and emits, and a loose end is an error before
anything starts.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import get_args

from app.controllers import Controller
from app.controllers.fold import Hosted
from app.core import BROKER, FlyballError
from app.events import (
    CATALOGUE,
    AdaptiveParamsChanged,
    ClockTick,
    CurriculumRebalanced,
    DaemonFact,
    DaemonFailed,
    DaemonStarted,
    DistributionFailed,
    EvaluationOverdue,
    EvaluationProgress,
    EventVoided,
    ExplorationBoost,
    HyperparameterUpdated,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
    NodeDegraded,
    NodeLost,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    OpponentSampled,
    Parameter,
    Payload,
    PlateauDetected,
    PromotionRejected,
    QualityPenaltyApplied,
    RegressionCleared,
    RollbackRequested,
    RunConfigured,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingProgress,
    TrainingRequested,
    TrainingStarted,
    TrainingUnblocked,
)
from daemons.registry import DAEMONS
from daemons.spec import DaemonSpec

Edges = Mapping[type[Payload], frozenset[str]]

OUTSIDERS: Mapping[str, frozenset[type[Payload]]] = {
    "every daemon": frozenset(payload for payload in CATALOGUE if issubclass(payload, DaemonFact)),
    BROKER: frozenset({RunConfigured, ClockTick}),
    "an operator": frozenset({RollbackRequested, EventVoided}),
}
"""Emitters that are no reducers, with their types: daemons' hosts, the broker, and people with ``flyball emit``."""

KNOBS: Mapping[str, frozenset[type[Payload]]] = {
    "exploration boost": frozenset({ExplorationBoost}),
    "self-play rate": frozenset({QualityPenaltyApplied}),
    "training intensity": frozenset({TrainingIntensityChanged}),
    "training block": frozenset({TrainingBlockedByQuality, TrainingUnblocked}),
    "epochs, games per iteration, quality threshold, base temperature": frozenset({HyperparameterUpdated}),
    "learning rate": frozenset({AdaptiveParamsChanged}),
    "curriculum weights": frozenset({CurriculumRebalanced}),
    "which model is current": frozenset({ModelPromoted, PromotionRejected, ModelRolledBack}),
    "self-play's opponents": frozenset({MatchmakingUpdated}),
    "quarantine of workers": frozenset({NodeQuarantined, NodeReleased}),
    "allocation of games": frozenset({SelfplayRequested}),
    "when to train": frozenset({TrainingRequested}),
}
"""Knobs, each with the events that set it."""

TERMINAL: Mapping[type[Payload], str] = {
    DaemonFailed: "the status shows the error; the supervisor has started the daemon again",
    DaemonStarted: "the status counts starts",
    EventVoided: "every daemon's host skips the voided event, and people read it",
    NodeDegraded: "the scheduler, which emits it, pauses the worker; the status shows it",
    NodeRecovered: "the scheduler, which emits it, resumes requests to the worker; the status shows it",
    NodeLost: "the scheduler, which emits it, gives the node's work to others at once; people read it",
    OpponentSampled: "the request that comes with it says who plays; people read why, and tests the shares",
    PlateauDetected: "the boost that answers it comes with it, from the same controller; people read it",
    RegressionCleared: "people read it",
    EvaluationOverdue: "the status shows it, with what an operator can do",
    DistributionFailed: "the distributor, which emits it, tries again; people read it",
    EvaluationProgress: "dashboards show it",
    TrainingProgress: "the curves show it",
    TrainingStarted: "the status shows it",
}
"""Types that no reducer reads, each with the reason why that is right."""


class LooseEnd(FlyballError):
    """An event is read that nobody emits, or a knob has two owners."""


def emitters(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return for each payload type who emits it: reducers and outsiders by name."""
    return _inverted([*OUTSIDERS.items(), *((one.name, one.emits) for one in _reducers(daemons))])


def consumers(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return for each payload type the reducers that read it."""
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
    """Return for each parameter of training and self-play the controllers that own it."""
    controllers = [one for one in _reducers(daemons) if issubclass(one, Controller)]
    return {
        parameter: frozenset(one.name for one in controllers if parameter in one.parameters)
        for parameter in get_args(Parameter)
    }


def check(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> None:
    """Make sure that whatever is read has an emitter, and every knob one owner: nothing is started otherwise.

    Raises:
        LooseEnd: names the event or the knob, and the reducers concerned.
    """
    emitted = emitters(daemons)
    for payload, readers in consumers(daemons).items():
        if payload not in emitted:
            raise LooseEnd(
                f"{payload.event_name} is read by {', '.join(sorted(readers))}, and nobody emits it.",
                hint="Register the daemon that emits it, or stop reading it.",
            )
    claims: dict[str, frozenset[str]] = {}
    for knob, types in KNOBS.items():
        events = ", ".join(sorted(payload.event_name for payload in types))
        setters = frozenset[str]().union(*(emitted.get(payload, ()) for payload in types))
        claims[f"{events}: several owners set one knob ({knob})"] = setters
    claims |= {f"Several own one parameter ({parameter})": names for parameter, names in owners(daemons).items()}
    for claim, names in claims.items():
        if len(names) > 1:
            raise LooseEnd(
                f"{claim}: {', '.join(sorted(names))}.",
                hint="One controller sets a knob; let the others publish observations.",
            )
