"""The coordination bootstrap: who emits what to whom, derived from what the reducers declare, and checked.

Seed 003 names the risk: complex event dependencies need careful wiring. Here nobody wires: a reducer declares what it
reads and emits, and a loose end is an error before anything starts.
"""

from collections import defaultdict
from collections.abc import Mapping

from app.core import FlyballError
from app.events import (
    CATALOGUE,
    ClockTick,
    DaemonFact,
    Kind,
    Payload,
    RollbackRequested,
    RunConfigured,
)
from app.runtime.registry import BROKER, DAEMONS, DaemonSpec

HOST = "every daemon"
OPERATOR = "an operator"
"""Who publishes with ``flyball emit``."""

Edges = Mapping[type[Payload], frozenset[str]]


class LooseEnd(FlyballError):
    """An event is read that nobody emits, or a decision has two owners."""


def emitters(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> Edges:
    """Return for each payload type who emits it: reducers by name, the broker, or every daemon's host."""
    found: dict[type[Payload], set[str]] = defaultdict(set)
    for payload in CATALOGUE:
        if issubclass(payload, DaemonFact):
            found[payload].add(HOST)
    for payload in (RunConfigured, ClockTick):
        found[payload].add(BROKER)
    found[RollbackRequested].add(OPERATOR)
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


def check(daemons: Mapping[str, DaemonSpec] = DAEMONS) -> None:
    """Make sure that whatever is read has an emitter, and every decision one owner.

    Raises:
        LooseEnd: names the event and the reducers concerned.
    """
    emitted, read = emitters(daemons), consumers(daemons)
    for payload, readers in read.items():
        if payload not in emitted:
            raise LooseEnd(
                f"{payload.seed_name} is read by {', '.join(sorted(readers))}, and nobody emits it.",
                hint="Register the daemon that emits it, or stop reading it.",
            )
    for payload, owners in emitted.items():
        if payload.kind is Kind.DECISION and len(owners) > 1:
            raise LooseEnd(
                f"{payload.seed_name} has several owners: {', '.join(sorted(owners))}.",
                hint="One controller sets a knob; let the others publish observations (DESIGN §4).",
            )
