"""TrainingTrigger: when a configuration trains, and on what.

PPO is on-policy: only rows of the current model count, and each is trained on once. A rolled-back model's rows are
thereby quarantined: they are of a model that is not current any more. The first training of a configuration, without
a base model, makes the initial one.
"""

from collections.abc import Mapping
from typing import ClassVar

from app.controllers.controller import Controller
from app.controllers.knobs import bounded
from app.controllers.needs import US, Needs
from app.controllers.state import FeedbackState
from app.core import EventId, ModelHash, derive_id, derive_seed
from app.events import (
    AdaptiveParamsChanged,
    Cause,
    ClockTick,
    Emission,
    EvaluationFailed,
    Event,
    HyperparameterUpdated,
    ModelDistributed,
    ModelRolledBack,
    NodeQuarantined,
    Payload,
    PromotionRejected,
    QualityScoreUpdated,
    Row,
    RunConfigured,
    ShardRef,
    Step,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
)

COLD_START_US = 10 * US
"""A configuration without a model that has been idle for so long is given its first training once more."""


class TrainingRow(Row, frozen=True):
    """The trigger's row of one configuration.

    Attributes:
        request: the training under way.
        candidate: the last training's model, until it is promoted or rejected.
        replaced: after a rollback, until the restored model is distributed.
        cause: the latest event that changed this row.
    """

    model: ModelHash | None
    step: int
    trainings: int
    shards: tuple[ShardRef, ...]
    request: EventId | None
    candidate: ModelHash | None = None
    replaced: bool = False
    blocked: bool = False
    learning_rate: float | None = None
    epochs: int | None = None
    needs: Needs = Needs()
    last_training_us: int = 0
    cause: Cause | None = None

    @property
    def busy(self) -> bool:
        """Return whether a training, an evaluation or a change of the model is under way."""
        return self.request is not None or self.candidate is not None or self.replaced


FIRST = TrainingRow(model=None, step=0, trainings=1, shards=(), request=None)
"""The row of a configuration before its first training is asked for."""


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
            NodeQuarantined,
            PromotionRejected,
            QualityScoreUpdated,
            RunConfigured,
            TrainingBlockedByQuality,
            TrainingCompleted,
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
                return self._asked(dict.fromkeys(new, FIRST), event)
            case NodeQuarantined(worker=worker):
                return Step(_without_shards_of(worker, rows))
            case ClockTick():
                known = [config.key for config in self.settings.configs if config.key in rows]
                return self._asked({key: rows[key] for key in known if self._may_train(key, rows[key], event)}, event)
        row, key = rows.get(event.subject), event.subject
        changed = self._updated(key, row, event.data) if row else None
        if changed is None:
            return Step()
        changed = changed.replace(cause=event.cause)
        return self._asked({key: changed}, event) if self._may_train(key, changed, event) else Step({key: changed})

    def _may_train(self, key: str, row: TrainingRow, event: Event[Payload]) -> bool:
        """Return whether a training may begin now; asked at ticks too, because a cooldown ends without an event."""
        idle_us, cooldown = event.recorded_us - row.last_training_us, self.settings.feedback.trigger.cooldown_seconds
        if row.model is None:  # the initial model failed, and there is no other
            return not row.busy and isinstance(event.data, ClockTick) and idle_us >= COLD_START_US
        return not row.busy and not row.blocked and idle_us >= cooldown * US and self._enough(key, row)

    def _asked(self, rows: Mapping[str, TrainingRow], event: Event[Payload]) -> Step[TrainingRow]:
        """Request a training of each configuration, or its initial model where it has none."""
        asked, emissions = dict[str, TrainingRow | None](), list[Emission]()
        for key, row in rows.items():
            update = {
                "request": derive_id(self.name, event.id, len(emissions)),
                "trainings": row.trainings + (row.model is not None),
                "last_training_us": event.recorded_us,
            }
            begun = row.replace(**update)
            asked[key] = begun.replace(shards=())
            emissions.append(self._request(key, begun))
        return Step(asked, tuple(emissions))

    def _updated(self, key: str, row: TrainingRow, data: Payload) -> TrainingRow | None:
        match data:
            case ModelDistributed(model=model, step=step):
                idle = {"shards": (), "request": None, "candidate": None, "replaced": False}
                return row.replace(model=model, step=step, **idle)
            case ModelRolledBack():
                idle = {"shards": (), "request": None, "candidate": None, "replaced": True}
                return row.replace(**idle)
            case TrainingCompleted(request_id=request, model=model) if request == row.request:
                return row.replace(request=None, candidate=model)
            case TrainingFailed(request_id=request) if request == row.request:
                return row.replace(request=None)
            case PromotionRejected(model=model) | EvaluationFailed(purpose="rating", model=model):
                return row.replace(candidate=None) if model == row.candidate else None
            case QualityScoreUpdated(shard=shard, score=score) if shard.model == row.model:
                if not row.needs.usable(self.settings, key, score):
                    return None
                return row.replace(shards=row.needs.latest(self.settings, key, (*row.shards, shard)))
        return self._decided(key, row, data)

    def _decided(self, key: str, row: TrainingRow, data: Payload) -> TrainingRow | None:
        """Take in a decision about training."""
        match data:
            case TrainingBlockedByQuality():
                # What was played under the cause of the block is not trained on after it either.
                return row.replace(blocked=True, shards=())
            case TrainingUnblocked():
                return row.replace(blocked=False)
            case AdaptiveParamsChanged(learning_rate=rate, epochs=epochs):
                settings = {
                    "learning_rate": bounded("learning_rate", rate, self.settings, key),
                    "epochs": int(bounded("epochs", epochs, self.settings, key)),
                }
                return row.replace(**settings, needs=row.needs.after(data, self.settings, key))
            case TrainingIntensityChanged() | HyperparameterUpdated():
                return row.replace(needs=row.needs.after(data, self.settings, key))
        return None

    def _enough(self, key: str, row: TrainingRow) -> bool:
        needed = row.needs.rows(self.settings, key)
        return needed is not None and bool(row.shards) and sum([shard.rows for shard in row.shards]) >= needed

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
        return Emission(request, key, row.cause)


def _without_shards_of(worker: str, rows: Mapping[str, TrainingRow]) -> dict[str, TrainingRow]:
    """Return the changed rows, without the shards of a worker."""
    kept = {key: tuple(shard for shard in row.shards if shard.worker != worker) for key, row in rows.items()}
    return {key: rows[key].replace(shards=shards) for key, shards in kept.items() if shards != rows[key].shards}
