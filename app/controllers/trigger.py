"""TrainingTrigger: requests a configuration's trainings, and chooses their shards.

A training takes all fresh rows (``is_fresh``): those of the distributed model and of champions before it, of all where
rows are replayed, of ``feedback.trigger.staleness`` where PPO learns. Each is used once here, and perhaps replayed
later. A rollback drops the rows of the rolled-back model. The first training of a configuration has no base model and
creates the initial one.

A failed training or rating may be an accident, so the next training starts as soon as there are rows. From the second
consecutive failure on, a pause that doubles with each keeps a broken trainer from taking all processor time.
"""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, ClassVar

from flyball.app.controllers.controller import Controller, Watched
from flyball.app.controllers.needs import is_fresh, is_usable, latest_shards, rows_needed
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.core import SECOND_US, derive_seed
from flyball.app.events import (
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
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
    handles,
)
from flyball.app.events.envelope import EPOCH

COLD_START_US = 10 * SECOND_US
"""Idle time after which a configuration without a model is given its first training again."""


class TrainingRow(Row, frozen=True):
    """The trigger's row of one configuration.

    Attributes:
        trainings: number of trainings requested; all requests for the initial model count as one.
        shards: usable and fresh shards that no training has used.
        requested_us: when the last training was requested.
        failures: number of failed trainings and ratings since the last verdict on a model.
        failed_us: when the last of them failed.
        cause: the latest event that may have affected training, the evidence of the next request.
    """

    trainings: int = 1
    shards: tuple[ShardRef, ...] = ()
    requested_us: int = 0
    failures: int = 0
    failed_us: int = 0
    cause: Cause | None = None


Rows = Mapping[str, TrainingRow]


