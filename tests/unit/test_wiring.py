"""Nothing is wired by hand: what reducers declare must fit together."""

from typing import ClassVar

import pytest

from app.events import CheckpointAdded, ModelPromoted, RegressionDetected, Step, Value
from app.feedback import Controller, FeedbackFold
from app.runtime.registry import DAEMONS, DaemonSpec, UnknownDaemon, spec_of, start_order
from app.runtime.wiring import LooseEnd, check, consumers, emitters


class Usurper(Controller[Value]):
    """Promotes models, which the lifecycle coordinator owns; reads what nobody says."""

    name: ClassVar[str] = "Usurper"
    row: ClassVar[type[Value]] = Value
    reads: ClassVar = frozenset({RegressionDetected})
    emits: ClassVar = frozenset({ModelPromoted})

    def step(self, rows, event, states):
        return Step()


class Listener(Usurper):
    """Reads what nobody says."""

    name: ClassVar[str] = "Listener"
    reads: ClassVar = frozenset({CheckpointAdded})
    emits: ClassVar = frozenset()


class Usurping(Usurper):
    """Sets another's knob."""

    reads: ClassVar = frozenset()


def test_whatever_is_read_is_emitted_and_every_decision_has_one_owner():
    check()


def test_an_event_that_nobody_emits_is_a_loose_end():
    with pytest.raises(LooseEnd, match="CHECKPOINT_ADDED is read by Listener, and nobody emits it"):
        check({**DAEMONS, "x": DaemonSpec("x", "listens in vain", (Listener,))})


def test_two_owners_of_a_decision_are_refused():
    with pytest.raises(LooseEnd, match="MODEL_PROMOTED has several owners: ModelLifecycleCoordinator, Usurper"):
        check({**DAEMONS, "x": DaemonSpec("x", "usurps", (Usurping,))})


def test_every_reducer_has_a_name_of_its_own_and_a_place():
    names = [reducer.name for spec in DAEMONS.values() for reducer in spec.reducers if reducer is not FeedbackFold]
    assert len(set(names)) == len(names)
    assert all(spec.reducers for name, spec in DAEMONS.items() if name != "broker")


def test_every_request_is_served_by_someone():
    served = consumers()
    unserved = [payload for payload in emitters() if payload.kind == "request" and payload not in served]
    assert not unserved


def test_an_unknown_daemon_is_refused_with_the_names_there_are():
    with pytest.raises(UnknownDaemon, match="selfplay_worker"):
        spec_of("selfplay_workr")


def test_the_broker_is_started_first():
    assert start_order()[0] == "broker"
