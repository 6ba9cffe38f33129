"""TrainingTrigger: when a configuration trains, and on what.

PPO is on-policy: only rows of the current model count, and each is trained on once. The first training of a
configuration, without a base model, makes the initial one.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from app.core import ModelHash, derive_seed
from app.events import (
    ClockTick,
    Emission,
    EvaluationFailed,
    Event,
    ModelDistributed,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    RunConfigured,
    ShardRef,
    Step,
    TrainingFailed,
    TrainingRequested,
    Value,
)
from app.feedback.controller import Controller
from app.feedback.state import FeedbackState


class TrainingRow(Value):
    """What the trigger knows of one configuration. ``busy``: a training or its evaluation is under way."""

    model: ModelHash | None
    step: int
    trainings: int
    shards: tuple[ShardRef, ...]
    busy: bool


class TrainingTrigger(Controller[TrainingRow]):
    """Asks for a training as soon as the current model has enough fresh rows of sufficient quality."""

    name: ClassVar[str] = "TrainingTrigger"
    row: ClassVar[type[TrainingRow]] = TrainingRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            RunConfigured,
            QualityScoreUpdated,
            ModelDistributed,
            PromotionRejected,
            TrainingFailed,
            EvaluationFailed,
            ClockTick,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingRequested})

    def step(
        self,
        rows: Mapping[str, TrainingRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002
    ) -> Step[TrainingRow]:
        """Fold one event."""
        match event.data:
            case RunConfigured():
                return self._initialise(config.key for config in self.settings.configs if config.key not in rows)
            case ClockTick():
                # The first model failed to come about. There is nothing to fall back on: try again.
                return self._initialise(key for key, row in rows.items() if row.model is None and not row.busy)
        row = rows.get(event.subject)
        changed = self._updated(row, event.data) if row else None
        if changed is None:
            return Step()
        return self._train_if_ready(event.subject, changed)

    def _initialise(self, keys: Iterable[str]) -> Step[TrainingRow]:
        """Ask for the initial model of configurations that have none."""
        initial = TrainingRow(model=None, step=0, trainings=1, shards=(), busy=True)
        new = dict.fromkeys(keys, initial)
        return Step(new, tuple(self._request(key, initial) for key in new))

    def _updated(self, row: TrainingRow, data: Payload) -> TrainingRow | None:
        match data:
            case ModelDistributed():
                return row.model_copy(update={"model": data.model, "step": data.step, "shards": (), "busy": False})
            case PromotionRejected() | EvaluationFailed():
                return row.model_copy(update={"busy": False})
            case TrainingFailed():
                return row.model_copy(update={"busy": False, "shards": ()})
            case QualityScoreUpdated() if data.shard.model == row.model and data.score >= self.settings.min_quality:
                return row.model_copy(update={"shards": (*row.shards, data.shard)})
        return None

    def _train_if_ready(self, key: str, row: TrainingRow) -> Step[TrainingRow]:
        enough = sum(shard.rows for shard in row.shards) >= self.settings.config(key).rows_per_training
        if row.busy or not enough:
            return Step({key: row})
        asked = row.model_copy(update={"busy": True, "trainings": row.trainings + 1})
        return Step({key: asked.model_copy(update={"shards": ()})}, (self._request(key, asked),))

    def _request(self, key: str, row: TrainingRow) -> Emission:
        ppo = self.settings.config(key).ppo
        request = TrainingRequested(
            base_model=row.model,
            shards=row.shards,
            step=row.step,
            seed=derive_seed(self.settings.seed, key, "training", row.trainings),
            learning_rate=ppo.learning_rate,
            epochs=ppo.epochs,
        )
        return Emission(request, key)
