"""Baselines that replace controllers: the simplest rules that work.

They keep the loop going: they evaluate every trained model, promote every evaluated one, train as soon as there are
enough rows, and serve all configurations in turn. They ignore ratings and troubles, and, except for
``UniformBesideTrigger``, quality. They follow other controllers' decisions on the learning rate, the epochs, the
temperature and the rows per training, so that leaving one controller out disables only that one.
"""

from collections.abc import Mapping
from typing import Any, ClassVar

from flyball.app.config import RunSettings
from flyball.app.controllers import Controller, FeedbackState, States, state_of
from flyball.app.controllers.needs import is_fresh, is_usable, late_champions, latest_shards, most_rows, rows_needed
from flyball.app.controllers.scheduler import WORKER_DAEMON
from flyball.app.core import SECOND_US, ConfigKey, EventId, ModelHash, derive_id, derive_seed
from flyball.app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonReady,
    Emission,
    EvaluationCompleted,
    EvaluationFailed,
    EvaluationRequested,
    Event,
    Evidence,
    HyperparameterUpdated,
    InspectionFailed,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    NodeQuarantined,
    Payload,
    PromotionRejected,
    QualityDegraded,
    QualityScoreUpdated,
    Row,
    RunConfigured,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    Step,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    handles,
)


class TrainedModel(Row, frozen=True):
    """A configuration's latest model that was trained or promoted."""

    model: ModelHash
    step: int


class EvaluateAlways(Controller):
    """Requests an evaluation of every new model, and another after a failure."""

    name: ClassVar[str] = "EvaluateAlways"
    row: ClassVar[type[TrainedModel]] = TrainedModel
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationRequested})

    @handles(TrainingCompleted)
    def trained(
        self, rows: Mapping[str, TrainedModel], event: Event[TrainingCompleted], states: States
    ) -> Step[TrainedModel]:
        """Request the evaluation of a new model."""
        return self._ask(TrainedModel(model=event.data.model, step=event.data.step), event)

    @handles(EvaluationFailed)
    def evaluation_failed(
        self, rows: Mapping[str, TrainedModel], event: Event[EvaluationFailed], states: States
    ) -> Step[TrainedModel]:
        """Request a failed evaluation of the latest model again."""
        row, data = rows.get(event.subject), event.data
        return self._ask(row, event) if row and data.purpose == "rating" and data.model == row.model else Step()

    def _ask(self, row: TrainedModel, event: Event[Any]) -> Step[TrainedModel]:
        seed = derive_seed(self.settings.seed, "evaluation", event.id)
        request = EvaluationRequested(purpose="rating", model=row.model, step=row.step, seed=seed)
        return Step({event.subject: row}, (Emission(request),))


class PromoteAlways(Controller):
    """Promotes every evaluated model, whatever its gauntlet or gate says; never rolls back."""

    name: ClassVar[str] = "PromoteAlways"
    row: ClassVar[type[TrainedModel]] = TrainedModel
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({EvaluationRequested, ModelPromoted})

    @handles(EvaluationCompleted)
    def evaluated(
        self, rows: Mapping[str, TrainedModel], event: Event[EvaluationCompleted], states: States
    ) -> Step[TrainedModel]:
        """Promote the evaluated model."""
        data, previous = event.data, rows.get(event.subject)
        if data.purpose not in ("rating", "gate"):
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
        before = previous.model if previous else None
        promotion = ModelPromoted(model=data.model, previous=before, step=data.step, elo=data.elo, evidence=evidence)
        return Step({event.subject: TrainedModel(model=data.model, step=data.step)}, (Emission(promotion),))

    @handles(EvaluationFailed)
    def evaluation_failed(
        self, rows: Mapping[str, TrainedModel], event: Event[EvaluationFailed], states: States
    ) -> Step[TrainedModel]:
        """Request a failed gate again, as the coordinator does; a training adds 1 to the promoted model's step."""
        promoted, data = rows.get(event.subject), event.data
        if (
            data.purpose != "gate"
            or promoted is None
            or state_of(states, event.subject).lineage.candidate != data.model
        ):
            return Step()
        seed = derive_seed(self.settings.seed, "gate", event.id)
        request = EvaluationRequested(purpose="gate", model=data.model, step=promoted.step + 1, seed=seed)
        return Step({}, (Emission(request),))


