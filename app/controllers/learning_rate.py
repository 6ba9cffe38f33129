"""EvaluationFeedbackHandler: the learning rate follows the gain in rating.

Ratings have errors of tens of Elo, so a mean gain that is not significant changes nothing. Otherwise noise alone would
lower the learning rate by a tenth a day, because a cut is larger than a raise. For the same reason a single loss
anomaly changes nothing; several consecutive trainings with an anomaly lower the rate.

Each candidate is trained from the champion, so a rate that is far too high shows in no loss of rating: the gate rejects
one candidate after the other, and nothing is learned. So several consecutive rejections lower the rate, by more,
because each try costs as many trainings.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from math import hypot
from typing import Any, ClassVar, NamedTuple

from flyball.app.config import Parameter
from flyball.app.config.feedback import LearningRateSettings
from flyball.app.controllers.controller import Controller, Watched, setting
from flyball.app.controllers.cooldown import NOTHING, Wait, cooldown_wait, is_cooling
from flyball.app.controllers.knobs import is_turned
from flyball.app.controllers.lineage import REMEMBERED
from flyball.app.controllers.state import HISTORY_LENGTH, FeedbackState, States, state_of
from flyball.app.controllers.trend import connected
from flyball.app.core import ModelHash
from flyball.app.events import (
    Emission,
    EvaluationCompleted,
    Event,
    HyperparameterUpdated,
    LossAnomalyDetected,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    Row,
    Step,
    TrainingFailed,
    handles,
)


class PastRate(Row, frozen=True):
    """The learning rate at a model's promotion."""

    model: ModelHash
    learning_rate: float


class LearningRow(Row, frozen=True):
    """A configuration's last learning rate change.

    Attributes:
        changed_us: when the learning rate was last changed, microseconds since 1970 UTC.
        ratings: number of ratings since then.
        by_operator: an operator made the last change.
        promoted: the learning rates of the latest promotions, which a rollback restores.
    """

    changed_us: int = 0
    ratings: int = 0
    by_operator: bool = False
    promoted: tuple[PastRate, ...] = ()


FIRST = LearningRow()
"""The row of a configuration that was never rated."""


Rows = Mapping[str, LearningRow]


class MeanGain(NamedTuple):
    """Mean difference between the latest ratings, Elo, its noise, and the gains at which the learning rate changes.

    These are the settings', or further out where the ratings are noisy.
    """

    gain: float
    noise: float
    differences: int
    lower_at: float
    raise_at: float


def _mean_gain(state: FeedbackState, limits: LearningRateSettings) -> MeanGain | None:
    """Return the mean gain of the latest ratings; ``None`` while there are too few."""
    differences = min(limits.evaluations, HISTORY_LENGTH - 1)
    rated = connected(state.elo_history)[-differences - 1 :]
    if len(rated) <= differences:
        return None
    gain = (rated[-1].elo - rated[0].elo) / differences
    noise = limits.confidence * hypot(rated[-1].stderr, rated[0].stderr) / differences
    return MeanGain(gain, noise, differences, min(limits.lower_at_elo, -noise), max(limits.raise_at_elo, noise))


