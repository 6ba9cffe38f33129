"""The wiring of events: derived from the types that reducers declare, and checked.

No handler is subscribed by hand: a reducer declares the types it reads and emits, and a loose end is an error before
anything starts.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import get_args

from app.controllers import Controller, FeedbackFold
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
    Kind,
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

HOST = "every daemon"
OPERATOR = "an operator"
"""Producer of ``flyball emit``."""

Edges = Mapping[type[Payload], frozenset[str]]

KNOBS: Mapping[str, frozenset[type[Payload]]] = {
    "exploration boost": frozenset({ExplorationBoost}),
    "self-play rate": frozenset({QualityPenaltyApplied}),
    "training intensity": frozenset({TrainingIntensityChanged}),
    "training block": frozenset({TrainingBlockedByQuality, TrainingUnblocked}),
    "epochs, games per iteration, quality threshold, base temperature": frozenset({HyperparameterUpdated}),
    "learning rate": frozenset({AdaptiveParamsChanged}),
    "curriculum weights": frozenset({CurriculumRebalanced}),
    "which model is current": frozenset({ModelPromoted, PromotionRejected, ModelRolledBack}),
    "whom self-play meets": frozenset({MatchmakingUpdated}),
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
    NodeLost: "the scheduler, who says it, gives the node's work to others at once; people read it",
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
    """Return for each payload type who emits it: reducers by name, the broker, every daemon's host, an operator."""
    found: dict[type[Payload], set[str]] = defaultdict(set)
    for payload in CATALOGUE:
        if issubclass(payload, DaemonFact):
            found[payload].add(HOST)
    for payload in (RunConfigured, ClockTick):
        found[payload].add(BROKER)
    for payload in (RollbackRequested, EventVoided):
        found[payload].add(OPERATOR)
    for spec in daemons.values():
        for reducer in spec.reducers:
            for payload in reducer.emits:
                found[payload].add(reducer.name)
    return {payload: frozenset(names) for payload, names in found.items()}


def consumers(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return for each payload type the reducers that read it."""
    found: dict[type[Payload], set[str]] = defaultdict(set)
    for spec in daemons.values():
        for reducer in spec.reducers:
            for payload in reducer.reads:
                found[payload].add(reducer.name)
    return {payload: frozenset(names) for payload, names in found.items()}


def owners(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Mapping[Parameter, frozenset[str]]:
    """Return for each parameter of training and self-play the controllers that own it."""
    controllers = [one for spec in daemons.values() for one in spec.controllers if issubclass(one, Controller)]
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
    for knob, types in KNOBS.items():
        setters = frozenset[str]().union(*(emitted.get(payload, ()) for payload in types))
        _check_one_owner(f"{_names(types)}: several owners set one knob ({knob})", setters)
    for parameter, names in owners(daemons).items():
        _check_one_owner(f"Several own one parameter ({parameter})", names)


def _check_one_owner(otherwise: str, names: frozenset[str]) -> None:
    if len(names) > 1:
        raise LooseEnd(
            f"{otherwise}: {', '.join(sorted(names))}.",
            hint="One controller sets a knob; let the others publish observations.",
        )


def loose_ends(
    daemons: Mapping[str, DaemonSpec] = DAEMONS,
    *,
    terminal: Mapping[type[Payload], str] = TERMINAL,
) -> Iterator[str]:
    """Iterate over what is not as it should be, though everything would start: one sentence each.

    Types without an emitter or a consumer that are not declared so; declarations that are no longer true; decisions
    that set no knob of ``KNOBS``, or several; parameters that nobody owns. Nobody consumes its own words. FeedbackState
    shows controllers the knobs that decisions set, but it is no consumer of facts: what it alone reads may lead
    nowhere.
    """
    emitted, read = emitters(daemons), consumers(daemons)
    for payload in CATALOGUE:
        bystanders = frozenset() if payload.kind is Kind.DECISION else frozenset({FeedbackFold.name})
        name = payload.event_name
        readers = read.get(payload, frozenset()) - emitted.get(payload, frozenset()) - bystanders
        if payload not in emitted:
            yield f"{name} has no emitter. Remove it, or register the daemon that emits it."
        if not readers and payload not in terminal:
            yield f"{name} has no consumer. Read it, or say in TERMINAL why nobody does."
        if readers and payload in terminal:
            yield f"{name} is read by {', '.join(sorted(readers))}: it is not TERMINAL."
        knobs = [knob for knob, types in KNOBS.items() if payload in types]
        if payload.kind is Kind.DECISION and len(knobs) != 1:
            yield f"{name} sets {len(knobs)} knobs. Name the one that it sets in KNOBS."
    for parameter, names in owners(daemons).items():
        if not names:
            yield f"Nobody owns {parameter}. Make it one of a controller's `parameters`."


def _names(types: frozenset[type[Payload]]) -> str:
    return ", ".join(sorted(payload.event_name for payload in types))