class Learner(Row, frozen=True):
    """One configuration's fresh shards and number of requested trainings."""

    shards: tuple[ShardRef, ...] = ()
    trainings: int = 0


class TrainAlways(Controller):
    """Requests a training once the model has enough rows. Rows of any quality count. Training never pauses."""

    name: ClassVar[str] = "TrainAlways"
    row: ClassVar[type[Learner]] = Learner
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({TrainingRequested})

    @handles(RunConfigured)
    def run_configured(self, rows: Mapping[str, Learner], event: Event[RunConfigured], states: States) -> Step[Learner]:
        """Request the initial model of each new configuration."""
        keys = [config.key for config in self.settings.configs if config.key not in rows]
        new: dict[str, Learner | None] = {key: Learner() for key in keys}
        return Step(new, tuple(self._request(Learner(), state_of(states, key)) for key in new))

    @handles(
        AdaptiveParamsChanged,
        EvaluationFailed,
        HyperparameterUpdated,
        ModelDistributed,
        ModelRolledBack,
        PromotionRejected,
        QualityScoreUpdated,
        TrainingFailed,
        TrainingIntensityChanged,
    )
    def train(self, rows: Mapping[str, Learner], event: Event[Payload], states: States) -> Step[Learner]:
        """Apply an event to a configuration. A training is requested if the configuration has enough rows."""
        row, state, data = rows.get(event.subject), state_of(states, event.subject), event.data
        if row is None:
            return Step()
        if isinstance(data, ModelRolledBack):
            row = row.replace(shards=())
        elif isinstance(data, ModelDistributed):
            row = row.replace(shards=_fresh(state, self.settings, row.shards))
        elif isinstance(data, QualityScoreUpdated):
            row = row.replace(shards=_fresh(state, self.settings, (*row.shards, data.shard)))
        needed = rows_needed(state, self.settings) or most_rows(state, self.settings)
        if state.lineage.busy or sum(shard.rows for shard in row.shards) < needed:
            return Step({event.subject: row})
        requested = row.replace(trainings=row.trainings + 1)
        return Step({event.subject: requested.replace(shards=())}, (self._request(requested, state),))

    def _request(self, row: Learner, state: FeedbackState) -> Emission:
        base = state.lineage.distributed
        request = TrainingRequested(
            base_model=state.lineage.playing,
            shards=row.shards,
            step=base.step if base else 0,
            seed=derive_seed(self.settings.seed, state.config_key, "training", row.trainings),
            learning_rate=state.parameter("learning_rate", self.settings),
            epochs=int(state.parameter("epochs", self.settings)),
        )
        return Emission(request, state.config_key)


def _fresh(state: FeedbackState, settings: RunSettings, shards: tuple[ShardRef, ...]) -> tuple[ShardRef, ...]:
    """Return the shards that a training may use, as TrainingTrigger keeps them."""
    return latest_shards(state, settings, tuple([shard for shard in shards if is_fresh(state, settings, shard.model)]))


class FreshRows(Row, frozen=True):
    """One configuration's fresh shards and its requests under way.

    ``rows_each`` is the number of rows that each request brings, ``requested`` the number of requests so far.
    """

    shards: tuple[ShardRef, ...] = ()
    requests: tuple[EventId, ...] = ()
    rows_each: int = 1
    requested: int = 0

    def lacking(self, state: FeedbackState, settings: RunSettings) -> bool:
        """Return whether to request more rows. While training is paused, there is one request at a time."""
        if state.lineage.distributed is None:
            return False
        needed, rows = rows_needed(state, settings), sum(shard.rows for shard in self.shards)
        return not self.requests if needed is None else rows + len(self.requests) * self.rows_each < needed

    def without(self, request: EventId) -> "FreshRows":
        """Return the row without a request under way."""
        return self.replace(requests=tuple(other for other in self.requests if other != request))


