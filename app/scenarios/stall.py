"""stall and plateau: a configuration stops improving at the lowest learning rate.

In stall the former rate is restored once exploration is boosted. In plateau it is restored only after boosts were in
vain and the configuration has lost its weight to others, which then comes back.
"""

from flyball.app.controllers.knobs import is_turned
from flyball.app.core import SECONDS_PER_HOUR
from flyball.app.events import (
    CurriculumRebalanced,
    ExplorationBoost,
    HyperparameterUpdated,
    PlateauDetected,
    TrainingRequested,
)
from flyball.app.scenarios.plan import ConfigView, Expected, Plan, Scenario, Stage
from flyball.app.store import BlobStore

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


def _lacks_rivals(view: ConfigView, store: BlobStore) -> str | None:
    if len(view.settings.configs) < 2:
        return "is the only configuration, so that its weight can go to no other"
    return "is plateaued already" if view.state.plateaued else _lacks(view, store)


def _plan_stall(view: ConfigView, store: BlobStore) -> Plan:  # noqa: ARG001 - a scenario's
    boost_ends = Expected(
        "recovered",
        ExplorationBoost,
        lambda event, _: event.data.multiplier == 1,
        "The boost lives for feedback.stall.boost_hours, and longer while the ratings still show a stall.",
    )
    return _plan("stall", view, decided=(), recovered=(boost_ends,))


def _plan_plateau(view: ConfigView, store: BlobStore) -> Plan:  # noqa: ARG001 - a scenario's
    taken = Expected(
        "decided",
        CurriculumRebalanced,
        lambda event, _: view.key in event.data.plateaued,
        "The stall must last through a boost, its gain must certainly be less than half of the others', and "
        "feedback.curriculum.rebalance_seconds must have passed since the weights last changed.",
    )
    returned = Expected(
        "recovered",
        CurriculumRebalanced,
        lambda event, _: view.key not in event.data.plateaued,
        "Ratings must show that it gains as much as the others again; at the lowest weight they are rare.",
    )
    return _plan("plateau", view, decided=(taken,), recovered=(returned,))


def _plan(name: str, view: ConfigView, decided: tuple[Expected, ...], recovered: tuple[Expected, ...]) -> Plan:
    """Return a plan with the steps of a stall. ``decided`` come before the remedy, ``recovered`` at the end."""
    stall, least = view.settings.feedback.stall, view.settings.feedback.learning_rate.minimum
    usual = view.state.parameter("learning_rate", view.settings)
    begun = (
        _training_at(least, "struck"),
        Expected(
            "detected",
            PlateauDetected,
            lambda *_: True,
            "Ratings must show that the velocity is below feedback.stall.velocity, and be certain to within "
            f"precision. Within minutes they are with these lines in flyball.toml:\n{QUICK}",
        ),
        Expected("decided", ExplorationBoost, lambda event, _: event.data.multiplier > 1, "It comes with the plateau."),
        *decided,
    )
    return Plan(
        key=view.key,
        trouble=_learning_rate(least, usual, f"the {name} scenario: learning is suppressed"),
        expected=(*begun, _training_at(usual, "recovered"), *recovered),
        least_seconds=(stall.window_hours + stall.boost_hours) * SECONDS_PER_HOUR,
        shorten=QUICK,
        remains=f"Where exploration of {view.key} was boosted it stays so for {stall.boost_hours:g} h, and longer "
        "while its ratings show a stall.",
        remedy=_learning_rate(usual, least, f"the {name} scenario is over"),
        remedy_after=len(begun) - 1,
    )


def _training_at(rate: float, stage: Stage) -> Expected:
    """Return the next training at a learning rate, by which a change of the rate takes effect."""
    return Expected(
        stage,
        TrainingRequested,
        lambda event, _: event.data.learning_rate == rate,
        "A training takes enough rows (games.KEY.rows_per_training). Do all daemons run? (flyball status)",
    )


def _learning_rate(value: float, previous: float, reason: str) -> HyperparameterUpdated:
    return HyperparameterUpdated(parameter="learning_rate", value=value, previous=previous, reason=reason)


SCENARIO = Scenario("stall", "a learning rate so low that nothing is learned", _lacks, _plan_stall)
PLATEAU = Scenario(
    "plateau", "the same, until its weight goes to other configurations and comes back", _lacks_rivals, _plan_plateau
)
