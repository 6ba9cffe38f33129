"""EvaluationFeedbackHandler: the learning rate follows the gain in rating.

Ratings come with errors of tens of Elo, and the rule is asked every hour: a mean gain that is not significant counts as
none. Without that, noise alone lowers a learning rate by a tenth of itself a day, for a cut is larger than a raise.
So a single loss anomaly lowers nothing either; several trainings in a row with one, each further out, do.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta
from math import hypot
from typing import ClassVar

from app.controllers.controller import Controller
from app.controllers.knobs import bounded
from app.controllers.state import FeedbackState, state_of
from app.controllers.trend import SECONDS_PER_HOUR
from app.core import ConfigKey
from app.events import (
    AdaptiveParamsChanged,
    Emission,
    EvaluationCompleted,
    Event,
    HyperparameterUpdated,
    LossAnomalyDetected,
    ModelRolledBack,
    Parameter,
    Payload,
    Row,
    Step,
    TrainingFailed,
)

US = 1_000_000


class LearningRow(Row, frozen=True):
    """The settings of coming trainings, the latest ratings, and when the learning rate was last changed."""

    learning_rate: float
    epochs: int
    games_per_iteration: int
    elos: tuple[float, ...]
    stderrs: tuple[float, ...]
    changed_us: int


class EvaluationFeedbackHandler(Controller[LearningRow]):
    """Owns the learning rate; tells the trainer all settings whenever one of them changes."""

    name: ClassVar[str] = "EvaluationFeedbackHandler"
    row: ClassVar[type[LearningRow]] = LearningRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {EvaluationCompleted, HyperparameterUpdated, LossAnomalyDetected, ModelRolledBack, TrainingFailed}
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({AdaptiveParamsChanged})
    parameters: ClassVar[frozenset[Parameter]] = frozenset({"learning_rate"})

    def step(
        self,
        rows: Mapping[str, LearningRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],
    ) -> Step[LearningRow]:
        """Fold one event."""
        row = rows.get(event.subject) or self._initial(event.subject)
        match event.data:
            case HyperparameterUpdated(parameter="epochs" | "games_per_iteration" as name, value=value, reason=reason):
                number = int(bounded(name, value, self.settings, event.subject))
                return _told(event.subject, row.replace(**{name: number}), reason)
            case HyperparameterUpdated(parameter="learning_rate", value=value, reason=reason):
                # An operator's word: it holds for a cooldown, then the rule goes on from there.
                return _told(event.subject, self._set(row, value, event.recorded_us), reason)
            case EvaluationCompleted(purpose="rating", elo=elo, elo_stderr=stderr):
                first = -self.settings.feedback.learning_rate.evaluations - 1
                ratings = {"elos": (*row.elos, elo)[first:], "stderrs": (*row.stderrs, stderr)[first:]}
                return self._adjusted(event, row.replace(**ratings))
            case ModelRolledBack():
                # The leap back up to the model from before is no gain.
                return Step({event.subject: row.replace(elos=(), stderrs=())})
            case TrainingFailed(reason="diverged"):
                # A divergence calls for a lower learning rate, at once.
                factor = self.settings.feedback.learning_rate.lower_factor
                lowered = self._set(row, row.learning_rate * factor, event.recorded_us)
                return _told(event.subject, lowered, "the training diverged")
            case LossAnomalyDetected(consecutive=trainings):
                return self._calmed(event, row, trainings, state_of(states, event.subject).last_training_time)
        return Step()

    def _set(self, row: LearningRow, rate: float, now_us: int) -> LearningRow:
        """Set the learning rate, within its bounds; one that is above them already may stay there."""
        limits = self.settings.feedback.learning_rate
        bounded = min(max(rate, limits.minimum), max(limits.maximum, row.learning_rate))
        return row.replace(learning_rate=bounded, changed_us=now_us)

    def _initial(self, key: str) -> LearningRow:
        config = self.settings.config(ConfigKey(key))
        return LearningRow(
            learning_rate=config.ppo.learning_rate,
            epochs=config.ppo.epochs,
            games_per_iteration=config.selfplay.games_per_request,
            elos=(),
            stderrs=(),
            changed_us=0,
        )

    def _calmed(
        self, event: Event[Payload], row: LearningRow, trainings: int, trained: datetime | None
    ) -> Step[LearningRow]:
        """Lower the learning rate if that many trainings in a row with an anomaly call for it, once for each training.

        One that several of its figures tell of is not another one, however short the cooldown.
        """
        limits = self.settings.feedback.learning_rate
        since_change = timedelta(microseconds=event.recorded_us - row.changed_us)
        answered = trained is not None and since_change <= event.recordedtime - trained
        if trainings < limits.anomalies or answered or self._cooling(event, row):
            return Step()
        return self._scaled(event, row, limits.lower_factor, f"{trainings} trainings in a row with a loss anomaly")

    def _cooling(self, event: Event[Payload], row: LearningRow) -> bool:
        cooldown_us = self.settings.feedback.learning_rate.cooldown_hours * SECONDS_PER_HOUR * US
        return row.changed_us > 0 and event.recorded_us - row.changed_us < cooldown_us

    def _scaled(self, event: Event[Payload], row: LearningRow, factor: float, reason: str) -> Step[LearningRow]:
        """Multiply the learning rate, and tell if that changes it."""
        changed = self._set(row, row.learning_rate * factor, event.recorded_us)
        same = changed.learning_rate == row.learning_rate
        return Step({event.subject: row}) if same else _told(event.subject, changed, reason)

    def _adjusted(self, event: Event[Payload], row: LearningRow) -> Step[LearningRow]:
        """Set the learning rate by the mean difference between successive ratings."""
        limits, key = self.settings.feedback.learning_rate, event.subject
        if len(row.elos) <= limits.evaluations or self._cooling(event, row):
            return Step({key: row})
        gain = (row.elos[-1] - row.elos[0]) / limits.evaluations
        noise = limits.confidence * hypot(row.stderrs[-1], row.stderrs[0]) / limits.evaluations
        if min(limits.lower_at_elo, -noise) < gain < max(limits.raise_at_elo, noise):
            return Step({key: row})
        factor = limits.raise_factor if gain >= limits.raise_at_elo else limits.lower_factor
        reason = f"mean gain of {gain:+.1f} Elo over the last {limits.evaluations} evaluations"
        return self._scaled(event, row, factor, reason)


def _told(key: str, row: LearningRow, reason: str) -> Step[LearningRow]:
    settings = AdaptiveParamsChanged(
        epochs=row.epochs, games_per_iteration=row.games_per_iteration, learning_rate=row.learning_rate, reason=reason
    )
    return Step({key: row}, (Emission(settings),))
