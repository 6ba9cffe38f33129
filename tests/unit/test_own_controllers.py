"""The user's own controllers in a fold: owners of knobs, mistakes."""

import re
from functools import cache
from math import cos, pi
from typing import Any

import pytest
from driving import KEY, NEW, OLD, OTHER_KEY, Driven, match, rated, run_settings, trained
from golden_runs import load
from msgspec.structs import replace

from flyball.app.config import KNOBS, RunSettings
from flyball.app.config.loading import changed
from flyball.app.controllers import EvaluationFeedbackHandler, GauntletFeedbackController, ModelLifecycleCoordinator
from flyball.app.controllers.fold import Conclusion, Fold
from flyball.app.controllers.ownership import knob_of
from flyball.app.events import (
    Event,
    HyperparameterUpdated,
    ModelRolledBack,
    Payload,
    RegressionDetected,
    RunConfigured,
    SelfplayRequested,
    TrainingFailed,
    handles,
)
from flyball.app.replay.replaying import controllers
from flyball.daemons.bootstrap import check_controllers
from flyball.daemons.own_controllers import own_controllers
from flyball.daemons.registry import daemons_of

GAUNTLETS = ("epochs", "games_per_iteration", "quality_threshold", "base_temperature")
WORSE = "d" * 64
DIVERGED = TrainingFailed(request_id="t", reason="diverged", error="x")


def owning(use: str, *takes_over: str, base: RunSettings | None = None, **options: Any) -> RunSettings:
    """Return settings with one of the user's own controllers, named ``mine``."""
    table = {"use": use, "takes_over": takes_over or ("learning_rate",), "options": options}
    return (base or run_settings(KEY, OTHER_KEY)).replace(controllers={"mine": table})


def driven(use: str, *takes_over: str, **options: Any) -> Driven:
    settings = owning(use, *takes_over, **options)
    (controller,) = own_controllers([settings])
    return Driven(controller, settings)


def test_example_lowers_the_rate_along_a_cosine() -> None:
    mine = driven("my_controller:Cosine", trainings=4, lowest=0.1)
    found = [decision for step in range(6) for decision in mine.feed(trained(step=step))]
    configured = mine.settings.config(KEY).learning_rate
    shares = [0.1 + 0.9 * (1 + cos(pi * min(1, done / 4))) / 2 for done in (1, 2, 3, 4, 5)]
    assert [one.value for one in found] == pytest.approx([configured * share for share in shares])
    assert [one.previous for one in found] == pytest.approx([configured, *(one.value for one in found[:-1])])
    assert mine.state().learning_rate == found[-1].value
    assert mine.state(OTHER_KEY).learning_rate is None
    assert mine.row().trainings == 5


@cache
def generated() -> list[Event[Payload]]:
    return load("generated")


def configured(event: Event[Any], tables: dict[str, Any]) -> Event[Any]:
    settings = RunSettings.recorded(event.data.settings, event.source)
    data = event.data.replace(settings=changed(settings, {"controllers": tables}))
    return replace(event, envelope=replace(event.envelope, data=data))


def conclusions(tables: dict[str, Any]) -> list[Conclusion]:
    """Return the conclusions of a run with the user's own controllers. The run contains every kind of decision."""
    fold, found = Fold(controllers(daemons_of(run_settings().replace(controllers=tables)))), list[Conclusion]()
    for event in generated():
        outcome = fold.feed([configured(event, tables) if isinstance(event.data, RunConfigured) else event])
        assert not outcome.failures
        found += outcome.conclusions
    return found


@cache
def without_own() -> list[Conclusion]:
    return conclusions({})


@pytest.mark.parametrize("knob", [knob for knob in KNOBS if knob not in GAUNTLETS])
def test_taken_over_knob_is_not_set_by_its_built_in_owner(knob: str) -> None:
    found = conclusions({"mine": {"use": "own_rules:Silent", "takes_over": [knob]}})
    assert any(knob_of(one.envelope.data) == knob for one in without_own())
    assert not any(knob_of(one.envelope.data) == knob for one in found)
    others = {knob_of(one.envelope.data) for one in found}
    assert {knob_of(one.envelope.data) for one in without_own()} - others <= {knob, *DEPENDENT.get(knob, ())}


DEPENDENT = {
    "promotion": ("rollback",),  # without a promotion there is nothing to roll back to
    "allocation": ("matchmaking",),
}
"""Knobs left unset in this run, because they depend on the knob taken over."""


@pytest.mark.parametrize("knob", GAUNTLETS)
def test_parameters_of_one_owner_are_taken_over_apart(knob: str) -> None:
    built_in = Driven(GauntletFeedbackController, owning("own_rules:Silent", knob))
    decided = built_in.feed(rated(0.0, match(0.5, 200), match(0.9, 200, "heuristic"), step=10))
    assert {one.parameter for one in decided} == {*GAUNTLETS} - {knob}


def test_built_in_owner_passes_no_rate_on_that_another_owns() -> None:
    settings = owning("own_rules:Silent", "learning_rate")
    handler = Driven(EvaluationFeedbackHandler, settings)
    assert handler.feed(DIVERGED) == []
    assert [type(one) for one in Driven(EvaluationFeedbackHandler).feed(DIVERGED)] == [HyperparameterUpdated]
    by_operator = HyperparameterUpdated(parameter="learning_rate", value=5e-4, previous=1e-3, reason="x")
    assert handler.feed(by_operator) == []
    assert handler.state().learning_rate == 5e-4


