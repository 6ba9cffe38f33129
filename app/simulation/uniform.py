"""Uniform allocation of self-play: the stand-in for SelfplayScheduler.

Whoever lacks fresh rows waits in one queue, and every free worker serves the head of it: a configuration is given one
request and goes to the end, until what it has and what it was promised make a training. There are no priorities. How
many rows make a training, and the temperature, are those of the settings, or what other controllers decided.
"""

from collections.abc import Mapping
from typing import ClassVar

from app.config import RunSettings
from app.controllers import Controller, FeedbackState, Needs
from app.core import ConfigKey, EventId, ModelHash, derive_id, derive_seed
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonReady,
    Emission,
    EvaluationFailed,
    Event,
    HyperparameterUpdated,
    InspectionFailed,
    ModelDistributed,
    NodeQuarantined,
    Payload,
    PromotionRejected,
    QualityDegraded,
    QualityScoreUpdated,
    Row,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    ShardRef,
    Step,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
)

US = 1_000_000
NAME, POOL, WORKER = "UniformScheduler", "pool", "worker:"


class Needy(Row, frozen=True):
    """A configuration: its model, fresh rows of it, requests that are out, rows that one of them brings."""

    model: ModelHash | None = None
    fresh_rows: int = 0
    out: tuple[EventId, ...] = ()
    requests: int = 0
    rows_each: int = 1
    queued: bool = False
    temperature: float | None = None
    needs: Needs = Needs()

    def wants(self, settings: RunSettings, key: str) -> bool:
        """Return whether its model lacks rows. While training is paused, one request at a time may end the pause."""
        if self.model is None:
            return False
        needed = self.needs.rows(settings, key)
        return not self.out if needed is None else self.fresh_rows + len(self.out) * self.rows_each < needed


class Lease(Row, frozen=True):
    """A worker's request, and its time."""

    key: ConfigKey
    request: EventId
    at_us: int


class Pool(Row, frozen=True):
    """Free workers, and configurations that wait."""

    free: tuple[str, ...] = ()
    waiting: tuple[ConfigKey, ...] = ()


class UniformRow(Row, frozen=True):
    """A row about a configuration, a worker, or the pool."""

    config: Needy | None = None
    lease: Lease | None = None
    pool: Pool | None = None


class Allocation:
    """The table as one event changes it."""

    def __init__(
        self,
        settings: RunSettings,
        rows: Mapping[str, UniformRow],
        event: Event[Payload],
        states: Mapping[str, FeedbackState],
    ) -> None:
        self._settings, self._rows, self._event, self._states = settings, rows, event, states
        self._changed: dict[str, UniformRow | None] = {}
        self._emissions: list[Emission] = []
        self.pool = self._row(POOL).pool or Pool()

    def _row(self, name: str) -> UniformRow:
        return (self._changed[name] if name in self._changed else self._rows.get(name)) or UniformRow()

    def config(self, key: str) -> Needy:
        """Return a configuration's row. Decisions may come before its first model."""
        return self._row(key).config or Needy()

    def set_config(self, key: str, row: Needy) -> None:
        """Change a configuration's row, and let it wait for a worker if it lacks rows."""
        if row.wants(self._settings, key) and not row.queued:
            self.pool = Pool(free=self.pool.free, waiting=(*self.pool.waiting, ConfigKey(key)))
            row = row.replace(queued=True)
        self._changed[key] = UniformRow(config=row)

    def give_up(self, key: str, request: EventId) -> None:
        """Expect nothing of a request any more."""
        row = self.config(key)
        if request in row.out:
            out = tuple(other for other in row.out if other != request)
            self.set_config(key, row.replace(out=out))

    def free(self, worker: str) -> None:
        """Note that a worker has nothing to do."""
        self._changed[WORKER + worker] = None
        self.pool = Pool(free=(*self.pool.free, worker), waiting=self.pool.waiting)

    def dispatch(self) -> None:
        """Give free workers to those who wait."""
        while self.pool.free and self.pool.waiting:
            worker, key = self.pool.free[0], self.pool.waiting[0]
            self.pool = Pool(free=self.pool.free[1:], waiting=self.pool.waiting[1:])
            row = self.config(key)
            request = derive_id(NAME, self._event.id, len(self._emissions))
            self._emissions.append(Emission(self._request(key, row, worker), key))
            lease = Lease(key=key, request=request, at_us=self._event.recorded_us)
            self._changed[WORKER + worker] = UniformRow(lease=lease)
            turn = {"out": (*row.out, request), "requests": row.requests + 1, "queued": False}
            self.set_config(key, row.replace(**turn))

    def _request(self, key: ConfigKey, row: Needy, worker: str) -> SelfplayRequested:
        assert row.model is not None  # only those with a model wait
        selfplay, state = self._settings.config(key).selfplay, self._states.get(key)
        return SelfplayRequested(
            worker=worker,
            model=row.model,
            lineups=(),
            games=selfplay.games_per_request,
            seed=derive_seed(self._settings.seed, key, "selfplay", row.requests),
            temperature=(row.temperature or selfplay.temperature) * (state.exploration_boost if state else 1.0),
            probe=False,
        )

    def step(self) -> Step[UniformRow]:
        """Return all changes."""
        return Step({**self._changed, POOL: UniformRow(pool=self.pool)}, tuple(self._emissions))