class UniformLease(Row, frozen=True):
    """The request that a worker got at ``at_us``, microseconds since 1970."""

    key: ConfigKey
    request: EventId
    at_us: int


class UniformRow(Row, frozen=True):
    """The whole allocation of workers to configurations.

    ``leases`` are by worker; ``free`` are workers, ``queue`` configurations.
    """

    configs: dict[str, FreshRows]
    leases: dict[str, UniformLease]
    free: tuple[str, ...]
    queue: tuple[str, ...]


class UniformAllocation:
    """A mutable copy of the row, for one step."""

    def __init__(self, settings: RunSettings, states: States, row: UniformRow | None) -> None:
        self._settings, self._states = settings, states
        self.configs = dict(row.configs) if row else {}
        self.leases: dict[str, UniformLease | None] = dict(row.leases) if row else {}
        self.free = list(row.free) if row else []
        self.queue = list(row.queue) if row else []

    def config(self, key: str) -> FreshRows:
        """Return a configuration's row, empty if it is new. Decisions may precede a configuration's first model."""
        return self.configs.get(key) or FreshRows()

    def update(self, key: str, config: FreshRows) -> None:
        """Replace a configuration's row, and queue the configuration if it lacks rows."""
        self.configs[key] = config
        if key not in self.queue and config.lacking(state_of(self._states, key), self._settings):
            self.queue.append(key)

    def give_up(self, key: str, request: EventId) -> None:
        """Remove a request under way, because it will bring no rows."""
        config = self.config(key)
        if request in config.requests:
            self.update(key, config.without(request))

    def drop_shards(self, worker: str) -> None:
        """Drop a worker's shards."""
        for key, config in self.configs.items():
            others = tuple([shard for shard in config.shards if shard.worker != worker])
            if others != config.shards:
                self.update(key, config.replace(shards=others))

    def release(self, worker: str) -> None:
        """Free a worker and remove its lease."""
        if worker not in self.free:
            self.leases[worker] = None
            self.free.append(worker)

    def row(self) -> UniformRow:
        """Return the changed allocation as a row."""
        leases = {worker: lease for worker, lease in self.leases.items() if lease is not None}
        return UniformRow(configs=self.configs, leases=leases, free=tuple(self.free), queue=tuple(self.queue))


