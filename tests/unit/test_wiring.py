"""The declarations of all reducers must fit together."""

from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from typing import ClassVar

import pytest

from flyball.app.config import KNOBS, RunSettings
from flyball.app.controllers import Controller, EvaluationFeedbackHandler, FeedbackFold
from flyball.app.controllers.fold import UndeclaredEmission, draft
from flyball.app.controllers.ownership import knobs_set
from flyball.app.events import (
    CATALOGUE,
    Emission,
    HyperparameterUpdated,
    Kind,
    ModelPromoted,
    Payload,
    RegressionCleared,
    RegressionDetected,
    Step,
    TrainingProgress,
    TrainingUnblocked,
    Value,
)
from flyball.daemons.bootstrap import TERMINAL, LooseEnd, check, consumers, emitters, owners
from flyball.daemons.registry import DAEMONS, UnknownDaemon, spec_of
from flyball.daemons.spec import DaemonSpec


class Usurper(Controller):
    """A second owner of promotions, which belong to the lifecycle coordinator."""

    name: ClassVar[str] = "Usurper"
    row: ClassVar[type[Value]] = Value
    reads: ClassVar = frozenset({RegressionDetected})
    emits: ClassVar = frozenset({ModelPromoted})

    def step(self, rows, event, states):
        return Step()


class Usurping(Usurper):
    """A controller that sets another's knob."""

    reads: ClassVar = frozenset()


def test_declarations_of_all_reducers_fit_together():
    check()
    decisions = [payload for payload in CATALOGUE if payload.kind is Kind.DECISION]
    assert all(len(knobs_set(payload)) == 1 for payload in decisions if payload is not HyperparameterUpdated)
    assert set(KNOBS) == set().union(*map(knobs_set, CATALOGUE))
    assert all(reason for reason in TERMINAL.values())
    names = [reducer.name for spec in DAEMONS.values() for reducer in spec.hosted if reducer is not FeedbackFold]
    assert len(set(names)) == len(names)
    assert all(spec.hosted or spec.sink for name, spec in DAEMONS.items() if name != "broker")
    observers = {one.name for spec in DAEMONS.values() for one in spec.observers} - {FeedbackFold.name}
    assert observers
    assert not observers & frozenset().union(*consumers().values())
    assert all(not one.emits for spec in DAEMONS.values() for one in spec.observers)
    assert next(iter(DAEMONS)) == "broker"
    with pytest.raises(UnknownDaemon, match="selfplay_worker"):
        spec_of("selfplay_workr")
    assert list(loose_ends()) == []


def test_loose_ends_and_second_owners_are_refused():
    with pytest.raises(LooseEnd, match=r"ELO_UPDATED is read by .*LeagueKeeper.*, and nobody emits it"):
        check(NO_EVALUATOR)
    with pytest.raises(LooseEnd, match=r"\(promotion\): ModelLifecycleCoordinator, Usurper"):
        check({**DAEMONS, "x": DaemonSpec("x", "usurps", (Usurping,))})
    with pytest.raises(LooseEnd, match=r"\(training_block\): FeedbackLoopController, Unblocking"):
        check({**DAEMONS, "x": DaemonSpec("x", "unblocks", (Unblocking,))})
    with pytest.raises(LooseEnd, match=r"\(learning_rate\): EvaluationFeedbackHandler, Meddling"):
        check({**DAEMONS, "x": DaemonSpec("x", "meddles", (Meddling,))})
    assert {knob: len(names) for knob, names in owners().items()} == dict.fromkeys(KNOBS, 1)


class Unblocking(Usurping):
    """A controller that lifts training blocks, which another controller sets."""

    name: ClassVar[str] = "Unblocking"
    emits: ClassVar = frozenset({TrainingUnblocked})


class Meddling(Usurping):
    """An owner of a parameter that another controller sets."""

    name: ClassVar[str] = "Meddling"
    emits: ClassVar = frozenset()
    parameters: ClassVar = frozenset({"learning_rate"})


