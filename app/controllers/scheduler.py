"""SelfplayScheduler: assigns self-play of the configurations to workers.

A configuration wants games while its current model lacks fresh rows. Its priority is its curriculum weight, within the
starvation floor. A quality penalty stretches the time between its requests. Workers announce their capacity when they
are ready. The broker says which workers are lost (ADR-009); their requests are repeated. A worker with consecutive
failed requests pauses, and is tried again later (ADR-010). A request's opponents are drawn from the matchmaking of
its model.
"""

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, NamedTuple

from flyball.app.config import RunSettings, SelfplaySettings
from flyball.app.controllers.controller import Controller
from flyball.app.controllers.fair_queue import (
    MOST_LEASES,
    ConfigRow,
    OutstandingRequest,
    SchedulerRow,
    WorkerRow,
    gap_seconds,
    next_turn,
    priority,
    request_games,
    turn_seconds,
)
from flyball.app.controllers.needs import is_fresh, is_usable, late_champions, latest_shards, most_rows
from flyball.app.controllers.state import States, state_of
from flyball.app.core import SECOND_US, ConfigKey, ModelHash, derive_id, derive_seed, lineups
from flyball.app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    DaemonReady,
    DaemonStopped,
    Emission,
    EvaluationFailed,
    Event,
    HyperparameterUpdated,
    InspectionFailed,
    Lineup,
    MatchmakingUpdated,
    ModelDistributed,
    ModelRolledBack,
    NodeDegraded,
    NodeLost,
    NodeProbed,
    NodeQuarantined,
    NodeRecovered,
    NodeReleased,
    NodeReturned,
    OpponentSampled,
    Payload,
    PromotionRejected,
    QualityDegraded,
    QualityPenaltyApplied,
    QualityScoreUpdated,
    SampledOpponent,
    SelfplayComplete,
    SelfplayFailed,
    SelfplayRequested,
    Step,
    TrainingBlockedByQuality,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
    handles,
)

NAME = "SelfplayScheduler"
WORKER_DAEMON = "selfplay_worker"
CONFIG, WORKER = "config:", "worker:"

MOST_DEADLINES = 4
"""Self-play deadlines after which a living worker's request is given up.

That is time for two attempts at it, and two at the request before it. Without a limit, a worker that crashes at a
request and starts again would keep it for ever.
"""

LIMITS = SelfplaySettings()
"""The default limits of a request."""

DISTINCT = 2
"""Most different opponents at one table (cluster sampling)."""

ITSELF = "mirror"


class Meeting(NamedTuple):
    """Lineups of a request, and the opponents drawn for them; both are empty if the model plays only itself."""

    lineups: tuple[Lineup, ...] = ()
    draws: tuple[SampledOpponent, ...] = ()


