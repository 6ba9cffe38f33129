"""Owners of knobs: one controller for each.

An owner is built in or user-defined. Built-in controllers do not know which knobs are taken over. They decide as
always, and ``Owners`` drops their decisions about those knobs. Operators may still set any knob.
"""

from collections.abc import Mapping

from flyball.app.config import PARAMETERS, Knob, RunSettings
from flyball.app.events import (
    AdaptiveParamsChanged,
    CurriculumRebalanced,
    Envelope,
    ExplorationBoost,
    HyperparameterUpdated,
    MatchmakingUpdated,
    ModelPromoted,
    ModelRolledBack,
    NodeQuarantined,
    NodeReleased,
    Payload,
    PromotionRejected,
    QualityPenaltyApplied,
    SelfplayRequested,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
)

SET_BY: Mapping[type[Payload], Knob] = {
    AdaptiveParamsChanged: "learning_rate",
    ExplorationBoost: "exploration_boost",
    QualityPenaltyApplied: "selfplay_rate",
    TrainingIntensityChanged: "training_intensity",
    TrainingBlockedByQuality: "training_block",
    TrainingUnblocked: "training_block",
    CurriculumRebalanced: "curriculum_weight",
    MatchmakingUpdated: "matchmaking",
    ModelPromoted: "promotion",
    PromotionRejected: "promotion",
    ModelRolledBack: "rollback",
    NodeQuarantined: "quarantine",
    NodeReleased: "quarantine",
    SelfplayRequested: "allocation",
    TrainingRequested: "training_start",
}
"""The knob that each type sets. HYPERPARAMETER_UPDATED sets the parameter that it names. ADAPTIVE_PARAMS_CHANGED sets
two more; no controller emits it."""

WHOLE_STEPS: frozenset[Knob] = frozenset({"promotion", "rollback", "allocation"})
"""Knobs whose steps are dropped as a whole: the rows and the other emissions rest on the decision. A candidate whose
verdict alone was dropped would wait for ever, and a worker would be blamed for requests that it never got."""


def knob_of(data: Payload) -> Knob | None:
    """Return the knob that a payload sets; ``None``: it sets none."""
    return data.parameter if isinstance(data, HyperparameterUpdated) else SET_BY.get(type(data))


def knobs_set(payload: type[Payload]) -> frozenset[Knob]:
    """Return the knobs that events of a type may set."""
    if payload is HyperparameterUpdated:
        return frozenset(PARAMETERS)
    return frozenset({SET_BY[payload]}) if payload in SET_BY else frozenset()


class Owners:
    """Owners of the knobs that user-defined controllers take over."""

    def __init__(self, settings: RunSettings) -> None:
        self._taken = settings.taken_over

    def allowed(self, by: str, drafted: list[Envelope[Payload]]) -> list[Envelope[Payload]] | None:
        """Return a controller's emissions without those that set others' knobs. ``None``: drop the whole step."""
        if not self._taken:
            return drafted
        dropped = [envelope for envelope in drafted if self._is_of_another(by, envelope.data)]
        if any(knob_of(envelope.data) in WHOLE_STEPS for envelope in dropped):
            return None
        return [envelope for envelope in drafted if envelope not in dropped]

    def _is_of_another(self, by: str, data: Payload) -> bool:
        knob = knob_of(data)
        return knob is not None and self._taken.get(knob, by) != by