class Setting(Meddling):
    """A controller that sets this parameter."""

    emits: ClassVar = frozenset({HyperparameterUpdated})


@pytest.mark.parametrize(("parameter", "refused"), [("learning_rate", False), ("epochs", True)])
def test_what_a_controller_does_not_own_it_cannot_set(record, parameter, refused):
    said = Emission(HyperparameterUpdated(parameter=parameter, value=1.0, previous=2.0, reason="x"))
    cause = record(RegressionCleared(model="a" * 64), "tic_tac_toe_2p").cause
    with pytest.raises(UndeclaredEmission, match="Meddling set epochs") if refused else nullcontext():
        assert draft(Setting(RunSettings()), cause, [said])


def loose_ends(
    daemons: Mapping[str, DaemonSpec] = DAEMONS, *, terminal: Mapping[type[Payload], str] = TERMINAL
) -> Iterator[str]:
    """Yield a sentence for each fault of a wiring that would start."""
    emitted, read = emitters(daemons), consumers(daemons)
    for payload in CATALOGUE:
        bystanders = frozenset() if payload.kind is Kind.DECISION else frozenset({FeedbackFold.name})
        name = payload.event_name
        readers = read.get(payload, frozenset()) - emitted.get(payload, frozenset()) - bystanders
        if payload not in emitted:
            yield f"{name} has no emitter."
        if not readers and payload not in terminal:
            yield f"{name} has no consumer. Read it, or say in TERMINAL why nobody does."
        if readers and payload in terminal:
            yield f"{name} is read by {', '.join(sorted(readers))}: it is not TERMINAL."
    for knob, names in owners(daemons).items():
        if not names:
            yield f"Nobody owns {knob}. Emit what sets it, or make it one of a controller's `parameters`."


class Herald(Usurper):
    """A reader of an event that is declared terminal."""

    name: ClassVar[str] = "Herald"
    reads: ClassVar = frozenset({TrainingProgress})


HERALD = {**DAEMONS, "x": DaemonSpec("x", "says what nobody reads", (Herald,))}
NO_EVALUATOR = {name: spec for name, spec in DAEMONS.items() if name != "evaluation"}
NO_LEAGUE = {name: spec for name, spec in DAEMONS.items() if name != "model_lifecycle"}
UNHEEDED = {
    **DAEMONS,
    "feedback": DaemonSpec(
        "feedback", "lacks one", tuple({*DAEMONS["feedback"].controllers} - {EvaluationFeedbackHandler})
    ),
}
"""Daemons without the controller that acts on loss anomalies, which FeedbackState still counts."""

NO_TRAINER = {name: spec for name, spec in DAEMONS.items() if name != "training"}


@pytest.mark.parametrize(
    ("said", "declared"),
    [
        ("TRAINING_PROGRESS is read by Herald: it is not TERMINAL.", {"daemons": HERALD}),
        ("TRAINING_COMPLETED has no emitter.", {"daemons": NO_TRAINER}),
        ("EVALUATION_REQUESTED has no consumer.", {"daemons": NO_EVALUATOR}),
        ("ELO_UPDATED has no emitter.", {"daemons": NO_EVALUATOR}),
        ("ELO_UPDATED has no consumer.", {"daemons": NO_LEAGUE}),
        ("ACCESS_REFUSED has no consumer.", {"terminal": {}}),
        (
            "SELFPLAY_COMPLETE has no consumer.",
            {"daemons": {name: DAEMONS[name] for name in ("broker", "selfplay_worker")}},
        ),
        ("LOSS_ANOMALY_DETECTED has no consumer.", {"daemons": UNHEEDED}),
        ("Nobody owns learning_rate.", {"daemons": UNHEEDED}),
    ],
)
def test_loose_ends_are_found(said, declared):
    assert any(end.startswith(said) for end in loose_ends(**declared))
