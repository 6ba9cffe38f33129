"""Every event names who decided it."""

from typing import Any

import pytest
from driving import KEY, NEW, run_settings

from flyball.app.config import KNOBS, RunSettings
from flyball.app.controllers.emitters import BUILT_IN, OWNERS, emitter_of
from flyball.app.core import ModelHash
from flyball.app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    EvaluationRequested,
    Event,
    HyperparameterUpdated,
    MatchesRequested,
    MatchmakingUpdated,
    OpponentPick,
    Payload,
    TrainingUnblocked,
    follow,
    originate,
)
from flyball.app.events.envelope import EPOCH, Cause
from flyball.app.status.summary import event_text
from flyball.daemons.registry import DAEMONS

CAUSE = Cause(id="cause", subject=KEY, correlationid="c", traceparent=None, sequence=1, recorded_us=1)
GATE = EvaluationRequested(purpose="gate", model=NEW, step=1, seed=1)


def concluded(data: Payload, by: str, daemon: str, index: int = 0) -> Event[Any]:
    return Event(follow(data, CAUSE, by=by, index=index), 2, 2, f"{daemon}@laptop")


def test_built_in_emitters_are_the_registered_controllers() -> None:
    hosted = {controller for spec in DAEMONS.values() for controller in spec.controllers}
    declared = {one.name: (one.emits, getattr(one, "parameters", frozenset())) for one in hosted}
    assert {one.name: (one.emits, one.parameters) for one in BUILT_IN} == declared
    assert OWNERS.keys() == set(KNOBS)


def test_parameter_is_set_by_its_owner() -> None:
    for parameter, owner in (("learning_rate", "EvaluationFeedbackHandler"), ("epochs", "GauntletFeedbackController")):
        data = HyperparameterUpdated(parameter=parameter, value=2.0, previous=1.0, reason="r")
        assert emitter_of(concluded(data, owner, "feedback")) == owner


@pytest.mark.parametrize(
    ("data", "name", "daemon"),
    [
        (GATE, "FeedbackLoopController", "feedback"),
        (GATE, "ModelLifecycleCoordinator", "model_lifecycle"),
        (
            MatchesRequested(purpose="retest", model=NEW, step=1, opponents=("random",), games=2, seed=1),
            "ModelPerformanceWatchdog",
            "feedback",
        ),
    ],
)
def test_shared_type_is_told_apart_by_its_id(data: Payload, name: str, daemon: str) -> None:
    assert emitter_of(concluded(data, name, daemon, index=3)) == name


def test_shared_type_without_a_known_cause_names_the_daemon() -> None:
    assert emitter_of(concluded(GATE, "unknown", "model_lifecycle")) == "model_lifecycle"


def test_operator_is_named_with_the_producer() -> None:
    unblocked = originate(TrainingUnblocked(reason="checked"), event_id="o", time=EPOCH, subject=KEY)
    event: Event[Any] = Event(unblocked, 2, 2, "cli@head")
    assert emitter_of(event) == "operator (cli@head)"
    assert event_text(event).plain.endswith("training again because checked  by operator (cli@head)")
    params = AdaptiveParamsChanged(epochs=1, games_per_iteration=2, learning_rate=0.1, reason="r")
    assert emitter_of(Event(originate(params, event_id="p", time=EPOCH, subject=KEY), 2, 2, "api@head")).startswith(
        "operator"
    )


def test_remedy_of_a_scenario_names_the_operator() -> None:
    """It has a cause, and its type is one that a single controller emits."""
    restored = HyperparameterUpdated(parameter="learning_rate", value=2.0, previous=1.0, reason="r")
    assert emitter_of(concluded(restored, "cli", "cli")) == "operator (cli@laptop)"


def test_reports_of_hosts_name_nobody() -> None:
    tick: Event[Any] = Event(originate(ClockTick(period_seconds=1.0), event_id="t", time=EPOCH), 2, 2, "broker@head")
    assert emitter_of(tick) == ""
    assert " by " not in event_text(tick).plain


def test_user_defined_owner_takes_the_place_of_the_built_in() -> None:
    pick = OpponentPick(agent="random", category="baselines", probability=1.0)
    data = MatchmakingUpdated(model=ModelHash("f" * 64), picks=(pick,))
    own = {"controllers": {"mine": {"use": "own:Mine", "takes_over": ["matchmaking"]}}}
    settings = RunSettings.model_validate(run_settings().model_dump() | own)
    assert emitter_of(concluded(data, "mine", "feedback"), settings) == "mine"
    assert emitter_of(concluded(data, "LeagueKeeper", "model_lifecycle")) == "LeagueKeeper"
    before = concluded(data, "LeagueKeeper", "model_lifecycle")
    assert emitter_of(before, settings) == "LeagueKeeper", "it decided before the knob was taken over"


def test_narrow_line_shows_the_emitter_while_content_has_room() -> None:
    event = concluded(TrainingUnblocked(reason="r" * 200), "FeedbackLoopController", "feedback")
    assert event_text(event, width=120).plain.endswith("…  by FeedbackLoopController")
    assert len(event_text(event, width=120).plain) == 120
    assert "…" not in event_text(event, width=60).plain, "the terminal cuts it"