def meeting(
    decided: MatchmakingUpdated | None,
    model: ModelHash,
    players: int,
    games: int,
    seed: int,
    *,
    limits: SelfplaySettings = LIMITS,
) -> Meeting:
    """Draw lineups of whole rotations; all games of a rotation have the same opponents.

    Args:
        decided: the matchmaking; ignored if it is of another model.
        model: the model whose opponents are drawn.
        players: number of players of a game.
        games: number of games of the request; the model plays those beyond whole rotations against itself.
        seed: of the request.
        limits: the most lineups and different opponents of the request.
    """
    if decided is None or decided.model != model or all(pick.category == ITSELF for pick in decided.picks):
        return Meeting()
    weights = {index: pick.probability for index, pick in enumerate(decided.picks)}
    rotations = games // players
    seats, distinct = players - 1, min(players - 1, DISTINCT)
    firsts = [-(-draw * seats // distinct) for draw in range(distinct)]  # each draw's first seat
    met, draws = list[Lineup](), list[SampledOpponent]()
    count = min(limits.most_lineups, rotations)
    drawn = lineups(weights, count, seats=seats, distinct=distinct, seed=seed, most=limits.most_opponents)
    for number, indices in enumerate(drawn):
        share = players * ((number + 1) * rotations // count - number * rotations // count)
        seated = [decided.picks[index] for index in indices]
        met.append(Lineup(opponents=tuple([pick.agent for pick in seated]), games=share))
        draws += [
            SampledOpponent(agent=seated[first].agent, category=seated[first].category, games=share) for first in firsts
        ]
    return Meeting(tuple(met), tuple(draws))


EMPTY = SchedulerRow()
"""The default of missing rows."""


class Allocation:
    """Applies one event to the scheduler's rows, and collects the emissions.

    Each handler applies one type of payload. If the event is evidence for requests, the handler returns the new row of
    the event's configuration.
    """

    def __init__(
        self,
        settings: RunSettings,
        rows: Mapping[str, SchedulerRow],
        event: Event[Payload],
        states: States,
    ) -> None:
        self.settings, self.limits = settings, settings.feedback.scheduler
        self.rows, self.event, self.states = rows, event, states
        self.key, self.now_us = event.subject, event.recorded_us
        self.configs = {name.removeprefix(CONFIG): row.config for name, row in rows.items() if row.config}
        self.workers = {name.removeprefix(WORKER): row.worker for name, row in rows.items() if row.worker}
        self.row, self.state = self.configs.get(self.key, ConfigRow()), state_of(states, self.key)
        self.emissions: list[Emission] = []

    def step(self) -> Step[SchedulerRow]:
        """Apply the event, then request games while a turn is possible."""
        data = self.event.data
        if (row := self.handlers[type(data)](self, data)) is not None:
            self.configs[self.key] = row.replace(cause=self.event.cause)
        while turn := next_turn(self.configs, self.workers, self.states, self.settings, self.now_us):
            self._request(*turn)
        changed: dict[str, SchedulerRow | None] = {
            CONFIG + key: SchedulerRow(config=row)
            for key, row in self.configs.items()
            if row is not self.rows.get(CONFIG + key, EMPTY).config
        }
        changed |= {
            WORKER + name: SchedulerRow(worker=row)
            for name, row in self.workers.items()
            if row is not self.rows.get(WORKER + name, EMPTY).worker
        }
        return Step(changed, tuple(self.emissions))

    def _request(self, key: ConfigKey, name: str, start: float) -> None:
        """Request a configuration's games from a worker; ``start`` is the turn's virtual time."""
        row, worker, config = self.configs[key], self.workers[name], self.settings.config(key)
        state, probe = state_of(self.states, key), worker.quarantined
        games = config.selfplay.games_per_request
        if not probe:
            slots = sum([each.job_slots(1) for each in self.workers.values()])
            games = request_games(row, slots, state, self.settings)
        model = state.lineage.playing
        assert model is not None  # a configuration without a model does not wait
        request_id = derive_id(NAME, self.event.id, len(self.emissions))
        seed = derive_seed(self.settings.seed, key, "selfplay", row.requests)
        met = meeting(state.matchmaking, model, config.players, games, seed, limits=config.selfplay)
        request = SelfplayRequested(
            worker=name,
            model=model,
            lineups=met.lineups,
            games=games,
            seed=seed,
            temperature=state.parameter("base_temperature", self.settings) * state.exploration_boost,
            probe=probe,
        )
        self.emissions.append(Emission(request, key, row.cause))
        if met.draws:
            sampled = OpponentSampled(request_id=request_id, model=model, opponents=met.draws)
            self.emissions.append(Emission(sampled, key, row.cause))
        outstanding = OutstandingRequest(
            request=request_id, worker=name, at_us=self.now_us, probe=probe, model=model, games=games
        )
        self.configs[key] = row.replace(
            out=(*row.out, outstanding),
            requests=row.requests + 1,
            requested_us=self.now_us,
            gap_seconds=gap_seconds(row, state.selfplay_rate, self.limits, self.now_us),
            start=start,
            finish=start + turn_seconds(row, state) / priority(state, self.settings.feedback),
        )
        self.workers[name] = worker.replace(asked_us=self.now_us)

    def _ready(self, data: DaemonReady) -> None:
        """Update a worker's capacity. A paused worker is tried at once, because it may have been repaired."""
        if data.daemon == WORKER_DAEMON:
            name = f"{data.daemon}@{data.node}"
            worker = self.workers.get(name) or WorkerRow(capacity=data.capacity, asked_us=0)
            self.workers[name] = worker.after_pause().replace(capacity=data.capacity, lost=False)

    def _stopped(self, data: DaemonStopped | NodeLost) -> None:
        """Give up the requests of a worker that stopped or was lost."""
        name = f"{data.daemon}@{data.node}"
        if worker := self.workers.get(name):
            self.workers[name] = worker.replace(lost=True)
            self._end_leases()

    def _returned(self, data: NodeReturned) -> None:
        """Make a lost worker available again; the results of its earlier requests are not awaited."""
        name = f"{data.daemon}@{data.node}"
        if worker := self.workers.get(name):
            self.workers[name] = worker.replace(lost=False)

    def _quarantined(self, data: NodeQuarantined) -> None:
        """Drop a quarantined worker's shards and requests, also those whose shards await inspection."""
        if worker := self.workers.get(data.worker):
            until_us = self.now_us + round(data.lasts_seconds * SECOND_US)
            self.workers[data.worker] = worker.replace(quarantined=True, rests_until_us=until_us)
            self._end_leases()
        for key, row in self.configs.items():
            self.configs[key] = row.replace(
                shards=tuple([shard for shard in row.shards if shard.worker != data.worker])
            )

    def _released(self, data: NodeReleased) -> None:
        if worker := self.workers.get(data.worker):
            rests_until_us = worker.rests_until_us if worker.pauses else None
            self.workers[data.worker] = worker.replace(quarantined=False, rests_until_us=rests_until_us)

    def _tick(self, _: ClockTick) -> None:
        """End pauses, and give up overdue requests."""
        for name, worker in self.workers.items():
            self.workers[name] = worker.after_rest(self.now_us)
        self._end_leases()

    def _end_leases(self) -> None:
        """Give up requests whose lease ended, and failed ones.

        A request may take ``MOST_DEADLINES`` deadlines; one whose shard awaits its verdict, only ``lease_seconds``
        more. Requests of workers that are gone, and those from before a quarantine, are given up without blame.
        """
        uninspected_us = self.now_us - self.limits.lease_seconds * SECOND_US
        oldest_us = self.now_us - MOST_DEADLINES * self.settings.deadlines.selfplay_seconds * SECOND_US
        for key, row in sorted(
            self.configs.items()
        ):  # sorted, because ids depend on the order, and a restart changes it
            remaining, overdue = list[OutstandingRequest](), list[OutstandingRequest]()
            for request in row.out:
                worker = self.workers[request.worker]
                if (worker.lost and not request.ended) or (worker.quarantined and not request.probe) or request.failed:
                    continue
                if request.at_us > oldest_us and (request.ended_us is None or request.ended_us > uninspected_us):
                    remaining.append(request)
                elif not request.ended:
                    overdue.append(request)
            self.configs[key] = row.replace(out=tuple(remaining))
            for request in overdue:
                self.configs[key] = self._count_failure(self.configs[key], request.worker, "a request came to no end")

    def _emit(self, data: Payload) -> None:
        self.emissions.append(Emission(data))

    def _count_failure(self, row: ConfigRow, name: str, error: str) -> ConfigRow:
        """Count a failed request against its worker.

        Consecutive failures pause the worker. No worker is paused for a configuration that also failed at another
        worker and has brought no good shard since this worker began to fail. Otherwise an unreadable model would stop
        one worker after the other.
        """
        worker = self.workers.get(name)
        if worker is None or worker.rests_until_us is not None:
            return row
        limits, failing = self.settings.feedback.nodes, worker.after_failure(self.now_us)
        fails_elsewhere = row.failed_at not in (None, name) and row.good_us < failing.failing_us
        if failing.failures >= limits.failures and not fails_elsewhere:
            failing, degraded = failing.paused(name, error, self.now_us, limits)
            self._emit(degraded)
        self.workers[name] = failing
        # A failure at a worker that has paused says nothing about the configuration, because the worker fails anyway.
        return row if worker.pauses else row.replace(failed_at=row.failed_at or name)

    def _forget_failures(self, name: str | None) -> None:
        """Forget a worker's failures after a good shard."""
        if name and (worker := self.workers.get(name)) and worker.failures:
            if worker.pauses:
                self._emit(NodeRecovered(worker=name))
            self.workers[name] = worker.after_success().after_pause()

    def _complete(self, data: SelfplayComplete) -> ConfigRow | None:
        if request := self.row.outstanding(data.request_id):
            seconds = min(max(0.001, data.seconds or 0.0), MOST_LEASES * self.limits.lease_seconds)
            return self.row.ended(request, self.now_us).replace(seconds=seconds)
        return None

    def _failed(self, data: SelfplayFailed | QualityDegraded | InspectionFailed) -> ConfigRow | None:
        """Count a failed request against its worker, unless the inspection failed.

        The next tick repeats the request, because an immediate repeat would spin at a persistent failure.
        """
        if (request := self.row.outstanding(data.request_id)) is None:
            return None
        row = self.row.ended(request, self.now_us, failed=True)
        if isinstance(data, InspectionFailed) or data.worker is None:
            return row
        return self._count_failure(row, data.worker, data.error if isinstance(data, SelfplayFailed) else data.reason)

    def _probed(self, data: NodeProbed) -> ConfigRow | None:
        if request := self.row.outstanding(data.request_id):
            if data.score is not None:
                self._forget_failures(data.worker)
            return self.row.without(request)
        return None

    def _scored(self, data: QualityScoreUpdated) -> ConfigRow | None:
        """Count a shard's rows if they are good enough.

        Otherwise the next tick requests others. Rows of a searched model that was rolled back meanwhile are awaited in
        vain, so others are requested at once.
        """
        request = self.row.outstanding(data.request_id)
        if not is_fresh(self.state, self.settings, data.shard.model):
            return self.row.without(request) if request else None
        self._forget_failures(data.shard.worker)
        row = self.row.replace(failed_at=None, good_us=self.now_us)
        if not is_usable(self.state, self.settings, data.score):
            return row.ended(request, self.now_us, failed=True) if request else row
        shards = latest_shards(self.state, self.settings, (*row.shards, data.shard))
        rows = min(data.shard.rows, most_rows(self.state, self.settings))
        answered = row.without(request) if request else row
        return answered.replace(shards=shards, rows_per_game=rows / data.shard.games)

    def _distributed(self, _: ModelDistributed) -> ConfigRow:
        """Drop the shards that are no longer fresh, and requests under way whose rows will not be fresh."""
        fresh = tuple([shard for shard in self.row.shards if is_fresh(self.state, self.settings, shard.model)])
        replays = self.settings.config(self.key).replays
        out = tuple([other for other in self.row.out if replays or is_fresh(self.state, self.settings, other.model)])
        return self.row.replace(shards=fresh, out=out)

    def _training(self, data: TrainingRequested) -> ConfigRow:
        spent = {shard.key for shard in data.shards}
        return self.row.replace(shards=tuple([shard for shard in self.row.shards if shard.key not in spent]))

    def _blocked(self, _: TrainingBlockedByQuality) -> ConfigRow:
        return self.row.replace(shards=())

    def _rolled_back(self, _: ModelRolledBack) -> ConfigRow:
        """Drop the shards, and requests under way where rows count after their model was replaced.

        Elsewhere the distribution of the restored model voids the requests. The workers drop their requests too, but go
        on with a quarantine's probe, so probes are kept.
        """
        out = self.row.out
        if late_champions(self.settings, self.key):
            out = tuple([request for request in out if request.probe])
        return self.row.replace(shards=(), out=out)

    def _evaluation_failed(self, data: EvaluationFailed) -> ConfigRow | None:
        return self.row if data.purpose == "rating" else None

    def _state_changed(self, _: Payload) -> ConfigRow:
        """Keep the row; this event becomes the evidence of its next requests."""
        return self.row

    handlers: ClassVar[Mapping[type[Payload], Callable[["Allocation", Any], ConfigRow | None]]] = {
        AdaptiveParamsChanged: _state_changed,
        ClockTick: _tick,
        DaemonReady: _ready,
        DaemonStopped: _stopped,
        EvaluationFailed: _evaluation_failed,
        HyperparameterUpdated: _state_changed,
        InspectionFailed: _failed,
        ModelDistributed: _distributed,
        ModelRolledBack: _rolled_back,
        NodeLost: _stopped,
        NodeProbed: _probed,
        NodeQuarantined: _quarantined,
        NodeReleased: _released,
        NodeReturned: _returned,
        PromotionRejected: _state_changed,
        QualityDegraded: _failed,
        QualityPenaltyApplied: _state_changed,
        QualityScoreUpdated: _scored,
        SelfplayComplete: _complete,
        SelfplayFailed: _failed,
        TrainingBlockedByQuality: _blocked,
        TrainingFailed: _state_changed,
        TrainingIntensityChanged: _state_changed,
        TrainingRequested: _training,
        TrainingUnblocked: _state_changed,
    }


Rows = Mapping[str, SchedulerRow]


class SelfplayScheduler(Controller):
    """Owns the allocation of games to configurations and workers."""

    name: ClassVar[str] = NAME
    row: ClassVar[type[SchedulerRow]] = SchedulerRow
    emits: ClassVar[frozenset[type[Payload]]] = frozenset(
        {NodeDegraded, NodeRecovered, OpponentSampled, SelfplayRequested}
    )

    @handles(*Allocation.handlers)
    def allocate(self, rows: Rows, event: Event[Payload], states: States) -> Step[SchedulerRow]:
        """Apply an event, then assign free workers to due configurations."""
        return Allocation(self.settings, rows, event, states).step()
