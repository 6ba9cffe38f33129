"""SelfplayScheduler: which configuration plays next, on which worker, with which model.

A configuration wants games while its current model lacks fresh rows. Its priority is its curriculum weight (velocity,
data deficit, quality), raised by staleness and by the uncertainty of its rating, within bounds whose ratio is the
starvation floor. A quality penalty stretches the time between its requests. Workers are known by what they say of
themselves: their capacity when they are ready, their life by heartbeats; what a lost one was asked for is asked again.
A request's opponents are drawn from what matchmaking decided for its model.
"""

from collections.abc import Mapping
from typing import ClassVar

from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonHeartbeat,
    DaemonReady,
    EvaluationFailed,
    Event,
    HyperparameterUpdated,
    MatchmakingUpdated,
    ModelDistributed,
    NodeLost,
    OpponentSampled,
    Payload,
    PromotionRejected,
    QualityDegraded,
    QualityPenaltyApplied,
    QualityScoreUpdated,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    Step,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from app.feedback.controller import Controller
from app.feedback.limits import bounded
from app.feedback.needs import US
from app.feedback.plan import CONFIG, EMPTY, FIRST, MATCHMAKING, MOST_LEASES, NAME, WORKER, Plan, is_due
from app.feedback.queue import ConfigRow, SchedulerRow, WorkerRow
from app.feedback.state import FeedbackState

WORKER_DAEMON = "selfplay_worker"
SWEEPS_PER_LEASE = 4

LEAST_RATE = 0.01
"""A lower one, as an operator may set, would be no more games at all; and the time until the next no number."""

MOST_CAPACITY = 1024
"""Jobs that a worker is believed to run at once: each is a place in a line."""

HEARD = (DaemonHeartbeat, DaemonReady)
"""What tells that a worker lives. The commonest first: pydantic takes long to say that a model is none of a class."""


class SelfplayScheduler(Controller[SchedulerRow]):
    """Owns the allocation of games to configurations and nodes."""

    name: ClassVar[str] = NAME
    row: ClassVar[type[SchedulerRow]] = SchedulerRow
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            AdaptiveParamsChanged,
            ClockTick,
            DaemonHeartbeat,
            DaemonReady,
            EvaluationFailed,
            HyperparameterUpdated,
            MatchmakingUpdated,
            ModelDistributed,
            PromotionRejected,
            QualityDegraded,
            QualityPenaltyApplied,
            QualityScoreUpdated,
            SelfplayComplete,
            SelfplayFailed,
            TrainingBlockedByQuality,
            TrainingCompleted,
            TrainingFailed,
            TrainingIntensityChanged,
            TrainingUnblocked,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset({SelfplayRequested, NodeLost, OpponentSampled})

    def step(
        self, rows: Mapping[str, SchedulerRow], event: Event[Payload], states: Mapping[str, FeedbackState]
    ) -> Step[SchedulerRow]:
        """Fold one event."""
        data = event.data
        if isinstance(data, HEARD):
            if data.daemon != WORKER_DAEMON:
                return Step()
            if alive := _alive(rows, data, event.recorded_us):
                return Step(alive)
        if noted := _noted(rows, event.subject, data):
            return Step(noted)
        plan = Plan(self.settings, rows, event, states)
        match data:
            case ClockTick():
                self._sweep(plan, rows)
            case DaemonReady() | DaemonHeartbeat():
                _heard(plan, data)
            case _:
                if (row := self._after(plan, event.subject, data)) is None:
                    return Step()
                plan.set_config(event.subject, row.model_copy(update={"cause": event.cause}))
                plan.want(event.subject)
        plan.wake()
        plan.dispatch()
        return plan.step()

    def _after(self, plan: Plan, key: str, data: Payload) -> ConfigRow | None:
        """Return a configuration's row as an event about it leaves it; ``None`` when it changes nothing."""
        row = plan.config(key)
        match data:
            case ModelDistributed(model=model):
                changed = {"model": model, "candidate": None, "fresh_rows": 0}
                return plan.forget(key, row, row.out).model_copy(update=changed)
            case SelfplayComplete(request_id=request, seconds=seconds) if asked := row.asked(request):
                most = MOST_LEASES * self.settings.feedback.scheduler.lease_seconds
                return plan.release(key, row, asked).model_copy(update={"seconds": min(max(0.001, seconds), most)})
            case QualityScoreUpdated(shard=shard) if shard.model == row.model:
                return self._scored(plan, key, row, data)
            case SelfplayFailed() | QualityDegraded() if asked := row.asked(data.request_id):
                # The next sweep repeats it: a failure that comes back must not spin.
                return plan.release(key, row, asked, failed=True)
            case PromotionRejected() | TrainingFailed():
                return row.model_copy(update={"candidate": None, "fresh_rows": 0})
            case EvaluationFailed(purpose="rating", model=model) if model == row.candidate:
                # The trigger goes on without it. It is not kept waiting by any other evaluation.
                return row.model_copy(update={"candidate": None, "fresh_rows": 0})
        return self._decided(row, key, data)

    def _decided(self, row: ConfigRow, key: str, data: Payload) -> ConfigRow | None:
        """Take in a decision."""
        match data:
            case QualityPenaltyApplied(rate_multiplier=rate):
                return row.model_copy(update={"rate": max(LEAST_RATE, rate)})
            case TrainingBlockedByQuality():
                return row.model_copy(update={"blocked": True, "fresh_rows": 0})
            case TrainingUnblocked():
                return row.model_copy(update={"blocked": False})
            case HyperparameterUpdated(parameter="base_temperature", value=value):
                temperature = bounded("base_temperature", value, self.settings, key)
                return row.model_copy(update={"base_temperature": temperature})
            case AdaptiveParamsChanged() | HyperparameterUpdated() | TrainingIntensityChanged():
                return row.model_copy(update={"needs": row.needs.after(data, self.settings, key)})
        return None

    def _scored(self, plan: Plan, key: str, row: ConfigRow, data: QualityScoreUpdated) -> ConfigRow | None:
        """Count a shard's rows, if they are good enough; poor ones are asked for again by the next sweep."""
        asked, shard = row.asked(data.request_id), data.shard
        if not row.needs.usable(self.settings, key, data.score):
            return plan.release(key, row, asked, failed=True) if asked else None
        answered = plan.forget(key, row, [asked]) if asked else row
        most = row.needs.most_rows(self.settings, key)
        fresh, rows = min(row.fresh_rows + shard.rows, most), min(shard.rows, most)
        return answered.model_copy(update={"fresh_rows": fresh, "rows_per_game": rows / shard.games})

    def _sweep(self, plan: Plan, rows: Mapping[str, SchedulerRow]) -> None:
        """Look for lost workers and for requests without an answer; not at every tick, as it looks at everything."""
        limits = self.settings.feedback.scheduler
        period = min(limits.lease_seconds / SWEEPS_PER_LEASE, limits.node_silent_seconds / 2)
        if plan.now_us - plan.queue.swept_us < period * US:
            return
        plan.queue = plan.queue.model_copy(update={"swept_us": plan.now_us})
        for name in sorted(name for name in rows if name.startswith(WORKER)):  # rows are in no order that lasts
            _look_after(plan, name.removeprefix(WORKER), limits.node_silent_seconds)
        due_us = plan.now_us - limits.lease_seconds * US
        for key in (config.key for config in self.settings.configs):
            if CONFIG + key in rows:
                row = plan.config(key)
                if over := [asked for asked in row.out if asked.failed or asked.at_us <= due_us]:
                    plan.set_config(key, plan.forget(key, row, over))
                plan.want(key)


