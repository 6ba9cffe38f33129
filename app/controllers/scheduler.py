"""SelfplayScheduler: which configuration plays next, on which worker, with which model.

A configuration wants games while its current model lacks fresh rows. Its priority is its curriculum weight (velocity,
data deficit, quality), raised by staleness and by the uncertainty of its rating, within bounds whose ratio is the
starvation floor. A quality penalty stretches the time between its requests. Workers announce their capacity when they
are ready; their heartbeats name the requests they hold. A lost worker's requests are repeated. A worker with several
failed requests in a row pauses, and is tried again later (ADR-019). A request's opponents are drawn from the
matchmaking of its model.
"""

from collections.abc import Mapping, Sequence
from typing import ClassVar

from app.controllers.controller import Controller
from app.controllers.fair_queue import Asked, ConfigRow, SchedulerRow, WorkerRow
from app.controllers.knobs import bounded
from app.controllers.needs import US
from app.controllers.plan import CONFIG, EMPTY, FIRST, MATCHMAKING, MOST_LEASES, NAME, WORKER, Plan, is_due
from app.controllers.state import FeedbackState
from app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonHeartbeat,
    DaemonReady,
    DaemonStopped,
    EvaluationFailed,
    Event,
    HyperparameterUpdated,
    InspectionFailed,
    MatchmakingUpdated,
    ModelDistributed,
    NodeDegraded,
    NodeLost,
    NodeProbed,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
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

WORKER_DAEMON = "selfplay_worker"
SWEEPS_PER_LEASE = 4

LEAST_RATE = 0.01
"""A lower one, as an operator may set, would be no more games at all; and the time until the next no number."""

MOST_CAPACITY = 1024
"""Jobs that a worker is believed to run at once: each is a place in a line."""

MOST_DEADLINES = 4
"""Deadlines of self-play after which a request is given up despite heartbeats: two attempts at it, and two at the one
before it. Otherwise a worker that dies of a request and names it in between would keep it for ever."""

