"""The scheduler's rows, and a fair queue that picks the next turn from them.

Weighted fair queueing (Demers, Keshav and Shenker 1989, with the start tags of Goyal, Vin and Cheng 1996). A
configuration that wants games waits with a tag: the finish of its last turn, or shortly before virtual time if it was
away for long. The least tag goes first. Its turn finishes at tag + cost / priority. The cost is the worker time that a
request brings in all: its games, their inspection, and its share of the trainings and evaluations that follow, so that
not self-play alone is shared in proportion to priority. Priorities are bounded, so every waiting configuration's turn
comes. Virtual time is the latest start of a turn of a configuration that is not plateaued. While plateaus stay the same
it never falls, so that a waiting configuration's tag does not change.

A plateaued configuration waits until virtual time has reached its tag, even if workers are idle: its trainings and
evaluations would take processors from others. If virtual time stands still, because the others wait for something, it
gets its share of one worker by the clock.
"""

from collections import Counter
from collections.abc import Mapping
from math import ceil
from typing import Literal, Self

from flyball.app.config import SEARCH_BACKEND, RunSettings
from flyball.app.config.feedback import FeedbackSettings, SchedulerSettings
from flyball.app.controllers.needs import late_champions, most_rows, rows_needed
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.controllers.worker_health import WorkerHealth
from flyball.app.core import SECOND_US, ConfigKey, EventId, ModelHash
from flyball.app.events import Cause, Row, ShardRef

CREDIT_TURNS = 2
"""Turns at the lowest priority that a configuration may catch up after it was away."""

MOST_REQUESTS = 1000
"""Most requests of a configuration under way, because a shard may say that games bring hardly any rows."""

LARGEST_REQUEST = 1024
"""Most games that are merged into one request: as many as are searched at once (``flyball.app.play.search.TREES``)."""

MARGIN = 1.05
"""Rows asked for / rows lacking, because games vary in length, and a few rows short cost another request."""

MOST_LEASES = 2
"""Cap, in leases, on a request's measured duration and on the time between two requests."""

LEAST_RATE = 0.01
"""Lowest self-play rate that counts, because a lower one, set by an operator, would stop all games or overflow."""

NEWEST_GAP = 1 / 32
"""Least weight of the newest time between requests in their mean; small, because requests come in bursts."""


class OutstandingRequest(Row, frozen=True):
    """A request under way, until its shard is inspected or it is given up.

    Attributes:
        worker: the worker that has it.
        at_us: when it was made.
        model: the model that plays; ``None``: the request was made before models were recorded here.
        probe: its worker is in quarantine, and its rows do not count.
        ended_us: when it was played, or failed; ``None``: it occupies its worker.
        failed: it failed, and the next tick gives it up.
        games: its number of games; ``None``: the request was made before this was recorded, of the configured size.
    """

    request: EventId
    worker: str
    at_us: int
    probe: bool
    ended_us: int | None = None
    failed: bool = False
    model: ModelHash | None = None
    games: int | None = None

    @property
    def ended(self) -> bool:
        """True once the request was played or failed, and no longer occupies its worker."""
        return self.ended_us is not None


class ConfigRow(Row, frozen=True):
    """The scheduler's row of one configuration.

    Attributes:
        shards: fresh ones that are good enough and untrained, oldest first.
        out: the requests that are under way, oldest first.
        good_us: when its latest good shard was inspected.
        failed_at: the first worker at which a request failed since ``good_us``; workers that had paused do not count.
        rows_per_game: of the latest good shard; ``None`` before the first.
        requested_us: when the latest request was made.
        gap_seconds: mean time between requests without a penalty; ``None`` before the second.
        start: virtual time at the start of its last turn.
        finish: virtual time at the end of its last turn.
        seconds: worker time of the last request that was played.
        cause: the latest event that changed its demand for games. It is the evidence of the next requests, because a
            tick or another configuration's event may trigger them.
    """

    shards: tuple[ShardRef, ...] = ()
    requests: int = 0
    out: tuple[OutstandingRequest, ...] = ()
    good_us: int = 0
    failed_at: str | None = None
    rows_per_game: float | None = None
    requested_us: int = 0
    gap_seconds: float | None = None
    start: float = 0.0
    finish: float = 0.0
    seconds: float = 1.0
    cause: Cause | None = None

    def outstanding(self, request_id: EventId) -> OutstandingRequest | None:
        """Return a request, if it is under way."""
        return next((request for request in self.out if request.request == request_id), None)

    def ended(self, request: OutstandingRequest, now_us: int, *, failed: bool = False) -> "ConfigRow":
        """Free the worker of a request that was played or ``failed``; a failed one awaits the next tick."""
        ended = request.replace(failed=failed, ended_us=now_us)
        return self.replace(out=tuple([ended if other is request else other for other in self.out]))

    def without(self, request: OutstandingRequest) -> "ConfigRow":
        """Remove a request."""
        return self.replace(out=tuple([other for other in self.out if other is not request]))


