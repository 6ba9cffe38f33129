"""TrainingTrigger: when a configuration trains, and on what.

PPO is on-policy: only rows of the current model count, and each is trained on once. A rolled-back model's rows are
thereby quarantined: they are of a model that is not current any more. The first training of a configuration, without
a base model, makes the initial one.
"""

from collections.abc import Iterable, Mapping
from typing import ClassVar

from app.core import ModelHash, derive_seed
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    Emission,
    EvaluationFailed,
    Event,
    HyperparameterUpdated,
    ModelDistributed,
    ModelRolledBack,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    RunConfigured,
    ShardRef,
    Step,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
    Value,
)
from app.feedback.controller import Controller
from app.feedback.needs import US, Needs
from app.feedback.state import FeedbackState

COLD_START_US = 10 * US
"""A configuration without a model that has been idle for so long is given its first training once more."""


class TrainingRow(Value):
    """What the trigger knows of one configuration. ``busy``: a training or its evaluation is under way."""

    model: ModelHash | None
    step: int
    trainings: int
    shards: tuple[ShardRef, ...]
    busy: bool
    blocked: bool = False
    learning_rate: float | None = None
    epochs: int | None = None
    needs: Needs = Needs()
    last_training_us: int = 0


class TrainingTrigger(Controller[TrainingRow]):
    """Owns when to train: enough fresh rows for the intensity, not blocked, cooldown over, nothing under way."""

    name: ClassVar[str] = "TrainingTrigger"
    row: ClassVar[type[TrainingRow]] = TrainingRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            AdaptiveParamsChanged,
            ClockTick,
            EvaluationFailed,
            HyperparameterUpdated,
            ModelDistributed,
            ModelRolledBack,
            PromotionRejected,
            QualityScoreUpdated,
            RunConfigured,
            TrainingBlockedByQuality,
            TrainingFailed,
            TrainingIntensityChanged,
            TrainingUnblocked,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingRequested})

    def step(
        self,
        rows: Mapping[str, TrainingRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],  # noqa: ARG002 - the protocol's argument
    ) -> Step[TrainingRow]:
        """Fold one event."""
        match event.data:
            case RunConfigured():
                new = [config.key for config in self.settings.configs if config.key not in rows]
                return self._initialise(new, event.recorded_us)
            case ClockTick():
                # The first model failed to come about. There is nothing to fall back on: try again.
                idle = [key for key, row in rows.items() if _lacks_a_model(row, event.recorded_us)]
                return self._initialise(idle, event.recorded_us)
        row = rows.get(event.subject)
        changed = self._updated(row, event.data) if row else None
        if changed is None:
            return Step()
        return self._train_if_ready(event.subject, changed, event.recorded_us)

    def _initialise(self, keys: Iterable[str], now_us: int) -> Step[TrainingRow]:
        """Ask for the initial model of configurations that have none."""
        initial = TrainingRow(model=None, step=0, trainings=1, shards=(), busy=True, last_training_us=now_us)
        new = dict.fromkeys(keys, initial)
        return Step(new, tuple(self._request(key, initial) for key in new))

    def _updated(self, row: TrainingRow, data: Payload) -> TrainingRow | None:
        match data:
            case ModelDistributed(model=model, step=step):
                return row.model_copy(update={"model": model, "step": step, "shards": (), "busy": False})
            case ModelRolledBack():
                # Nothing is trained until the model that was gone back to is distributed.
                return row.model_copy(update={"shards": (), "busy": True})
            case PromotionRejected() | EvaluationFailed(purpose="rating"):
                return row.model_copy(update={"busy": False})
            case TrainingFailed():
                return row.model_copy(update={"busy": False, "shards": ()})
            case QualityScoreUpdated(shard=shard, score=score) if shard.model == row.model:
                usable = row.needs.usable(self.settings, score)
                return row.model_copy(update={"shards": (*row.shards, shard)}) if usable else None
        return _decided(row, data)

    def _train_if_ready(self, key: str, row: TrainingRow, now_us: int) -> Step[TrainingRow]:
        needed = row.needs.rows(self.settings, key)
        cooling = now_us - row.last_training_us < self.settings.feedback.trigger.cooldown_seconds * US
        ready = needed is not None and row.shards and sum(shard.rows for shard in row.shards) >= needed
        if row.busy or row.blocked or cooling or not ready:
            return Step({key: row})
        asked = row.model_copy(update={"busy": True, "trainings": row.trainings + 1, "last_training_us": now_us})
        return Step({key: asked.model_copy(update={"shards": ()})}, (self._request(key, asked),))

    def _request(self, key: str, row: TrainingRow) -> Emission:
        ppo = self.settings.config(key).ppo
        request = TrainingRequested(
            base_model=row.model,
            shards=row.shards,
            step=row.step,
            seed=derive_seed(self.settings.seed, key, "training", row.trainings),
            learning_rate=row.learning_rate or ppo.learning_rate,
            epochs=row.epochs or ppo.epochs,
        )
        return Emission(request, key)


def _decided(row: TrainingRow, data: Payload) -> TrainingRow | None:
    """Take in a decision about training."""
    match data:
        case TrainingBlockedByQuality():
            # What was played under the cause of the block is not trained on after it either.
            return row.model_copy(update={"blocked": True, "shards": ()})
        case TrainingUnblocked():
            return row.model_copy(update={"blocked": False})
        case AdaptiveParamsChanged(learning_rate=rate, epochs=epochs):
            return row.model_copy(update={"learning_rate": rate, "epochs": epochs, "needs": row.needs.after(data)})
        case TrainingIntensityChanged() | HyperparameterUpdated():
            return row.model_copy(update={"needs": row.needs.after(data)})
    return None


def _lacks_a_model(row: TrainingRow, now_us: int) -> bool:
    return row.model is None and not row.busy and now_us - row.last_training_us >= COLD_START_US