HEARD = (DaemonHeartbeat, DaemonReady, DaemonStopped)
"""Events about workers, the most frequent first, because pydantic's failed isinstance checks are slow."""


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
            DaemonStopped,
            EvaluationFailed,
            HyperparameterUpdated,
            InspectionFailed,
            MatchmakingUpdated,
            ModelDistributed,
            NodeProbed,
            NodeQuarantined,
            NodeReleased,
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
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {NodeDegraded, NodeLost, NodeRecovered, OpponentSampled, SelfplayRequested}
    )

    def step(  # noqa: C901 - one case an event
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
            case DaemonReady() | DaemonHeartbeat() | DaemonStopped():
                _heard(plan, data)
            case NodeQuarantined() | NodeReleased():
                # Configurations that are not played now may be taken up again. Rows are in no order that lasts.
                keys = sorted(name.removeprefix(CONFIG) for name in rows if name.startswith(CONFIG))
                _quarantine(plan, data, keys)
            case _:
                if (row := self._after(plan, event.subject, data)) is None:
                    return Step()
                plan.set_config(event.subject, row.replace(cause=event.cause))
                plan.want(event.subject)
        plan.wake()
        plan.dispatch()
        return plan.step()

    def _after(self, plan: Plan, key: str, data: Payload) -> ConfigRow | None:  # noqa: C901 - one case an event
        """Return a configuration's row as an event about it leaves it; ``None`` when it changes nothing."""
        row = plan.config(key)
        match data:
            case ModelDistributed(model=model):
                changed = {"model": model, "candidate": None, "shards": ()}
                return plan.forget(key, row, row.out).replace(**changed)
            case SelfplayComplete(request_id=request, seconds=seconds) if asked := row.asked(request):
                most = MOST_LEASES * self.settings.feedback.scheduler.lease_seconds
                return plan.release(key, row, asked).replace(seconds=min(max(0.001, seconds), most))
            case QualityScoreUpdated(shard=shard) if shard.model == row.model:
                return self._scored(plan, key, row, data)
            case NodeProbed(request_id=request, worker=worker, score=score) if asked := row.asked(request):
                if score is not None:
                    plan.trust(worker)
                return plan.forget(key, row, [asked])
            case SelfplayFailed(worker=worker, error=error) | QualityDegraded(worker=worker, reason=error):
                if asked := row.asked(data.request_id):
                    # The next sweep repeats it, because an immediate repetition would spin on a persistent failure.
                    return plan.blame(plan.release(key, row, asked, failed=True), worker, error)
                return None
            case InspectionFailed(request_id=request) if asked := row.asked(request):
                return plan.release(key, row, asked, failed=True)
            case PromotionRejected() | TrainingFailed():
                return row.replace(candidate=None, shards=())
            case EvaluationFailed(purpose="rating", model=model) if model == row.candidate:
                # The trigger goes on without it. It is not kept waiting by any other evaluation.
                return row.replace(candidate=None, shards=())
        return self._decided(row, key, data)

    def _decided(self, row: ConfigRow, key: str, data: Payload) -> ConfigRow | None:
        """Take in a decision."""
        match data:
            case QualityPenaltyApplied(rate_multiplier=rate):
                return row.replace(rate=max(LEAST_RATE, rate))
            case TrainingBlockedByQuality():
                return row.replace(blocked=True, shards=())
            case TrainingUnblocked():
                return row.replace(blocked=False)
            case HyperparameterUpdated(parameter="base_temperature", value=value):
                temperature = bounded("base_temperature", value, self.settings, key)
                return row.replace(base_temperature=temperature)
            case AdaptiveParamsChanged() | HyperparameterUpdated() | TrainingIntensityChanged():
                return row.replace(needs=row.needs.after(data, self.settings, key))
        return None

    def _scored(self, plan: Plan, key: str, row: ConfigRow, data: QualityScoreUpdated) -> ConfigRow:
        """Count a shard's rows, if they are good enough; poor ones are asked for again by the next sweep."""
        asked, shard = row.asked(data.request_id), data.shard
        plan.trust(shard.worker)
        row = row.replace(failed_at=None, good_us=plan.now_us)
        if not row.needs.usable(self.settings, key, data.score):
            return plan.release(key, row, asked, failed=True) if asked else row
        answered = plan.forget(key, row, [asked]) if asked else row
        shards = row.needs.latest(self.settings, key, (*row.shards, shard))
        rows = min(shard.rows, row.needs.most_rows(self.settings, key))
        return answered.replace(shards=shards, rows_per_game=rows / shard.games)

    def _sweep(self, plan: Plan, rows: Mapping[str, SchedulerRow]) -> None:
        """Look for lost workers and for requests without an answer; not at every tick, as it looks at everything."""
        limits = self.settings.feedback.scheduler
        period = min(limits.lease_seconds / SWEEPS_PER_LEASE, limits.node_silent_seconds / 2)
        if plan.now_us - plan.queue.swept_us < period * US:
            return
        plan.queue = plan.queue.replace(swept_us=plan.now_us)
        for name in sorted(name for name in rows if name.startswith(WORKER)):  # rows are in no order that lasts
            _look_after(plan, name.removeprefix(WORKER), limits.node_silent_seconds)
        for key in (config.key for config in self.settings.configs):
            if CONFIG + key in rows:
                self._end_leases(plan, key)
                plan.want(key)

    def _end_leases(self, plan: Plan, key: str) -> None:
        """Give up a configuration's failed requests and those whose lease has ended."""
        before = plan.config(key)
        row = _with_signs(plan, before)
        silent_us = plan.now_us - self.settings.feedback.scheduler.lease_seconds * US
        oldest_us = plan.now_us - MOST_DEADLINES * self.settings.deadlines.selfplay_seconds * US
        over = [one for one in row.out if one.failed or one.seen_us <= silent_us or one.at_us <= oldest_us]
        if over:
            row = plan.forget(key, row, over)
            for lost in [one for one in over if not one.ended]:
                row = plan.blame(row, lost.worker, "a request came to no end")
        if row is not before:
            plan.set_config(key, row)


def _quarantine(plan: Plan, data: NodeQuarantined | NodeReleased, keys: Sequence[str]) -> None:
    """Begin or end a quarantine: the worker's requests are repeated, its rows do not count."""
    worker = plan.worker(data.worker)
    if isinstance(data, NodeReleased):
        if worker is not None:
            rests = worker.rests_until_us if worker.pauses else None
            plan.set_worker(data.worker, worker.replace(quarantined=False, rests_until_us=rests))
        return
    if worker is not None:
        until_us = plan.now_us + round(data.lasts_seconds * US)
        resting = worker.replace(quarantined=True, rests_until_us=until_us)
        plan.forget_worker(data.worker, resting, keys, played=True)
    for key in keys:
        row = plan.config(key)
        kept = tuple(shard for shard in row.shards if shard.worker != data.worker)
        plan.set_config(key, row.replace(shards=kept))
        plan.want(key)


def _alive(
    rows: Mapping[str, SchedulerRow], data: DaemonHeartbeat | DaemonReady | DaemonStopped, now_us: int
) -> dict[str, SchedulerRow | None]:
    """Return the row of a worker whose heartbeat says nothing but that it lives on; nothing if there is more to do.

    Most events of a large cluster are such heartbeats, and a plan costs more than all the rest of them.
    """
    name = f"{WORKER}{data.daemon}@{data.node}"
    row = rows.get(name)
    if row is None or row.worker is None or row.worker.lost:
        return {}
    if type(data) is not DaemonHeartbeat or is_due(rows, now_us):
        return {}
    return {name: SchedulerRow(worker=row.worker.replace(heard_us=now_us, holds=data.requests))}


def _noted(rows: Mapping[str, SchedulerRow], key: str, data: Payload) -> dict[str, SchedulerRow | None]:
    """Return what is noted for later of an event after which as many games are wanted as before."""
    if type(data) is MatchmakingUpdated:
        return {MATCHMAKING + key: SchedulerRow(matchmaking=data)}
    if type(data) is TrainingCompleted:
        row = rows.get(CONFIG + key, EMPTY).config or FIRST
        return {CONFIG + key: SchedulerRow(config=row.replace(candidate=data.model))}
    return {}


def _heard(plan: Plan, data: DaemonHeartbeat | DaemonReady | DaemonStopped) -> None:
    """Update a worker's life and capacity.

    A paused worker that restarts is tried at once, because it may have been repaired.
    """
    name = f"{data.daemon}@{data.node}"
    worker, alive = plan.worker(name), {"heard_us": plan.now_us, "lost": False}
    match data:
        case DaemonStopped():
            _give_up(plan, name)
        case DaemonHeartbeat(requests=requests) if worker is not None:
            plan.set_worker(name, worker.replace(**alive, holds=requests))
        case DaemonReady():
            capacity = min(data.capacity, MOST_CAPACITY)
            before = worker or WorkerRow(node=data.node, capacity=capacity)
            rests = before.rests_until_us if before.quarantined else None
            ready = {"capacity": capacity, "holds": (), "rests_until_us": rests}
            plan.set_worker(name, before.replace(**alive, **ready))


def _look_after(plan: Plan, name: str, silent_seconds: float) -> None:
    """Declare silent workers lost; end pauses that are over."""
    worker = plan.worker(name)
    if worker is None or worker.lost:
        return
    if plan.now_us - worker.heard_us >= silent_seconds * US:
        plan.emit(NodeLost(node=worker.node, silent_seconds=(plan.now_us - worker.heard_us) / US))
        _give_up(plan, name)
    elif worker.rests_until_us is not None and worker.rests_until_us <= plan.now_us:
        plan.set_worker(name, worker.replace(rests_until_us=None))


def _give_up(plan: Plan, name: str) -> None:
    """Repeat a worker's requests elsewhere; a worker that stopped in order is not lost."""
    worker = plan.worker(name)
    if worker is not None and not worker.lost:
        lost = worker.replace(lost=True, holds=())
        plan.forget_worker(name, lost, dict.fromkeys(worker.serving), played=False)


def _with_signs(plan: Plan, row: ConfigRow) -> ConfigRow:
    """Renew the leases of requests that their workers' heartbeats named."""

    def seen(asked: Asked) -> Asked:
        worker = None if asked.ended else plan.worker(asked.worker)
        if worker is None or asked.request not in worker.holds:
            return asked
        return asked.replace(seen_us=max(asked.seen_us, worker.heard_us))

    return row.replace(out=tuple(map(seen, row.out))) if row.out else row