class TrainingTrigger(Controller):
    """Owns the start of trainings.

    A training starts when there are enough fresh rows for the intensity, the cooldown is over, training is not blocked,
    and nothing is under way.
    """

    name: ClassVar[str] = "TrainingTrigger"
    row: ClassVar[type[TrainingRow]] = TrainingRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingRequested})

    @handles(RunConfigured)
    def run_configured(self, rows: Rows, event: Event[RunConfigured], states: States) -> Step[TrainingRow]:
        """Request the initial model of each configuration that is new."""
        new: dict[str, TrainingRow] = {
            config.key: TrainingRow() for config in self.settings.configs if config.key not in rows
        }
        return self._request(new, event, states)

    @handles(ClockTick)
    def ticked(self, rows: Rows, event: Event[ClockTick], states: States) -> Step[TrainingRow]:
        """Request trainings whose cooldown has ended."""
        due: dict[str, TrainingRow] = {
            config.key: rows[config.key]
            for config in self.settings.configs
            if config.key in rows and self._may_train(state_of(states, config.key), rows[config.key], event)
        }
        return self._request(due, event, states)

    @handles(NodeQuarantined)
    def node_quarantined(self, rows: Rows, event: Event[NodeQuarantined], states: States) -> Step[TrainingRow]:
        """Drop the shards of a worker in quarantine."""
        worker = event.data.worker
        remaining = {key: tuple(shard for shard in row.shards if shard.worker != worker) for key, row in rows.items()}
        return Step(
            {key: rows[key].replace(shards=shards) for key, shards in remaining.items() if shards != rows[key].shards}
        )

    @handles(ModelDistributed)
    def distributed(self, rows: Rows, event: Event[ModelDistributed], states: States) -> Step[TrainingRow]:
        """Drop the shards that are no longer fresh, and forget failures."""
        row, state = rows.get(event.subject), state_of(states, event.subject)
        shards = row.shards if row else ()
        fresh = tuple([shard for shard in shards if is_fresh(state, self.settings, shard.model)])
        return self._change(rows, event, states, shards=fresh, failures=0)

    @handles(PromotionRejected)
    def rejected(self, rows: Rows, event: Event[PromotionRejected], states: States) -> Step[TrainingRow]:
        """Forget failures, because a model was trained and rated. A training is requested if it may begin now."""
        return self._change(rows, event, states, failures=0)

    @handles(EvaluationFailed, TrainingFailed)
    def failed(
        self, rows: Rows, event: Event[EvaluationFailed] | Event[TrainingFailed], states: States
    ) -> Step[TrainingRow]:
        """Count a failure, and request a training if it may begin now."""
        if isinstance(event.data, EvaluationFailed) and event.data.purpose != "rating":
            return Step()  # only a failed rating drops the candidate
        row = rows.get(event.subject) or TrainingRow()
        return self._change(rows, event, states, failures=row.failures + 1, failed_us=event.recorded_us)

    @handles(ModelRolledBack, TrainingBlockedByQuality)
    def shards_spoiled(self, rows: Rows, event: Event[Any], states: States) -> Step[TrainingRow]:
        """Drop all shards. Another model played them, or a block made them suspect."""
        return self._change(rows, event, states, shards=())

    @handles(TrainingRequested)
    def training_requested(self, rows: Rows, event: Event[TrainingRequested], states: States) -> Step[TrainingRow]:
        """Drop the shards that an operator's training uses."""
        row, used = rows.get(event.subject), {shard.key for shard in event.data.shards}
        return (
            Step()
            if row is None
            else self._change(rows, event, states, shards=tuple(shard for shard in row.shards if shard.key not in used))
        )

    @handles(QualityScoreUpdated)
    def scored(self, rows: Rows, event: Event[QualityScoreUpdated], states: States) -> Step[TrainingRow]:
        """Keep a fresh shard that is good enough."""
        row, shard, state = rows.get(event.subject), event.data.shard, state_of(states, event.subject)
        usable = is_usable(state, self.settings, event.data.score)
        if row is None or not usable or not is_fresh(state, self.settings, shard.model):
            return Step()
        return self._change(rows, event, states, shards=latest_shards(state, self.settings, (*row.shards, shard)))

    @handles(
        AdaptiveParamsChanged,
        HyperparameterUpdated,
        TrainingIntensityChanged,
        TrainingUnblocked,
    )
    def state_changed(self, rows: Rows, event: Event[Any], states: States) -> Step[TrainingRow]:
        """Request a training if it may begin now."""
        return self._change(rows, event, states)

    def watches(self, rows: Rows, states: States, key: str) -> Sequence[Watched]:
        """Return the rows for the next training. See ``Controller.watches``."""
        row, state = rows.get(key) or TrainingRow(), state_of(states, key)
        needed = rows_needed(state, self.settings)
        if needed is None:
            return ()  # FeedbackLoopController has paused training, and shows why
        waits = ""
        if state.training_block is not None:
            waits = f"training is blocked: {state.training_block}"
        elif state.lineage.busy:
            waits = "a training or its candidate is under way"
        trigger = self.settings.feedback.trigger
        failed = timedelta(microseconds=row.failed_us, seconds=trigger.pause_after(row.failures))
        rests = timedelta(microseconds=row.requested_us, seconds=trigger.cooldown_seconds)
        rows_ready = Watched(
            what="fresh rows for the next training",
            value=sum(shard.rows for shard in row.shards),
            threshold=needed,
            acts="above",
            effect="a training starts",
            setting=f"games.{key}.rows_per_training",
            unit="rows",
            waits=waits,
            until=None if waits else EPOCH + max(failed, rests),
        )
        return (rows_ready,)

    def _change(self, rows: Rows, event: Event[Any], states: States, **changes: Any) -> Step[TrainingRow]:
        """Change the row of the event's configuration, if it has one. A training is requested if it may begin now."""
        key = event.subject
        if key not in rows:
            return Step()
        row = rows[key].replace(**changes, cause=event.cause)
        if self._may_train(state_of(states, key), row, event):
            return self._request({key: row}, event, states)
        return Step({key: row})

    def _may_train(self, state: FeedbackState, row: TrainingRow, event: Event[Payload]) -> bool:
        """Return whether a training may begin now. Ticks check this too, because pauses end without an event."""
        if state.lineage.busy or event.recorded_us - row.failed_us < round(
            self.settings.feedback.trigger.pause_after(row.failures) * SECOND_US
        ):
            return False
        idle_us = event.recorded_us - row.requested_us
        if state.lineage.distributed is None:  # no model yet: the initial training may have failed
            return isinstance(event.data, ClockTick) and idle_us >= COLD_START_US
        if state.training_block is not None or idle_us < self.settings.feedback.trigger.cooldown_seconds * SECOND_US:
            return False
        needed = rows_needed(state, self.settings)
        return needed is not None and bool(row.shards) and sum([shard.rows for shard in row.shards]) >= needed

    def _request(self, rows: Mapping[str, TrainingRow], event: Event[Payload], states: States) -> Step[TrainingRow]:
        """Request a training of each configuration. A configuration without a model gets its initial model."""
        requested, emissions = dict[str, TrainingRow | None](), list[Emission]()
        for key, row in rows.items():
            state = state_of(states, key)
            base = state.lineage.distributed
            trainings = row.trainings + (base is not None)
            request = TrainingRequested(
                base_model=state.lineage.playing,
                shards=row.shards,
                step=base.step if base else 0,
                seed=derive_seed(self.settings.seed, key, "training", trainings),
                learning_rate=state.parameter("learning_rate", self.settings),
                epochs=int(state.parameter("epochs", self.settings)),
            )
            emissions.append(Emission(request, key, row.cause))
            requested[key] = row.replace(trainings=trainings, shards=(), requested_us=event.recorded_us)
        return Step(requested, tuple(emissions))