class UniformScheduler(Controller[UniformRow]):
    """Serves all configurations in turn."""

    name: ClassVar[str] = NAME
    row: ClassVar[type[UniformRow]] = UniformRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            AdaptiveParamsChanged,
            ClockTick,
            DaemonReady,
            EvaluationFailed,
            HyperparameterUpdated,
            InspectionFailed,
            ModelDistributed,
            NodeQuarantined,
            PromotionRejected,
            QualityDegraded,
            QualityScoreUpdated,
            SelfplayComplete,
            SelfplayFailed,
            TrainingBlockedByQuality,
            TrainingFailed,
            TrainingIntensityChanged,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({SelfplayRequested})

    def step(
        self, rows: Mapping[str, UniformRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[UniformRow]:
        """Fold one event."""
        allocation, data = Allocation(self.settings, rows, event, states), event.data
        match data:
            case ClockTick():
                self._sweep(allocation, rows, event.recorded_us)
            case DaemonReady():
                name = f"{data.daemon}@{data.node}"
                if WORKER + name not in rows and name not in allocation.pool.free:
                    allocation.free(name)
            case NodeQuarantined(worker=worker) if lease := rows.get(WORKER + worker, UniformRow()).lease:
                allocation.give_up(lease.key, lease.request)
                allocation.free(worker)
            case SelfplayComplete(shard=ShardRef(worker=str(worker))) | SelfplayFailed(worker=worker):
                if WORKER + worker in rows or worker not in allocation.pool.free:
                    allocation.free(worker)
        if event.subject:
            self._update(allocation, event.subject, data)
        allocation.dispatch()
        return allocation.step()

    def _sweep(self, allocation: Allocation, rows: Mapping[str, UniformRow], now_us: int) -> None:
        """Expect nothing more of requests whose lease is over; their workers count as busy until they answer."""
        limit = self.settings.feedback.scheduler.lease_seconds * US
        for row in rows.values():
            if row.lease and now_us - row.lease.at_us >= limit:
                allocation.give_up(row.lease.key, row.lease.request)

    def _update(self, allocation: Allocation, key: str, data: Payload) -> None:
        """Take in what an event says of a configuration."""
        row = allocation.config(key)
        match data:
            case ModelDistributed(model=model):
                allocation.set_config(key, row.replace(model=model, fresh_rows=0, out=()))
            case QualityScoreUpdated(shard=shard, request_id=request) if shard.model == row.model:
                counted = shard.rows if self._counts(row, key, data.score) else 0
                rows = {"fresh_rows": row.fresh_rows + counted, "rows_each": shard.rows}
                allocation.set_config(key, row.replace(**rows, out=_without(row.out, request)))
            case (
                QualityDegraded(request_id=request)
                | InspectionFailed(request_id=request)
                | SelfplayFailed(request_id=request)
            ):
                allocation.give_up(key, request)
            case _ if decided := _decided(row, data, self.settings, key):
                allocation.set_config(key, decided)

    def _counts(self, row: Needy, key: str, score: float) -> bool:  # noqa: ARG002 - needed by overrides
        """Return whether rows of this quality are trained on: TrainAlways takes any."""
        return True


class UniformBesideTrigger(UniformScheduler):
    """The same beside the real TrainingTrigger: that leaves poor rows out, and would wait for others for ever."""

    def _counts(self, row: Needy, key: str, score: float) -> bool:
        return row.needs.usable(self.settings, key, score)


def _decided(row: Needy, data: Payload, settings: RunSettings, key: str) -> Needy | None:
    """Return a configuration's row as the end of a training or another controller's decision leaves it."""
    match data:
        case PromotionRejected() | TrainingFailed() | TrainingBlockedByQuality():
            return row.replace(fresh_rows=0)
        case EvaluationFailed(purpose="rating", model=model) if model != row.model:  # the candidate's
            return row.replace(fresh_rows=0)
        case HyperparameterUpdated(parameter="base_temperature", value=value):
            return row.replace(temperature=value)
        case AdaptiveParamsChanged() | HyperparameterUpdated() | TrainingIntensityChanged():
            return row.replace(needs=row.needs.after(data, settings, key))
    return None


def _without(requests: tuple[EventId, ...], done: EventId) -> tuple[EventId, ...]:
    return tuple(request for request in requests if request != done)
