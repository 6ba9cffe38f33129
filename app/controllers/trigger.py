"""TrainingTrigger: when a configuration trains, and on what.

PPO is on-policy: only rows of the current model count, and each is trained on once. A rolled-back model's rows are
thereby quarantined: they are of a model that is not current any more. The first training of a configuration, without
a base model, makes the initial one.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from app.controllers.controller import Controller
from app.controllers.knobs import bounded
from app.controllers.needs import US, Needs
from app.controllers.state import States
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
    handles,
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


Rows = Mapping[str, TrainingRow]


class TrainingTrigger(Controller):
    """Owns when to train: enough fresh rows for the intensity, not blocked, cooldown over, nothing under way."""

    name: ClassVar[str] = "TrainingTrigger"
    row: ClassVar[type[TrainingRow]] = TrainingRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingRequested})

    @handles(RunConfigured)
    def run_configured(self, rows: Rows, event: Event[RunConfigured], states: States) -> Step[TrainingRow]:
        """Ask for the initial model of each configuration that is new."""
        new = [config.key for config in self.settings.configs if config.key not in rows]
        return self._asked(dict.fromkeys(new, FIRST), event)

    @handles(ClockTick)
    def ticked(self, rows: Rows, event: Event[ClockTick], states: States) -> Step[TrainingRow]:
        """Ask for trainings whose cooldown has ended."""
        known = [config.key for config in self.settings.configs if config.key in rows]
        return self._asked({key: rows[key] for key in known if self._may_train(key, rows[key], event)}, event)

    @handles(NodeQuarantined)
    def node_quarantined(self, rows: Rows, event: Event[NodeQuarantined], states: States) -> Step[TrainingRow]:
        """Drop the shards of a worker in quarantine."""
        worker = event.data.worker
        kept = {key: tuple(shard for shard in row.shards if shard.worker != worker) for key, row in rows.items()}
        return Step(
            {key: rows[key].replace(shards=shards) for key, shards in kept.items() if shards != rows[key].shards}
        )

    @handles(ModelDistributed)
    def distributed(self, rows: Rows, event: Event[ModelDistributed], states: States) -> Step[TrainingRow]:
        """Go on from a model that is current and distributed."""
        model, step = event.data.model, event.data.step
        return self._changed(
            rows, event, model=model, step=step, shards=(), request=None, candidate=None, replaced=False
        )

    @handles(ModelRolledBack)
    def rolled_back(self, rows: Rows, event: Event[ModelRolledBack], states: States) -> Step[TrainingRow]:
        """Wait until the restored model is distributed; drop what others played."""
        return self._changed(rows, event, shards=(), request=None, candidate=None, replaced=True)

    @handles(TrainingCompleted)
    def trained(self, rows: Rows, event: Event[TrainingCompleted], states: States) -> Step[TrainingRow]:
        """Wait for the verdict on the new model."""
        row = rows.get(event.subject)
        if row is None or event.data.request_id != row.request:
            return Step()
        return self._changed(rows, event, request=None, candidate=event.data.model)

    @handles(TrainingFailed)
    def training_failed(self, rows: Rows, event: Event[TrainingFailed], states: States) -> Step[TrainingRow]:
        """Begin another training once there are enough fresh rows."""
        row = rows.get(event.subject)
        return self._changed(rows, event, request=None) if row and event.data.request_id == row.request else Step()

    @handles(PromotionRejected, EvaluationFailed)
    def rejected(
        self, rows: Rows, event: Event[PromotionRejected] | Event[EvaluationFailed], states: States
    ) -> Step[TrainingRow]:
        """Go on from the current model where the candidate is kept out, or cannot be rated."""
        row, data = rows.get(event.subject), event.data
        gate = isinstance(data, EvaluationFailed) and data.purpose != "rating"
        return (
            Step() if row is None or gate or data.model != row.candidate else self._changed(rows, event, candidate=None)
        )

    @handles(QualityScoreUpdated)
    def scored(self, rows: Rows, event: Event[QualityScoreUpdated], states: States) -> Step[TrainingRow]:
        """Take up a shard of the current model that is good enough."""
        row, key, shard = rows.get(event.subject), event.subject, event.data.shard
        if row is None or shard.model != row.model or not row.needs.usable(self.settings, key, event.data.score):
            return Step()
        return self._changed(rows, event, shards=row.needs.latest(self.settings, key, (*row.shards, shard)))

    @handles(TrainingBlockedByQuality)
    def blocked(self, rows: Rows, event: Event[TrainingBlockedByQuality], states: States) -> Step[TrainingRow]:
        """Stop training. What was played under the cause of the block is not trained on after it either."""
        return self._changed(rows, event, blocked=True, shards=())

    @handles(TrainingUnblocked)
    def unblocked(self, rows: Rows, event: Event[TrainingUnblocked], states: States) -> Step[TrainingRow]:
        """Train again."""
        return self._changed(rows, event, blocked=False)

    @handles(AdaptiveParamsChanged)
    def params_changed(self, rows: Rows, event: Event[AdaptiveParamsChanged], states: States) -> Step[TrainingRow]:
        """Set learning rate and epochs of coming trainings, within their bounds."""
        row, key, data = rows.get(event.subject), event.subject, event.data
        if row is None:
            return Step()
        return self._changed(
            rows,
            event,
            learning_rate=bounded("learning_rate", data.learning_rate, self.settings, key),
            epochs=int(bounded("epochs", data.epochs, self.settings, key)),
            needs=row.needs.after(data, self.settings, key),
        )

    @handles(TrainingIntensityChanged, HyperparameterUpdated)
    def needs_changed(
        self, rows: Rows, event: Event[TrainingIntensityChanged] | Event[HyperparameterUpdated], states: States
    ) -> Step[TrainingRow]:
        """Take in how many rows a training needs, and how good they must be."""
        row = rows.get(event.subject)
        needs = row and row.needs.after(event.data, self.settings, event.subject)
        return self._changed(rows, event, needs=needs) if row else Step()

    def _changed(self, rows: Rows, event: Event[Any], **changes: Any) -> Step[TrainingRow]:
        """Change the row of the event's configuration, if it has one, and ask for a training if it may begin now."""
        key = event.subject
        if key not in rows:
            return Step()
        row = rows[key].replace(**changes, cause=event.cause)
        return self._asked({key: row}, event) if self._may_train(key, row, event) else Step({key: row})

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