class UniformScheduler(Controller):
    """Serves all configurations in turn; replaces SelfplayScheduler.

    Configurations that lack fresh rows wait in one queue, without priorities. A free worker gets one request for the
    first configuration. That configuration then goes to the end of the queue, or leaves it if its fresh and requested
    rows suffice for a training.
    """

    name: ClassVar[str] = "UniformScheduler"
    row: ClassVar[type[UniformRow]] = UniformRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({SelfplayRequested})
    counts_poor_rows: ClassVar[bool] = True
    """True if poor rows count as fresh, as they do here, because TrainAlways trains on them."""

    @handles(
        AdaptiveParamsChanged,
        ClockTick,
        DaemonReady,
        HyperparameterUpdated,
        InspectionFailed,
        ModelDistributed,
        ModelRolledBack,
        NodeQuarantined,
        QualityDegraded,
        QualityScoreUpdated,
        SelfplayComplete,
        SelfplayFailed,
        TrainingBlockedByQuality,
        TrainingIntensityChanged,
        TrainingRequested,
    )
    def serve(self, rows: Mapping[str, UniformRow], event: Event[Payload], states: States) -> Step[UniformRow]:
        """Apply an event, then assign free workers to the queue."""
        allocation, data = UniformAllocation(self.settings, states, rows.get(self.name)), event.data
        match data:
            case ClockTick():
                self._sweep(allocation, event.recorded_us)
            case DaemonReady(daemon=daemon) if daemon == WORKER_DAEMON:
                name = f"{data.daemon}@{data.node}"
                if name not in allocation.leases:
                    allocation.release(name)
            case NodeQuarantined(worker=worker):
                allocation.drop_shards(worker)
                if lease := allocation.leases.get(worker):
                    allocation.give_up(lease.key, lease.request)
                    allocation.release(worker)
            case SelfplayComplete(shard=ShardRef(worker=str(worker))) | SelfplayFailed(worker=worker):
                allocation.release(worker)
        if event.subject:
            self._update(allocation, state_of(states, event.subject), data)
        emissions = self._dispatch(allocation, event, states)
        return Step({self.name: allocation.row()}, emissions)

    def _sweep(self, allocation: UniformAllocation, now_us: int) -> None:
        """Give up requests with an expired lease. Their workers stay busy until they answer."""
        limit = self.settings.feedback.scheduler.lease_seconds * SECOND_US
        for lease in allocation.leases.values():
            if lease and now_us - lease.at_us >= limit:
                allocation.give_up(lease.key, lease.request)

    def _update(self, allocation: UniformAllocation, state: FeedbackState, data: Payload) -> None:
        """Apply an event about a configuration."""
        key = state.config_key
        config = allocation.config(key)
        match data:
            case ModelDistributed():
                requests = config.requests if late_champions(self.settings, key) else ()
                config = config.replace(shards=_fresh(state, self.settings, config.shards), requests=requests)
            case QualityScoreUpdated(shard=shard, request_id=request):
                if self.counts_poor_rows or is_usable(state, self.settings, data.score):
                    config = config.replace(shards=_fresh(state, self.settings, (*config.shards, shard)))
                config = config.without(request).replace(rows_each=shard.rows)
            case (
                QualityDegraded(request_id=request)
                | InspectionFailed(request_id=request)
                | SelfplayFailed(request_id=request)
            ):
                allocation.give_up(key, request)
                return
            case TrainingRequested(shards=spent):
                config = config.replace(shards=tuple([shard for shard in config.shards if shard not in spent]))
            case ModelRolledBack() | TrainingBlockedByQuality():
                config = config.replace(shards=())
            case AdaptiveParamsChanged() | HyperparameterUpdated() | TrainingIntensityChanged():
                pass
            case _:
                return
        allocation.update(key, config)

    def _dispatch(self, allocation: UniformAllocation, event: Event[Payload], states: States) -> tuple[Emission, ...]:
        """Send one request to each free worker while configurations wait."""
        emissions: list[Emission] = []
        while allocation.free and allocation.queue:
            worker, key = allocation.free.pop(0), ConfigKey(allocation.queue.pop(0))
            config, selfplay, state = allocation.config(key), self.settings.config(key).selfplay, state_of(states, key)
            model = state.lineage.playing
            assert model is not None  # only configurations with a model are queued
            lease = UniformLease(key, derive_id(self.name, event.id, len(emissions)), event.recorded_us)
            request = SelfplayRequested(
                worker=worker,
                model=model,
                lineups=(),
                games=selfplay.games_per_request,
                seed=derive_seed(self.settings.seed, key, "selfplay", config.requested),
                temperature=state.parameter("base_temperature", self.settings) * state.exploration_boost,
                probe=False,
            )
            emissions.append(Emission(request, key))
            allocation.leases[worker] = lease
            requests, requested = (*config.requests, lease.request), config.requested + 1
            allocation.update(key, config.replace(requests=requests, requested=requested))
        return tuple(emissions)


class UniformBesideTrigger(UniformScheduler):
    """UniformScheduler for use with the real TrainingTrigger.

    The trigger does not train on poor rows. If poor rows counted as fresh, the requests would end, and the trigger
    would wait for usable rows for ever.
    """

    counts_poor_rows: ClassVar[bool] = False
