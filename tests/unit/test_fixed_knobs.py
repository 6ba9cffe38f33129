"""Fixed knobs, by a backend or by settings: no decision changes them."""

import pytest
from builders import adapted, configured, rejected, training_failed, tuned
from driving import KEY, Driven, match, rated, run_settings
from tabular_backend import NAME

from flyball.app.config import GAMES, PARAMETERS, Parameter, RunSettings
from flyball.app.controllers import EvaluationFeedbackHandler, FeedbackFold, GauntletFeedbackController
from flyball.app.events import LossAnomalyDetected
from flyball.app.status.state import StateFields

CONFIG = GAMES[KEY]
WEAK = match(0.5, opponent="random")
STRONG = match(0.95, opponent="heuristic")


def with_knobs(*knobs: Parameter) -> RunSettings:
    return run_settings().replace(configs=(CONFIG.replace(knobs=knobs),))


@pytest.mark.parametrize("knobs", [(), ("epochs",), ("quality_threshold", "base_temperature")])
def test_gauntlet_turns_only_the_knobs_of_the_backend(knobs: tuple[Parameter, ...]) -> None:
    controller = Driven(GauntletFeedbackController, with_knobs(*knobs))
    decided = controller.feed(rated(0.0, WEAK, STRONG, step=10))
    assert {decision.parameter for decision in decided} == set(knobs)


@pytest.mark.parametrize(
    "cause",
    [
        [training_failed("t", "diverged")],
        [LossAnomalyDetected(metric="value_loss", value=9, expected=1, deviations=9, consecutive=3)],
        [rated(-100.0 * number, stderr=5.0) for number in range(6)],
        [rejected()] * 3,
    ],
    ids=["divergence", "anomaly", "falling ratings", "rejections"],
)
def test_handler_says_nothing_of_knobs_that_are_fixed(cause: list[object]) -> None:
    fixed = Driven(EvaluationFeedbackHandler, with_knobs("base_temperature"))
    assert [one for data in cause for one in fixed.feed(data, at=1)] == []  # type: ignore[arg-type]
    free = Driven(EvaluationFeedbackHandler, with_knobs(*PARAMETERS))
    assert [one for data in cause for one in free.feed(data, at=1)]  # type: ignore[arg-type]


@pytest.mark.parametrize("parameter", PARAMETERS)
def test_operators_value_of_a_fixed_knob_takes_no_effect(parameter: Parameter) -> None:
    fixed, free = (Driven(EvaluationFeedbackHandler, with_knobs(*knobs)) for knobs in ((), PARAMETERS))
    before = fixed.state().parameter(parameter, fixed.settings)
    for driven in (fixed, free):
        driven.feed(tuned(parameter, 0.4 if parameter == "quality_threshold" else before / 2))
    assert getattr(fixed.state(), parameter) is None
    assert fixed.state().parameter(parameter, fixed.settings) == before
    assert free.state().parameter(parameter, free.settings) != before


def test_operators_parameters_change_unless_they_are_fixed() -> None:
    driven = Driven(EvaluationFeedbackHandler, with_knobs("epochs"))
    driven.feed(adapted(5, 9, 1e-5))
    state = driven.state()
    assert (state.epochs, state.games_per_iteration, state.learning_rate) == (5, None, None)
    driven.feed(configured(with_knobs("learning_rate")), key=None, at=9)
    assert driven.state().epochs is None, "a knob fixed by later settings is as configured again"


def test_every_parameter_is_a_field_of_the_state() -> None:
    assert set(PARAMETERS) <= set(FeedbackFold.row.__struct_fields__)
    assert GauntletFeedbackController.parameters | EvaluationFeedbackHandler.parameters == set(PARAMETERS)


@pytest.mark.parametrize(
    ("backend", "knobs", "why"),
    [
        (NAME, ("learning_rate",), f"fixed: backend {NAME} does not understand it"),
        ("policy_gradient", ("learning_rate",), f"fixed by games.{KEY}.knobs"),
        ("not_installed:HERE", ("learning_rate",), "fixed"),
        ("policy_gradient", PARAMETERS, None),
    ],
)
def test_state_says_why_a_knob_is_fixed(backend: str, knobs: tuple[Parameter, ...], why: str | None) -> None:
    settings = run_settings().replace(configs=(CONFIG.replace(backend=backend, knobs=knobs),))
    driven = Driven(EvaluationFeedbackHandler, settings)
    folded = StateFields(frozenset())
    for event in driven.events:
        folded.take(event)
    fields = folded.of(CONFIG.key)
    assert (fields["epochs"].fixed, fields["learning_rate"].fixed, fields["elo_peak"].fixed) == (why, None, None)
