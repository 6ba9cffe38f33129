"""EvaluationFeedbackHandler: the learning rate follows the gain in rating.

Ratings come with errors of tens of Elo, and the rule is asked every hour: a mean gain that is not significant counts as
none. Without that, noise alone lowers a learning rate by a tenth of itself a day, for a cut is larger than a raise.
So a single loss anomaly lowers nothing either; several trainings in a row with one, each further out, do.
"""

from collections.abc import Mapping
from datetime import timedelta
from math import hypot
from typing import Any, ClassVar

from app.controllers.controller import Controller
from app.controllers.knobs import bounded
from app.controllers.state import States, state_of
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
    handles,
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


Rows = Mapping[str, LearningRow]


class EvaluationFeedbackHandler(Controller):
    """Owns the learning rate; tells the trainer all settings whenever one of them changes."""

    name: ClassVar[str] = "EvaluationFeedbackHandler"
    row: ClassVar[type[LearningRow]] = LearningRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({AdaptiveParamsChanged})
    parameters: ClassVar[frozenset[Parameter]] = frozenset({"learning_rate"})

    @handles(HyperparameterUpdated)
    def parameter_set(self, rows: Rows, event: Event[HyperparameterUpdated], states: States) -> Step[LearningRow]:
        """Tell the trainer a parameter that another controller or an operator has set."""
        row, data, key = self._row(rows, event), event.data, event.subject
        if (
            data.parameter == "learning_rate"
        ):  # an operator's: it holds for a cooldown, then the rule goes on from there
            return _told(key, self._set(row, data.value, event.recorded_us), data.reason)
        if data.parameter in {"epochs", "games_per_iteration"}:
            number = int(bounded(data.parameter, data.value, self.settings, key))
            return _told(key, row.replace(**{data.parameter: number}), data.reason)
        return Step()

    @handles(EvaluationCompleted)
    def evaluated(self, rows: Rows, event: Event[EvaluationCompleted], states: States) -> Step[LearningRow]:
        """Set the learning rate by the mean difference between successive ratings."""
        row, data, limits = self._row(rows, event), event.data, self.settings.feedback.learning_rate
        if data.purpose != "rating":
            return Step()
        first = -limits.evaluations - 1
        row = row.replace(elos=(*row.elos, data.elo)[first:], stderrs=(*row.stderrs, data.elo_stderr)[first:])
        if len(row.elos) <= limits.evaluations or self._cooling(event, row):
            return Step({event.subject: row})
        gain = (row.elos[-1] - row.elos[0]) / limits.evaluations
        noise = limits.confidence * hypot(row.stderrs[-1], row.stderrs[0]) / limits.evaluations
        if min(limits.lower_at_elo, -noise) < gain < max(limits.raise_at_elo, noise):
            return Step({event.subject: row})
        factor = limits.raise_factor if gain >= limits.raise_at_elo else limits.lower_factor
        reason = f"mean gain of {gain:+.1f} Elo over the last {limits.evaluations} evaluations"
        return self._scaled(event, row, factor, reason)

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[LearningRow]:
        """Forget the ratings: the leap back up to the model from before is no gain."""
        return Step({event.subject: self._row(rows, event).replace(elos=(), stderrs=())})

    @handles(TrainingFailed)
    def training_failed(self, rows: Rows, event: Event[TrainingFailed], states: States) -> Step[LearningRow]:
        """Lower the learning rate at once after a divergence."""
        if event.data.reason != "diverged":
            return Step()
        row = self._row(rows, event)
        factor = self.settings.feedback.learning_rate.lower_factor
        return _told(
            event.subject, self._set(row, row.learning_rate * factor, event.recorded_us), "the training diverged"
        )

    @handles(LossAnomalyDetected)
    def loss_was_unusual(self, rows: Rows, event: Event[LossAnomalyDetected], states: States) -> Step[LearningRow]:
        """Lower the learning rate after enough trainings in a row with an anomaly, once for each training.

        One that several of its figures tell of is not another one, however short the cooldown.
        """
        row, trainings, limits = self._row(rows, event), event.data.consecutive, self.settings.feedback.learning_rate
        trained = state_of(states, event.subject).last_training_time
        since_change = timedelta(microseconds=event.recorded_us - row.changed_us)
        answered = trained is not None and since_change <= event.recordedtime - trained
        if trainings < limits.anomalies or answered or self._cooling(event, row):
            return Step()
        return self._scaled(event, row, limits.lower_factor, f"{trainings} trainings in a row with a loss anomaly")

    def _row(self, rows: Rows, event: Event[Any]) -> LearningRow:
        """Return the configuration's row; before any event, one with its settings."""
        if row := rows.get(event.subject):
            return row
        config = self.settings.config(ConfigKey(event.subject))
        return LearningRow(
            learning_rate=config.ppo.learning_rate,
            epochs=config.ppo.epochs,
            games_per_iteration=config.selfplay.games_per_request,
            elos=(),
            stderrs=(),
            changed_us=0,
        )

    def _set(self, row: LearningRow, rate: float, now_us: int) -> LearningRow:
        """Set the learning rate, within its bounds; one that is above them already may stay there."""
        limits = self.settings.feedback.learning_rate
        bounded = min(max(rate, limits.minimum), max(limits.maximum, row.learning_rate))
        return row.replace(learning_rate=bounded, changed_us=now_us)

    def _cooling(self, event: Event[Any], row: LearningRow) -> bool:
        cooldown_us = self.settings.feedback.learning_rate.cooldown_hours * SECONDS_PER_HOUR * US
        return row.changed_us > 0 and event.recorded_us - row.changed_us < cooldown_us

    def _scaled(self, event: Event[Any], row: LearningRow, factor: float, reason: str) -> Step[LearningRow]:
        """Multiply the learning rate, and tell if that changes it."""
        changed = self._set(row, row.learning_rate * factor, event.recorded_us)
        same = changed.learning_rate == row.learning_rate
        return Step({event.subject: row}) if same else _told(event.subject, changed, reason)


def _told(key: str, row: LearningRow, reason: str) -> Step[LearningRow]:
    settings = AdaptiveParamsChanged(
        epochs=row.epochs, games_per_iteration=row.games_per_iteration, learning_rate=row.learning_rate, reason=reason
    )
    return Step({key: row}, (Emission(settings),))