class WorkerRow(WorkerHealth, frozen=True, kw_only=True):
    """One self-play worker.

    Attributes:
        asked_us: time of its latest request.
        lost: it stopped, or the broker reported it as lost.
        quarantined: it gets one request at a time, a probe, once ``rests_until_us`` is over.
    """

    asked_us: int
    lost: bool = False
    quarantined: bool = False

    def job_slots(self, per_capacity: int) -> int:
        """See ``WorkerHealth.job_slots``; 0 while the worker is lost, and at most 1 in quarantine."""
        slots = 0 if self.lost else super().job_slots(per_capacity)
        return min(1, slots) if self.quarantined else slots

    def after_pause(self) -> Self:
        """End a pause before its time, but no quarantine."""
        return self if self.quarantined else self.replace(rests_until_us=None)


class SchedulerRow(Row, frozen=True):
    """The scheduler's row of a configuration or a worker."""

    config: ConfigRow | None = None
    worker: WorkerRow | None = None


def next_turn(
    configs: Mapping[str, ConfigRow],
    workers: Mapping[str, WorkerRow],
    states: States,
    settings: RunSettings,
    now_us: int,
) -> tuple[ConfigKey, str, float] | None:
    """Return the next turn, or ``None`` if no turn is possible.

    A turn is a configuration, its worker, and the turn's virtual start.

    A configuration keeps the tag of its last finish unless it was away for long, because it cannot wait while its
    request is under way, and must not lose its share by that. Of equally busy workers the longest unasked comes first.

    A worker may hold a second short request while it plays one, which saves the moment between two requests. A long
    request does not wait at a worker: the gain is small, and its model may have been replaced before it is played.

    Configurations that lack rows come first. The others' games only fill workers that would idle.
    """
    limits = settings.feedback.scheduler
    active = [
        row.start
        for config in settings.configs
        if (row := configs.get(config.key)) and not state_of(states, config.key).plateaued
    ]
    virtual = max(active or [row.start for row in configs.values()], default=0.0)
    waiting = list[tuple[Wanted, float, ConfigKey]]()
    for config in settings.configs:
        row, state = configs.get(config.key), state_of(states, config.key)
        if row is None or (wanted := wants(row, state, settings, now_us)) is None:
            continue
        tag = max(row.finish, virtual - CREDIT_TURNS * turn_seconds(row, state) / limits.starvation_floor)
        ahead = state.plateaued and tag > virtual and bool(active)
        if not ahead or now_us - row.requested_us >= _turn_gap_us(row, state, settings):
            waiting.append((wanted, tag, config.key))
    if not waiting:
        return None
    wanted, tag, key = min(waiting)
    busy = Counter([request.worker for row in configs.values() for request in row.out if not request.ended])
    if wanted == "more" and not machine_idles(workers, states, settings):
        return None
    each = 2 if wanted == "lacking" and configs[key].seconds <= limits.waiting_seconds else 1
    free = [
        (busy[name] / worker.capacity, worker.asked_us, name)
        for name, worker in workers.items()
        if busy[name] < worker.job_slots(each)
    ]
    return (key, min(free)[-1], tag) if free else None


def machine_idles(workers: Mapping[str, WorkerRow], states: States, settings: RunSettings) -> bool:
    """Return whether more machines play than configurations are trained, judged or distributed.

    Then a machine would idle. A single machine never does: games would take cores from the training or evaluation.
    """
    machines = sum([worker.job_slots(1) > 0 for worker in workers.values()])
    return machines > sum([state_of(states, config.key).lineage.busy for config in settings.configs])


Wanted = Literal["lacking", "more"]
"""How urgently a configuration wants games; the more urgent sorts first."""


