"""Fixed knobs, by a backend or by settings: no decision changes them."""

import pytest
from driving import KEY, NEW, OLD, Driven, match, promoted, rated, run_settings
from tabular_backend import NAME

from app.config import GAMES, PARAMETERS, Parameter, RunSettings
from app.controllers import EvaluationFeedbackHandler, FeedbackFold, GauntletFeedbackController
from app.events import (
    AdaptiveParamsChanged,
    HyperparameterUpdated,
    LossAnomalyDetected,
    PromotionRejected,
    RunConfigured,
    TrainingFailed,
)
from app.status.state import state_fields

CONFIG = GAMES[KEY]
REJECTED = PromotionRejected(model=NEW, current=OLD, step=1, evidence=promoted().evidence)
WEAK = match(0.5, opponent="random")
STRONG = match(0.95, opponent="heuristic")


def with_knobs(*knobs: Parameter) -> RunSettings:
    """Return settings of a run whose only configuration has these knobs."""
    return run_settings().replace(configs=(CONFIG.replace(knobs=knobs),))


def by_hand(parameter: Parameter, value: float) -> HyperparameterUpdated:
    """Return an operator's decision."""
    return HyperparameterUpdated(parameter=parameter, value=value, previous=1, reason="by hand")


@pytest.mark.parametrize("knobs", [(), ("epochs",), ("quality_threshold", "base_temperature")])
def test_gauntlet_turns_only_the_knobs_of_the_backend(knobs: tuple[Parameter, ...]) -> None:
    controller = Driven(GauntletFeedbackController, with_knobs(*knobs))
    decided = controller.feed(rated(0.0, WEAK, STRONG, step=10))
    assert {decision.parameter for decision in decided} == set(knobs)


@pytest.mark.parametrize(
    "cause",
    [
        [TrainingFailed(request_id="t", reason="diverged", error="nan")],
        [LossAnomalyDetected(metric="value_loss", value=9, expected=1, deviations=9, consecutive=3)],
        [rated(-100.0 * number, stderr=5.0) for number in range(6)],
        [REJECTED] * 3,
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
        driven.feed(by_hand(parameter, 0.4 if parameter == "quality_threshold" else before / 2))
    assert getattr(fixed.state(), parameter) is None
    assert fixed.state().parameter(parameter, fixed.settings) == before
    assert free.state().parameter(parameter, free.settings) != before


def test_operators_parameters_change_unless_they_are_fixed() -> None:
    driven = Driven(EvaluationFeedbackHandler, with_knobs("epochs"))
    driven.feed(AdaptiveParamsChanged(epochs=5, games_per_iteration=9, learning_rate=1e-5, reason="by hand"))
    state = driven.state()
    assert (state.epochs, state.games_per_iteration, state.learning_rate) == (5, None, None)


def test_knob_fixed_by_later_settings_is_as_configured_again() -> None:
    driven = Driven(EvaluationFeedbackHandler, with_knobs(*PARAMETERS))
    driven.feed(by_hand("epochs", 5))
    assert driven.state().epochs == 5
    later = with_knobs("learning_rate").model_dump(mode="json")
    driven.feed(RunConfigured(run_id="later", settings=later), key=None, at=9)
    assert driven.state().epochs is None


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
    fields = state_fields(driven.events, CONFIG.key, frozenset())
    assert (fields["epochs"].fixed, fields["learning_rate"].fixed, fields["elo_peak"].fixed) == (why, None, None)
