"""Baselines that replace a controller: the simplest rules that keep the loop going.

An evaluation after every training, promotion of whatever was trained, training as soon as there are enough rows. None
of them looks at quality, ratings or troubles. They honour what other controllers decide about the learning rate, the
epochs and how many rows make a training, so that leaving one controller out disables only that one.
"""

from collections.abc import Mapping
from typing import ClassVar

from app.controllers import Controller, FeedbackState, Needs
from app.core import ModelHash, derive_seed
from app.events import (
    AdaptiveParamsChanged,
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    Evidence,
    HyperparameterUpdated,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    Row,
    RunConfigured,
    ShardRef,
    Step,
    TrainingCompleted,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
)


class TrainedModel(Row, frozen=True):
    """The latest trained model."""

    model: ModelHash
    step: int


class EvaluateAlways(Controller[TrainedModel]):
    """Has every new model evaluated; a gauntlet that failed is played again."""

    name: ClassVar[str] = "EvaluateAlways"
    row: ClassVar[type[TrainedModel]] = TrainedModel
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingCompleted, EvaluationFailed})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationRequested})

    def step(
        self,
        rows: Mapping[str, TrainedModel],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002 - the protocol's argument
    ) -> Step[TrainedModel]:
        """Fold one event."""
        row = rows.get(event.subject)
        match event.data:
            case TrainingCompleted(model=model, step=step):
                return self._ask(TrainedModel(model=model, step=step), event)
            case EvaluationFailed(purpose="rating", model=model) if row and row.model == model:
                return self._ask(row, event)
        return Step()

    def _ask(self, row: TrainedModel, event: Event[Payload]) -> Step[TrainedModel]:
        seed = derive_seed(self.settings.seed, "evaluation", event.id)
        request = EvaluationRequested(purpose="rating", model=row.model, step=row.step, seed=seed)
        return Step({event.subject: row}, (Emission(request),))


class PromoteAlways(Controller[TrainedModel]):
    """Makes every evaluated model current; never goes back."""

    name: ClassVar[str] = "PromoteAlways"
    row: ClassVar[type[TrainedModel]] = TrainedModel
    reads: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationCompleted})
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({ModelPromoted})

    def step(
        self,
        rows: Mapping[str, TrainedModel],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002 - the protocol's argument
    ) -> Step[TrainedModel]:
        """Fold one event."""
        data, previous = event.data, rows.get(event.subject)
        if not isinstance(data, EvaluationCompleted) or data.purpose != "rating":
            return Step()
        evidence = Evidence(
            evaluation_id=event.id,
            statistic="promoted unseen",
            value=0.0,
            threshold=0.0,
            games=0,
            elo=data.elo,
            elo_stderr=data.elo_stderr,
        )
        promotion = ModelPromoted(
            model=data.model,
            previous=previous.model if previous else None,
            step=data.step,
            elo=data.elo,
            evidence=evidence,
        )
        return Step({event.subject: TrainedModel(model=data.model, step=data.step)}, (Emission(promotion),))


class Learner(Row, frozen=True):
    """One configuration. ``busy``: a training or its evaluation is under way."""

    learning_rate: float
    epochs: int
    model: ModelHash | None = None
    step: int = 0
    trainings: int = 1
    shards: tuple[ShardRef, ...] = ()
    busy: bool = True
    needs: Needs = Needs()


class TrainAlways(Controller[Learner]):
    """Asks for a training as soon as there are enough rows of the current model, of any quality: it never pauses."""

    name: ClassVar[str] = "TrainAlways"
    row: ClassVar[type[Learner]] = Learner
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            AdaptiveParamsChanged,
            EvaluationFailed,
            HyperparameterUpdated,
            ModelDistributed,
            ModelRolledBack,
            PromotionRejected,
            QualityScoreUpdated,
            RunConfigured,
            TrainingFailed,
            TrainingIntensityChanged,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingRequested})

    def step(
        self,
        rows: Mapping[str, Learner],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002 - the protocol's argument
    ) -> Step[Learner]:
        """Fold one event."""
        if isinstance(event.data, RunConfigured):
            new: dict[str, Learner | None] = {
                config.key: Learner(learning_rate=config.ppo.learning_rate, epochs=config.ppo.epochs)
                for config in self.settings.configs
                if config.key not in rows
            }
            return Step(new, tuple(self._request(key, row) for key, row in new.items() if row))
        key, row = event.subject, rows.get(event.subject)
        return Step() if row is None else self._train_if_ready(key, self._after(key, row, event.data))

    def _train_if_ready(self, key: str, row: Learner) -> Step[Learner]:
        needed = row.needs.rows(self.settings, key) or self.settings.config(key).rows_per_training
        if row.busy or sum(shard.rows for shard in row.shards) < needed:
            return Step({key: row})
        asked = row.replace(busy=True, trainings=row.trainings + 1)
        return Step({key: asked.replace(shards=())}, (self._request(key, asked),))

    def _request(self, key: str, row: Learner) -> Emission:
        request = TrainingRequested(
            base_model=row.model,
            shards=row.shards,
            step=row.step,
            seed=derive_seed(self.settings.seed, key, "training", row.trainings),
            learning_rate=row.learning_rate,
            epochs=row.epochs,
        )
        return Emission(request, key)

    def _after(self, key: str, row: Learner, data: Payload) -> Learner:
        match data:
            case ModelDistributed(model=model, step=step):
                return row.replace(model=model, step=step, shards=(), busy=False)
            case ModelRolledBack():
                return row.replace(shards=(), busy=True)
            case PromotionRejected() | TrainingFailed():
                return row.replace(busy=False)
            case EvaluationFailed(purpose="rating", model=model) if model != row.model:  # the candidate's
                return row.replace(busy=False)
            case QualityScoreUpdated(shard=shard) if shard.model == row.model:
                return row.replace(shards=(*row.shards, shard))
            case AdaptiveParamsChanged(learning_rate=rate, epochs=epochs):
                needs = row.needs.after(data, self.settings, key)
                return row.replace(learning_rate=rate, epochs=epochs, needs=needs)
            case HyperparameterUpdated() | TrainingIntensityChanged():
                return row.replace(needs=row.needs.after(data, self.settings, key))
        return row