class EvaluationFeedbackHandler(Controller):
    """Owns the learning rate."""

    name: ClassVar[str] = "EvaluationFeedbackHandler"
    row: ClassVar[type[LearningRow]] = LearningRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({HyperparameterUpdated})
    parameters: ClassVar[frozenset[Parameter]] = frozenset({"learning_rate"})

    @handles(HyperparameterUpdated)
    def parameter_set(self, rows: Rows, event: Event[HyperparameterUpdated], states: States) -> Step[LearningRow]:
        """Let an operator's learning rate hold for a cooldown; then the rule continues from it."""
        if event.data.parameter != "learning_rate" or not is_turned("learning_rate", self.settings, event.subject):
            return Step()
        row = rows.get(event.subject, FIRST)
        return Step({event.subject: row.replace(changed_us=event.recorded_us, ratings=0, by_operator=True)})

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[LearningRow]:
        """Set the learning rate by the mean difference between successive ratings."""
        row, data, limits = rows.get(event.subject, FIRST), event.data, self.settings.feedback.learning_rate
        state = state_of(states, event.subject)
        if data.purpose != "rating" or not state.lineage.is_trial(data.model):
            return Step()
        row, measured = row.replace(ratings=row.ratings + 1), _mean_gain(state, limits)
        if measured is None or self._cooling(event, row):
            return Step({event.subject: row})
        if measured.lower_at < measured.gain < measured.raise_at:
            return Step({event.subject: row})
        rises = measured.gain >= limits.raise_at_elo
        name, threshold = ("raise_at_elo", limits.raise_at_elo) if rises else ("lower_at_elo", limits.lower_at_elo)
        rule = setting(f"feedback.learning_rate.{name}", threshold)
        beyond = f"mean gain of {measured.gain:+.1f} Elo, beyond noise of {measured.noise:.1f}"
        factor = limits.raise_factor if rises else limits.lower_factor
        reason = f"{beyond}, over the last {measured.differences} evaluations {rule}"
        return self._scaled(event, row, state, factor, reason)

    @handles(ModelPromoted)
    def promoted(self, rows: Rows, event: Event[ModelPromoted], states: States) -> Step[LearningRow]:
        """Note the learning rate, which a rollback of the model restores."""
        row, model = rows.get(event.subject, FIRST), event.data.model
        rate = state_of(states, event.subject).parameter("learning_rate", self.settings)
        before = [champion for champion in row.promoted if champion.model != model]
        noted = (*before, PastRate(model=model, learning_rate=rate))[-REMEMBERED:]
        return Step({event.subject: row.replace(promoted=noted)})

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[LearningRow]:
        """Restore the learning rate at which the first removed champion was promoted.

        Later changes rest on that champion. A learning rate that an operator set stays.
        """
        row, state = rows.get(event.subject, FIRST), state_of(states, event.subject)
        champions = {champion.model for champion in state.lineage.champions}
        removed = [champion for champion in row.promoted if champion.model not in champions]
        row = row.replace(promoted=tuple(champion for champion in row.promoted if champion.model in champions))
        before = state.parameter("learning_rate", self.settings)
        if not removed or row.by_operator or self._bounded(state, removed[0].learning_rate) == before:
            return Step({event.subject: row})
        reason = f"the rollback removes the models since {removed[0].model[:8]}"
        return self._set(row, event, state, removed[0].learning_rate, reason)

    @handles(TrainingFailed)
    def training_failed(self, rows: Rows, event: Event[TrainingFailed], states: States) -> Step[LearningRow]:
        """Lower the learning rate at once after a divergence."""
        if event.data.reason != "diverged" or not is_turned("learning_rate", self.settings, event.subject):
            return Step()
        row, state = rows.get(event.subject, FIRST), state_of(states, event.subject)
        factor = self.settings.feedback.learning_rate.lower_factor
        reason = f"the training diverged {setting('feedback.learning_rate.lower_factor', factor)}"
        return self._scaled(event, row, state, factor, reason)

    @handles(LossAnomalyDetected)
    def loss_was_unusual(self, rows: Rows, event: Event[LossAnomalyDetected], states: States) -> Step[LearningRow]:
        """Lower the learning rate after several trainings with an anomaly.

        The rate falls after ``anomalies`` consecutive such trainings, once for each training. Several anomalies of one
        training count once, however short the cooldown.
        """
        row, state = rows.get(event.subject, FIRST), state_of(states, event.subject)
        trainings, limits = event.data.consecutive, self.settings.feedback.learning_rate
        trained = state.last_training_time
        since_change = timedelta(microseconds=event.recorded_us - row.changed_us)
        answered = trained is not None and since_change <= event.recordedtime - trained
        if trainings < limits.anomalies or answered or self._cooling(event, row):
            return Step()
        rule = setting("feedback.learning_rate.anomalies", limits.anomalies)
        reason = f"{trainings} consecutive trainings had a loss anomaly {rule}"
        return self._scaled(event, row, state, limits.lower_factor, reason)

    @handles(PromotionRejected)
    def rejected(self, rows: Rows, event: Event[PromotionRejected], states: States) -> Step[LearningRow]:
        """Lower the learning rate after several consecutive rejections.

        The rate falls again after as many more. Only an operator's learning rate has a cooldown here, because one far
        too high must fall fast.
        """
        row, state = rows.get(event.subject, FIRST), state_of(states, event.subject)
        limits = self.settings.feedback.learning_rate
        enough = state.consecutive_failures > 0 and state.consecutive_failures % limits.rejections == 0
        if not enough or (row.by_operator and self._cooling(event, row)):
            return Step()
        rule = setting("feedback.learning_rate.rejections", limits.rejections)
        reason = f"{state.consecutive_failures} consecutive candidates were rejected {rule}"
        return self._scaled(event, row, state, limits.rejections_factor, reason)

    def watches(self, rows: Rows, states: States, key: str) -> Sequence[Watched]:
        """Return the mean gain of the latest ratings, and the rejections. See ``Controller.watches``."""
        if not is_turned("learning_rate", self.settings, key):
            return ()
        state, limits = state_of(states, key), self.settings.feedback.learning_rate
        measured, prefix = _mean_gain(state, limits), "feedback.learning_rate."
        averaged = min(limits.evaluations, HISTORY_LENGTH - 1)
        row, rated = rows.get(key, FIRST), len(connected(state.elo_history))
        cooldown = cooldown_wait(state, row.changed_us, row.ratings, limits)
        gain, lower_at, raise_at, waits = None, limits.lower_at_elo, limits.raise_at_elo, cooldown
        if measured is None:
            missing = averaged + 1 - rated
            waits = Wait(f"{rated} of {averaged + 1} ratings", state.rating_expected(missing))
        else:
            gain, lower_at, raise_at = measured.gain, measured.lower_at, measured.raise_at
        before = state.parameter("learning_rate", self.settings)
        highest = Wait("it is at its highest") if before >= limits.maximum else waits
        lowest = Wait("it is at its lowest") if before <= limits.minimum else waits
        what, rate = f"mean gain of the last {averaged} ratings", "learning rate x {:g}".format
        return (
            Watched(
                what=what,
                value=gain,
                threshold=raise_at,
                acts="above",
                effect=rate(limits.raise_factor),
                setting=prefix + "raise_at_elo",
                unit="Elo",
                **highest._asdict(),
            ),
            Watched(
                what=what,
                value=gain,
                threshold=lower_at,
                acts="below",
                effect=rate(limits.lower_factor),
                setting=prefix + "lower_at_elo",
                unit="Elo",
                **lowest._asdict(),
            ),
            Watched(
                what="consecutive rejections",
                value=state.consecutive_failures,
                threshold=limits.rejections,
                acts="above",
                effect=rate(limits.rejections_factor),
                setting=prefix + "rejections",
                **(cooldown if row.by_operator else NOTHING)._asdict(),
            ),
        )

    def _cooling(self, event: Event[Any], row: LearningRow) -> bool:
        return is_cooling(event.recorded_us, row.changed_us, row.ratings, self.settings.feedback.learning_rate)

    def _scaled(
        self, event: Event[Any], row: LearningRow, state: FeedbackState, factor: float, reason: str
    ) -> Step[LearningRow]:
        """Multiply the learning rate, if that changes it."""
        before = state.parameter("learning_rate", self.settings)
        rate = self._bounded(state, before * factor)
        return Step({event.subject: row}) if rate == before else self._set(row, event, state, rate, reason)

    def _set(
        self, row: LearningRow, event: Event[Any], state: FeedbackState, rate: float, reason: str
    ) -> Step[LearningRow]:
        changed = row.replace(changed_us=event.recorded_us, ratings=0, by_operator=False)
        before, after = state.parameter("learning_rate", self.settings), self._bounded(state, rate)
        update = HyperparameterUpdated(parameter="learning_rate", value=after, previous=before, reason=reason)
        return Step({event.subject: changed}, (Emission(update),))

    def _bounded(self, state: FeedbackState, rate: float) -> float:
        """Return a learning rate within its bounds.

        A rate that is above the bounds already may stay there. A rate that decisions do not change keeps its value.
        """
        limits, before = self.settings.feedback.learning_rate, state.parameter("learning_rate", self.settings)
        if not is_turned("learning_rate", self.settings, state.config_key):
            return before
        return min(max(rate, limits.minimum), max(limits.maximum, before))
