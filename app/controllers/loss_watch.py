"""LossWatch: detects training metrics far above their usual range.

Mean and variance of each metric are exponentially weighted; a value far above the mean is an anomaly. A training that
diverges outright makes no model, and EvaluationFeedbackHandler lowers the learning rate. It also does so after several
consecutive trainings with an anomaly. Each anomaly widens the range, so that only a further rise brings a second one.
"""

from collections.abc import Mapping
from math import sqrt
from typing import ClassVar

from flyball.app.config.feedback import AnomalySettings
from flyball.app.controllers.controller import Controller
from flyball.app.controllers.state import States
from flyball.app.events import (
    Emission,
    Event,
    LossAnomalyDetected,
    Payload,
    Row,
    Step,
    TrainingCompleted,
    handles,
)


class Usual(Row, frozen=True):
    """Exponentially weighted mean and variance of one metric, over ``count`` values."""

    mean: float
    variance: float
    count: int

    def deviations(self, value: float) -> float:
        """Return by how many standard deviations a value is above the mean."""
        return (value - self.mean) / sqrt(self.variance) if self.variance > 0 else 0.0

    def after(self, value: float, weight: float) -> "Usual":
        """Take in a value."""
        delta = value - self.mean
        variance = (1 - weight) * (self.variance + weight * delta * delta)
        return Usual(mean=self.mean + weight * delta, variance=variance, count=self.count + 1)


class LossRow(Row, frozen=True):
    """Usual ranges of a configuration's metrics, and its number of ``consecutive`` trainings with an anomaly."""

    usual: dict[str, Usual]
    consecutive: int


class LossWatch(Controller):
    """Reports anomalies of the metrics in ``feedback.anomaly.metrics``; sets no parameter."""

    name: ClassVar[str] = "LossWatch"
    row: ClassVar[type[LossRow]] = LossRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({LossAnomalyDetected})

    @handles(TrainingCompleted)
    def trained(self, rows: Mapping[str, LossRow], event: Event[TrainingCompleted], states: States) -> Step[LossRow]:
        """Compare a training's watched metrics with their usual ranges. Metrics that the training lacks are skipped."""
        data = event.data
        if data.metrics is None:
            return Step()
        settings, row = self.settings.feedback.anomaly, rows.get(event.subject) or LossRow(usual={}, consecutive=0)
        consecutive = row.consecutive + 1
        watched = [name for name in settings.metrics if name in data.metrics]
        judgements = [_judged(name, data.metrics[name], row.usual.get(name), settings, consecutive) for name in watched]
        ranges = {name: usual for name, usual in row.usual.items() if name in settings.metrics}
        ranges |= {name: after for name, (after, _) in zip(watched, judgements, strict=True)}
        anomalies = tuple(Emission(anomaly) for _, anomaly in judgements if anomaly)
        return Step({event.subject: LossRow(usual=ranges, consecutive=consecutive if anomalies else 0)}, anomalies)


def _judged(
    name: str, value: float, usual: Usual | None, settings: AnomalySettings, consecutive: int
) -> tuple[Usual, LossAnomalyDetected | None]:
    if usual is None:
        return Usual(mean=value, variance=0.0, count=1), None
    deviations, after = usual.deviations(value), usual.after(value, settings.weight)
    if usual.count < settings.warm_up or deviations < settings.deviations:
        return after, None
    return after, LossAnomalyDetected(
        metric=name, value=value, expected=usual.mean, deviations=deviations, consecutive=consecutive
    )
