"""stall: a configuration stops improving at the lowest learning rate, until the former one is restored."""

from app.controllers.knobs import is_turned
from app.core import SECONDS_PER_HOUR
from app.events import AdaptiveParamsChanged, ExplorationBoost, HyperparameterUpdated, PlateauDetected
from app.scenarios.plan import ConfigView, Expected, Plan, Scenario
from app.store import BlobStore

QUICK = """\
[feedback.stall]
check_seconds = 2.0
window_hours = 0.01
velocity = 5000.0
precision = 5000.0
boost_hours = 0.002
"""
"""Settings that show a stall within minutes.

A learning model gains 10,000 Elo/h at first, and ratings of half a minute show its velocity to within 5,000 Elo/h.
"""


def _lacks(view: ConfigView, store: BlobStore) -> str | None:  # noqa: ARG001 - a scenario's
    if view.model is None:
        return "has no current model yet"
    if not is_turned("learning_rate", view.settings, view.key):
        return "has a fixed learning rate (games.KEY.knobs, or its backend)"
    return "has stalled already: its exploration is boosted" if view.state.exploration_boost > 1 else None


def _plan(view: ConfigView, store: BlobStore) -> Plan:  # noqa: ARG001 - a scenario's
    stall, least = view.settings.feedback.stall, view.settings.feedback.learning_rate.minimum
    usual = view.state.parameter("learning_rate", view.settings)
    return Plan(
        key=view.key,
        trouble=_learning_rate(least, usual, "the stall scenario: learning is suppressed"),
        expected=(
            Expected(
                "struck",
                AdaptiveParamsChanged,
                lambda event, _: event.data.learning_rate == least,
                "Does the feedback daemon run? (flyball status)",
            ),
            Expected(
                "detected",
                PlateauDetected,
                lambda *_: True,
                "Ratings must show that the velocity is below feedback.stall.velocity, and be certain to within "
                f"precision. Within minutes they are with these lines in flyball.toml:\n{QUICK}",
            ),
            Expected(
                "decided", ExplorationBoost, lambda event, _: event.data.multiplier > 1, "It comes with the plateau."
            ),
            Expected(
                "recovered",
                AdaptiveParamsChanged,
                lambda event, _: event.data.learning_rate == usual,
                "Does the feedback daemon run? (flyball status)",
            ),
            Expected(
                "recovered",
                ExplorationBoost,
                lambda event, _: event.data.multiplier == 1,
                "The boost lives for feedback.stall.boost_hours, and longer while the ratings still show a stall.",
            ),
        ),
        least_seconds=(stall.window_hours + stall.boost_hours) * SECONDS_PER_HOUR,
        shorten=QUICK,
        remains=f"Where exploration of {view.key} was boosted it stays so for {stall.boost_hours:g} h, and longer "
        "while its ratings show a stall.",
        remedy=_learning_rate(usual, least, "the stall scenario is over"),
        remedy_after=2,
    )


def _learning_rate(value: float, previous: float, reason: str) -> HyperparameterUpdated:
    return HyperparameterUpdated(parameter="learning_rate", value=value, previous=previous, reason=reason)


SCENARIO = Scenario("stall", "a learning rate so low that nothing is learned", _lacks, _plan)