def _alive(
    rows: Mapping[str, SchedulerRow], data: DaemonReady | DaemonHeartbeat, now_us: int
) -> dict[str, SchedulerRow | None]:
    """Return the row of a worker whose heartbeat says nothing but that it lives on; nothing if there is more to do.

    Most events of a large cluster are such heartbeats, and a plan costs more than all the rest of them.
    """
    name = f"{WORKER}{data.daemon}@{data.node}"
    row = rows.get(name)
    if row is None or row.worker is None or row.worker.lost or type(data) is DaemonReady or is_due(rows, now_us):
        return {}
    return {name: SchedulerRow(worker=row.worker.model_copy(update={"heard_us": now_us}))}


def _noted(rows: Mapping[str, SchedulerRow], key: str, data: Payload) -> dict[str, SchedulerRow | None]:
    """Return what is noted for later of an event after which as many games are wanted as before."""
    if type(data) is MatchmakingUpdated:
        return {MATCHMAKING + key: SchedulerRow(matchmaking=data)}
    if type(data) is TrainingCompleted:
        row = rows.get(CONFIG + key, EMPTY).config or FIRST
        return {CONFIG + key: SchedulerRow(config=row.model_copy(update={"candidate": data.model}))}
    return {}


def _heard(plan: Plan, data: DaemonReady | DaemonHeartbeat) -> None:
    """Note that a worker lives; a ready one says how much it can do."""
    name = f"{data.daemon}@{data.node}"
    worker = plan.worker(name)
    if isinstance(data, DaemonReady):
        serving = worker.serving if worker and not worker.lost else ()
        worker = WorkerRow(node=data.node, capacity=min(data.capacity, MOST_CAPACITY), serving=serving)
    if worker is not None:
        plan.set_worker(name, worker.model_copy(update={"heard_us": plan.now_us, "lost": False}))


def _look_after(plan: Plan, name: str, silent_seconds: float) -> None:
    """Give a worker up that was not heard for too long, and ask its requests of others."""
    worker = plan.worker(name)
    if worker is None or worker.lost or plan.now_us - worker.heard_us < silent_seconds * US:
        return
    plan.emit(NodeLost(node=worker.node, silent_seconds=(plan.now_us - worker.heard_us) / US))
    plan.set_worker(name, worker.model_copy(update={"lost": True, "serving": ()}))
    for key in dict.fromkeys(worker.serving):
        row = plan.config(key)
        plan.set_config(key, plan.forget(key, row, [asked for asked in row.out if asked.worker == name]))
        plan.want(key)