def test_controller_takes_part_only_while_settings_name_it() -> None:
    mine = driven("own_rules:Sets")
    assert len(mine.feed(rated())) == 1
    for controllers_table, decisions in (({}, 0), (mine.settings.model_dump(mode="json")["controllers"], 1)):
        settings = mine.settings.model_dump(mode="json") | {"controllers": controllers_table}
        mine.feed(RunConfigured(run_id="again", settings=settings), key=None)
        assert len(mine.feed(rated())) == decisions
    assert mine.row().evaluations == 2


@pytest.mark.parametrize(
    ("use", "error"),
    [
        ("Raising", "ZeroDivisionError: no such rate"),
        ("Forgetful", "UnfitStep: Its handler returned None. Return a Step"),
        ("Writing", "TypeError: 'mappingproxy' object does not support item assignment"),
        ("Remembering", "TypeError: last = .* would be lost at a restart: keep it in a row"),
        ("Rowless", "UnfitStep: It returned the row 'tic_tac_toe_2p': .* rows are Seen or None"),
        ("Mistyped", r"UnfitStep: Its row Seen\(evaluations=1.5\) would be another one after a restart"),
        (
            "RowUndeclared",
            r"UnfitStep: It returned the row 'tic_tac_toe_2p': Seen.* rows are Row or None, as the attri",
        ),
        ("Extending", r"UnfitStep: It returned the row 'tic_tac_toe_2p': Longer.* rows are Seen or None"),
        ("Generating", r"UnfitStep: It returned the emissions <generator .* Return a tuple"),
        ("Commaless", r"UnfitStep: It returned the emissions Emission\(.* Return a tuple"),
        ("Bare", r"UnfitStep: It returned the emission HyperparameterUpdated.* Return Emission\(payload\)"),
        ("Elsewhere", "UnfitStep: It emitted HYPERPARAMETER_UPDATED about 'no_such_2p', which the run does not play"),
        ("Undeclared", "UndeclaredEmission: mine emitted REGRESSION_CLEARED, which it does not declare"),
        ("Meddling", "UndeclaredEmission: mine set epochs, which it does not own"),
        ("Invalid", "ValidationError: .*finite number"),
    ],
)
def test_handler_mistake_costs_only_its_event(use: str, error: str) -> None:
    settings = owning(f"own_rules:{use}")
    fold = Fold(controllers({"feedback": daemons_of(settings)["feedback"]}))
    run = Driven(EvaluationFeedbackHandler, settings)
    run.feed(rated())
    outcomes = [fold.feed([event]) for event in run.events]
    (failure,) = outcomes[-1].failures
    assert (failure.by, failure.event.id) == ("mine", run.events[-1].id)
    assert re.search(error, failure.error.replace("\n", " "))
    assert fold.rows("mine") == {}
    assert fold.rows("EvaluationFeedbackHandler")[KEY].ratings == 1
    assert outcomes[-1].saved()


def test_own_controllers_keep_options_or_are_left_out() -> None:
    options = {"factor": 0.5, "deep": {"x": 1}}
    settings = owning("own_rules:Consuming", **options)
    check_controllers(settings)
    (controller,) = own_controllers([settings])
    assert len(Driven(controller, settings).feed(rated())) == 1
    assert settings.controllers["mine"].options == options
    settings = owning("own_rules:Demanding", factor=0.5)
    (controller,) = own_controllers([settings])
    fold = Fold((controller, EvaluationFeedbackHandler))
    refused = settings.replace(controllers={"mine": {"use": "own_rules:Demanding", "options": {"factor": 2}}})
    run = Driven(EvaluationFeedbackHandler, refused)
    (failure,) = fold.feed(run.events).failures
    assert (failure.by, failure.error) == ("mine", "ValueError: a factor of 1 or more lowers nothing")
    assert [one.name for one in fold.reducers] == ["FeedbackState", "EvaluationFeedbackHandler"]


def test_candidate_survives_a_rollback_that_is_not_taken() -> None:
    """A dropped rollback must not reject the candidate, which would wait forever."""
    for settings, survives in ((owning("own_rules:Silent", "rollback"), True), (run_settings(), False)):
        coordinator = Driven(ModelLifecycleCoordinator, settings)
        coordinator.settle(WORSE)
        coordinator.settle(OLD, 1)
        coordinator.feed(trained(NEW, OLD, 2), rated(model=NEW))
        drop = RegressionDetected(
            model=OLD, last_good=WORSE, severity="severe", elo_drop=60.0, games=40, opponent="random"
        )
        decided = coordinator.feed(drop)
        assert any(isinstance(one, ModelRolledBack) for one in decided) is not survives
        assert (coordinator.row().candidate is not None) is survives


def test_worker_is_not_blamed_for_dropped_requests() -> None:
    """The scheduler's rows must not hold requests that were not sent."""
    found = conclusions({"mine": {"use": "own_rules:Silent", "takes_over": ["allocation"]}})
    assert any(isinstance(one.envelope.data, SelfplayRequested) for one in without_own())
    assert not {"NODE_DEGRADED", "OPPONENT_SAMPLED"} & {one.envelope.data.event_name for one in found}


def test_handler_of_a_name_is_refused_with_an_example() -> None:
    with pytest.raises(TypeError, match=r"such as events\.TrainingCompleted, not 'TrainingCompleted'"):
        handles("TrainingCompleted")