def wants(row: ConfigRow, state: FeedbackState, settings: RunSettings, now_us: int) -> Wanted | None:
    """Return how urgently a configuration wants games; ``None``: it wants none.

    A configuration is "lacking" if it is due and has too few rows for a training. While a training or its verdict is
    awaited, it wants "more", up to the most rows of a training, if rows count after their model was replaced. One
    request is made at a time until the number of rows per game is known, and while training is blocked or paused.
    """
    if state.lineage.distributed is None or len(row.out) >= MOST_REQUESTS:
        return None
    needed = None if state.training_block is not None else rows_needed(state, settings)
    wanted: Wanted = "lacking"
    if state.lineage.busy:
        if needed is None or not late_champions(settings, state.config_key):
            return None
        needed, wanted = most_rows(state, settings), "more"
    if now_us < _due_us(row, state.selfplay_rate, settings.feedback.scheduler, training=needed is not None):
        return None
    out = sum([not request.probe for request in row.out])
    if needed is None or (out and row.rows_per_game is None):
        return None if out else wanted
    fresh, promised = _rows_coming(row, settings, state.config_key)
    limits = settings.feedback
    overdue_us = (limits.trigger.cooldown_seconds + limits.scheduler.lease_seconds) * SECOND_US
    if wanted == "lacking" and fresh >= needed and now_us - row.good_us > overdue_us:
        fresh = 0  # the trigger lacks these rows, or it would have trained: perhaps their request was voided
    return wanted if min(fresh, needed) + promised < needed else None


def request_games(row: ConfigRow, slots: int, state: FeedbackState, settings: RunSettings) -> int:
    """Return the number of games of a configuration's next request.

    Usually it is the configured one. Where the workers have few job ``slots``, a search is asked for more: for a slot's
    share of a training's rows, because searches of many games at once take less time a game. After a failure it is
    asked for the usual number again, because a larger request may have exceeded its deadline.
    """
    config = settings.config(state.config_key)
    usual, needed = config.selfplay.games_per_request, rows_needed(state, settings)
    if config.backend != SEARCH_BACKEND or row.failed_at is not None:
        return usual
    if needed is None or state.training_block is not None or not row.rows_per_game:
        return usual
    rows = min(needed / max(1, slots), needed - sum(_rows_coming(row, settings, state.config_key)))
    return max(usual, min(LARGEST_REQUEST, ceil(MARGIN * rows / row.rows_per_game)))


def _rows_coming(row: ConfigRow, settings: RunSettings, key: ConfigKey) -> tuple[int, float]:
    """Return the rows that wait for a training, and the rows expected of requests under way, without probes."""
    usual = settings.config(key).selfplay.games_per_request
    games = sum([request.games or usual for request in row.out if not request.probe])
    return sum([shard.rows for shard in row.shards]), games * (row.rows_per_game or 0.0)


def _due_us(row: ConfigRow, rate: float, limits: SchedulerSettings, *, training: bool) -> int:
    """Return the earliest time of the next request.

    Only a pause or a penalty delays the request. A penalty stretches the measured mean time between requests, because
    this time depends more on the number of workers and on other configurations than on the length of a request.
    """
    if not row.requests:
        return 0
    seconds = 0.0 if training else row.seconds + limits.idle_seconds
    if rate < 1:
        seconds = max(seconds, row.seconds if row.gap_seconds is None else row.gap_seconds) / max(LEAST_RATE, rate)
    return row.requested_us + int(seconds * SECOND_US)


def gap_seconds(row: ConfigRow, rate: float, limits: SchedulerSettings, now_us: int) -> float | None:
    """Return the mean time between requests, updated by a new one.

    The mean is constant under a penalty. Each time is capped at ``MOST_LEASES`` leases, because the run may have been
    off.
    """
    if not row.requests or rate < 1:
        return row.gap_seconds
    gap, mean = min((now_us - row.requested_us) / SECOND_US, MOST_LEASES * limits.lease_seconds), row.gap_seconds or 0.0
    return mean + max(NEWEST_GAP, 1 / row.requests) * (gap - mean)


def turn_seconds(row: ConfigRow, state: FeedbackState) -> float:
    """Return the worker time that a request of a configuration brings in all, seconds: the mean so far."""
    return max(row.seconds, state.worker_time.total / max(1, row.requests))


def _turn_gap_us(row: ConfigRow, state: FeedbackState, settings: RunSettings) -> int:
    """Return the time between turns that leaves a configuration its share of one worker, microseconds."""
    share = priority(state, settings.feedback) / len(settings.configs)
    return int(turn_seconds(row, state) / share * SECOND_US)


def priority(state: FeedbackState, feedback: FeedbackSettings) -> float:
    """Return the curriculum weight, within ``starvation_floor`` and the curriculum's ``maximum``, whoever set it.

    A plateaued configuration counts with the lowest weight. It may have more, because weights average 1 and have a
    maximum: where one configuration alone learns, the others get the rest of the mean.
    """
    highest = feedback.curriculum.minimum if state.plateaued else feedback.curriculum.maximum
    return max(feedback.scheduler.starvation_floor, min(highest, state.curriculum_weight))
