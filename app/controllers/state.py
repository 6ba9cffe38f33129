"""FeedbackState: a configuration's signals, parameters and lineage, folded from events.

Controllers read this state instead of keeping parts of it in their rows. ``None`` means not measured or not decided. It
never stands for zero, because a quality of 0 would block training for ever. Every method returns a new
state; those that depend on the time take it as an argument.
"""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from itertools import pairwise
from statistics import median
from typing import Annotated, Literal, Self

from msgspec import Meta

from flyball.app.config import Parameter, RunSettings
from flyball.app.config.feedback import StallSettings
from flyball.app.controllers.knobs import configured
from flyball.app.controllers.lineage import REMEMBERED, Lineage
from flyball.app.controllers.trend import RatingPoint, RatingPool, connected, pooled, present_slope
from flyball.app.core import SECONDS_PER_HOUR, ConfigKey, Elo, EloPerHour, ModelHash
from flyball.app.events import (
    Cause,
    Intensity,
    MatchmakingUpdated,
    Row,
)

HISTORY_LENGTH = 20
LONGEST_JOB_SECONDS = 86_400.0
"""Most worker time that one job counts for."""

SPACINGS = 18
"""Pools of ratings in a stall window."""

HIGH_WIN_RATE = 0.7
LOW_WIN_RATE = 0.5
PLATEAU_ELO = 5.0
"""Gain over the previous rating, in Elo, below which a rating counts towards a plateau."""

STALE_HOURS = 24.0
"""Hours of the run's own time without an evaluation at which the staleness part of urgency is highest."""

TIER_ELO = 400.0
"""Elo per curriculum tier; a model beats one a tier below it 10 to 1."""

Unit = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
ParityStatus = Literal["unknown", "passed", "failed"]


class WorkerTime(Row, frozen=True):
    """Seconds that workers have spent on a configuration, by kind of job; failed jobs are not counted."""

    selfplay: float = 0.0
    inspection: float = 0.0
    training: float = 0.0
    evaluation: float = 0.0

    @property
    def total(self) -> float:
        """The sum over all kinds."""
        return self.selfplay + self.inspection + self.training + self.evaluation

    def less(self, earlier: "WorkerTime") -> "WorkerTime":
        """Return the time spent since an earlier moment."""
        return WorkerTime(
            selfplay=self.selfplay - earlier.selfplay,
            inspection=self.inspection - earlier.inspection,
            training=self.training - earlier.training,
            evaluation=self.evaluation - earlier.evaluation,
        )


class FeedbackState(Row, frozen=True):
    """One configuration's state. Lossless as JSON."""

    #: The configuration that the state describes.
    config_key: ConfigKey

    # Canonical: 22 fields, config_key included.
    #: Moving average of the shards' quality; set together with ``data_quality_score``.
    quality_score: Unit | None = None
    #: Quality of the latest shard.
    data_quality_score: Unit | None = None
    #: Share of replayed games that differ from the rules; set once a game was replayed.
    parity_failure_rate: Unit | None = None
    #: Number of replayed games.
    parity_checks_total: Count = 0
    #: Result of the latest check; "unknown" until a game was replayed.
    parity_status: ParityStatus = "unknown"
    #: Explained variance of the critic in the latest training that measured it.
    training_accuracy: float | None = None
    #: Mean score of the latest trained model against the random bot.
    win_rate: Unit | None = None
    #: Latest rating, of any model; set together with ``elo_stderr`` and ``last_evaluation_time``.
    elo_current: Elo | None = None
    #: Standard error of ``elo_current``, above 0.
    elo_stderr: float | None = None
    #: Highest rating of a trained model: no rating in ``elo_history`` is above it.
    elo_peak: Elo | None = None
    #: Present slope of ``elo_pools``; set only with at least three of them.
    elo_velocity: EloPerHour | None = None
    #: Latest ratings of trained models, in order of time.
    elo_history: Annotated[tuple[RatingPoint, ...], Meta(max_length=HISTORY_LENGTH)] = ()
    #: Number of self-play games; above 0 once ``last_selfplay_time`` is set.
    games_played: Count = 0
    #: Candidates promoted since the latest rejection.
    consecutive_successes: Count = 0
    #: Candidates rejected since the latest promotion; 0 if ``consecutive_successes`` is not.
    consecutive_failures: Count = 0
    #: Share of worker time relative to other configurations, above 0.
    curriculum_weight: float = 1.0
    #: The model of the last champion in ``lineage``.
    current_model: ModelHash | None = None
    last_selfplay_time: datetime | None = None
    last_training_time: datetime | None = None
    last_evaluation_time: datetime | None = None
    #: Time of the latest promotion; there is a current model since.
    last_promotion_time: datetime | None = None

    # Signals to the orchestration: 6 fields.
    training_intensity: Intensity = "normal"
    #: Factor on the sampling temperature; 1 until ``boost_set_by`` is set.
    exploration_boost: Annotated[float, Meta(ge=1)] = 1.0
    #: Time from the latest self-play to the latest training, not negative; set only if there were both.
    data_freshness_hours: float | None = None
    #: Trainings with a loss anomaly since the latest one without.
    consecutive_anomalies: Count = 0
    #: Number of penalties; above 0 if ``selfplay_rate`` is below 1.
    quality_penalties_applied: Count = 0
    #: Time of the latest change of a knob, or rollback.
    last_adjustment_time: datetime | None = None

    # Monitoring: 9 fields.
    #: Gain of the latest rating over the one before.
    elo_trend: float | None = None
    #: Consecutive gains below ``PLATEAU_ELO``; 0 if ``elo_trend`` is not below.
    elo_plateau_count: Count = 0
    #: Gain of ``win_rate`` over the one before.
    win_rate_trend: float | None = None
    #: Consecutive win rates above ``HIGH_WIN_RATE``; 0 if ``win_rate`` is not above.
    consecutive_high_win_rate: Count = 0
    #: Consecutive win rates below ``LOW_WIN_RATE``; 0 if ``win_rate`` is not below.
    consecutive_low_win_rate: Count = 0
    #: Urgency of an evaluation; set together with ``last_urgency_update``.
    urgency_score: Unit | None = None
    last_urgency_update: datetime | None = None
    #: Whether the latest verdict on a candidate was a promotion; ``None`` before the first verdict.
    last_promotion_success: bool | None = None
    #: Rating of the latest trained model in steps of ``TIER_ELO``.
    curriculum_tier: Count = 0

    # Knobs, beside training_intensity, exploration_boost and curriculum_weight. None: as configured, or not set.
    #: Why training is blocked.
    training_block: str | None = None
    #: Factor on the rate of self-play, in (0, 1].
    selfplay_rate: float = 1.0
    #: Duration of the latest boost; 0 until ``boost_set_by`` is set.
    boost_lasts_seconds: float = 0.0
    #: The event of the latest boost.
    boost_set_by: Cause | None = None
    #: The parameters are above 0, but the quality threshold may be 0.
    learning_rate: float | None = None
    epochs: int | None = None
    games_per_iteration: int | None = None
    quality_threshold: float | None = None
    base_temperature: float | None = None
    #: Opponents of the current model.
    matchmaking: MatchmakingUpdated | None = None

    #: Champions, candidate and distributed model; champions differ, and the candidate is not the current model.
    lineage: Lineage = Lineage()

    #: Ratings pooled over time, in order, of which gain, velocity and stall are computed: 20 ratings may take minutes.
    elo_pools: Annotated[tuple[RatingPool, ...], Meta(max_length=HISTORY_LENGTH)] = ()

    #: Standard error of ``elo_velocity``; set together with it, as are the next two.
    elo_velocity_stderr: float | None = None
    #: The same per second of worker time, Elo.
    elo_gain: float | None = None
    #: Standard error of ``elo_gain``.
    elo_gain_stderr: float | None = None
    #: Worker time spent so far.
    worker_time: WorkerTime = WorkerTime()
    #: Factor on the hours of the rules: the duration of the stall window in this run, as a share of the longest.
    time_scale: Annotated[float, Meta(gt=0, le=1)] = 1.0
    #: Stalls since the latest sign of improvement.
    stalls: Count = 0
    #: Its gain is done: it plays at the lowest weight until it improves again.
    plateaued: bool = False

    def validate(self) -> None:
        """Assert the invariants that stand beside the fields. Tests call it after every event."""
        self.from_json(self.to_json())  # ranges of types
        assert (self.quality_score is None) == (self.data_quality_score is None)
        assert (
            (self.parity_failure_rate is None) == (self.parity_checks_total == 0) == (self.parity_status == "unknown")
        )
        assert (self.elo_current is None) == (self.elo_stderr is None) == (self.last_evaluation_time is None)
        assert self.elo_stderr is None or self.elo_stderr > 0
        assert all(self.elo_peak is not None and point.elo <= self.elo_peak for point in self.elo_history)
        assert self.elo_peak is None or self.elo_current is not None
        assert self.elo_velocity is None or len(self.elo_pools) >= 3
        gains = (self.elo_velocity, self.elo_velocity_stderr, self.elo_gain, self.elo_gain_stderr)
        assert len({value is None for value in gains}) == 1
        assert all(earlier.spent <= later.spent for earlier, later in pairwise(self.elo_pools))
        spent = self.worker_time
        assert min(spent.selfplay, spent.inspection, spent.training, spent.evaluation) >= 0
        assert all(earlier.time <= later.time for earlier, later in pairwise(self.elo_history))
        assert all(earlier.time <= later.time for earlier, later in pairwise(self.elo_pools))
        assert (self.elo_plateau_count > 0) == (self.elo_trend is not None and self.elo_trend < PLATEAU_ELO)
        assert (self.consecutive_high_win_rate > 0) == (self.win_rate is not None and self.win_rate > HIGH_WIN_RATE)
        assert (self.consecutive_low_win_rate > 0) == (self.win_rate is not None and self.win_rate < LOW_WIN_RATE)
        assert self.win_rate_trend is None or self.win_rate is not None
        assert (self.games_played > 0) == (self.last_selfplay_time is not None)
        assert (self.consecutive_successes > 0) == (self.last_promotion_success is True)
        assert (self.consecutive_failures > 0) == (self.last_promotion_success is False)
        assert self.current_model == self.lineage.current_model
        assert self.last_promotion_time is None or self.current_model is not None
        assert self.data_freshness_hours is None or self.data_freshness_hours >= 0
        assert self.data_freshness_hours is None or None not in (self.last_selfplay_time, self.last_training_time)
        assert (self.urgency_score is None) == (self.last_urgency_update is None)
        assert self.curriculum_weight > 0
        assert 0 < self.selfplay_rate <= 1
        assert self.selfplay_rate == 1 or self.quality_penalties_applied > 0
        assert self.boost_set_by is not None or (self.exploration_boost, self.boost_lasts_seconds) == (1.0, 0.0)
        parameters = (self.learning_rate, self.epochs, self.games_per_iteration, self.base_temperature)
        assert all(value is None or value > 0 for value in parameters)
        assert self.quality_threshold is None or self.quality_threshold >= 0
        models = [champion.model for champion in self.lineage.champions]
        assert len(models) == len({*models}) <= REMEMBERED
        assert self.lineage.candidate is None or self.lineage.candidate != self.current_model

    def parameter(self, name: Parameter, settings: RunSettings) -> float:
        """Return the value of a parameter: as decided, otherwise as configured."""
        decided: float | None = getattr(self, name)
        return configured(name, settings, self.config_key) if decided is None else decided

    def rating_expected(self, number: int) -> datetime | None:
        """Return when so many more ratings will probably have come; ``None`` before the second rating.

        Their median distance counts, because the run may have been off during one of them.
        """
        if len(self.elo_history) < 2:
            return None
        seconds = median((later.time - earlier.time).total_seconds() for earlier, later in pairwise(self.elo_history))
        try:
            return self.elo_history[-1].time + timedelta(seconds=number * seconds)
        except OverflowError:  # as good as never
            return None

    def update_parity(self, checked: int, failures: int) -> Self:
        """Count replayed games, and those that differ from the rules.

        ``failures`` of ``checked`` > 0 games differ. The status is that of this check.
        """
        before = (self.parity_failure_rate or 0.0) * self.parity_checks_total
        total = self.parity_checks_total + checked
        return self.replace(
            parity_checks_total=total,
            parity_failure_rate=min(1.0, (before + failures) / total),
            parity_status="failed" if failures else "passed",
        )

    def with_worker_time(self, **seconds: float | None) -> Self:
        """Add seconds of workers, by kind of job; ``None``: not measured.

        A job counts for a day at most, because a machine that sleeps meanwhile would report its sleep, too.
        """
        sums = {
            kind: getattr(self.worker_time, kind) + min(max(0.0, spent or 0.0), LONGEST_JOB_SECONDS)
            for kind, spent in seconds.items()
        }
        return self.replace(worker_time=self.worker_time.replace(**sums))

    def update_elo(
        self,
        elo: Elo,
        stderr: float,
        now: datetime,
        stall: StallSettings,
        model: ModelHash | None = None,
        *,
        spent: float | None = None,
    ) -> Self:
        """Add a trained model's rating to the history.

        Gain, velocity, peak, trend, plateau count and time scale are updated. The gain starts again after an operator's
        model. ``spent``: seconds spent until now; ``None``: the worker time.
        """
        lineage, spent = self.lineage, self.worker_time.total if spent is None else spent
        base, root = lineage.current_model, lineage.root
        new = RatingPoint(time=now, elo=elo, stderr=stderr, model=model, base=base, root=root, spent=spent)
        before = self.elo_history[-1] if self.elo_history and new.follows(self.elo_history[-1]) else None
        history = (*self.elo_history, new)[-HISTORY_LENGTH:]
        scale = stall.time_scale([(b.time - a.time).total_seconds() for a, b in pairwise(history)])
        pools = pooled(self.elo_pools if before else (), new, spacing_seconds(stall, scale))[-HISTORY_LENGTH:]
        trend = None if before is None else elo - before.elo
        flat = trend is not None and trend < PLATEAU_ELO
        return self._with_pools(pools, stall.confidence).replace(
            elo_current=elo,
            elo_stderr=stderr,
            elo_peak=elo if self.elo_peak is None else max(self.elo_peak, elo),
            elo_history=history,
            time_scale=scale,
            elo_trend=trend,
            elo_plateau_count=self.elo_plateau_count + 1 if flat else 0,
            curriculum_tier=max(0, int(elo // TIER_ELO)),
            last_evaluation_time=now,
        )

    def _with_pools(self, pools: tuple[RatingPool, ...], confidence: float) -> Self:
        """Set the pools of ratings, and gain and velocity with them."""
        slope = present_slope(pools, confidence)
        return self.replace(
            elo_pools=pools,
            elo_velocity=slope and slope.velocity,
            elo_velocity_stderr=slope and slope.stderr,
            elo_gain=slope and slope.gain,
            elo_gain_stderr=slope and slope.gain_stderr,
        )

    def without(self, removed: Collection[ModelHash], stall: StallSettings) -> Self:
        """Drop the ratings of removed champions, and of models trained from them.

        Gain and velocity are those of the ratings before them.
        """
        history = tuple(point for point in self.elo_history if not {point.model, point.base} & {*removed})
        dropped = [point.time for point in self.elo_history if point not in history]
        pools = tuple(pool for pool in self.elo_pools if not dropped or pool.last < dropped[0])
        if not pools:  # they began at a removed model
            for point in connected(history):
                pools = pooled(pools, point, spacing_seconds(stall, self.time_scale))
        return self._with_pools(pools, stall.confidence).replace(elo_history=history)

    def update_win_rate(self, win_rate: float) -> Self:
        """Set the win rate against the random bot, and count consecutive high (> 0.7) and low (< 0.5) rates."""
        high, low = win_rate > HIGH_WIN_RATE, win_rate < LOW_WIN_RATE
        return self.replace(
            win_rate=win_rate,
            win_rate_trend=None if self.win_rate is None else win_rate - self.win_rate,
            consecutive_high_win_rate=self.consecutive_high_win_rate + 1 if high else 0,
            consecutive_low_win_rate=self.consecutive_low_win_rate + 1 if low else 0,
        )

    def compute_urgency(self, now: datetime) -> Self:
        """Set the urgency, in [0, 1].

        Half of it is staleness, half plateaus and low win rates. Staleness is the time since the last evaluation
        divided by 24 hours of the run's own time, at most 1; without an evaluation it is 1.
        """
        last, stale_hours = self.last_evaluation_time, STALE_HOURS * self.time_scale
        stale = 1.0 if last is None else (now - last).total_seconds() / SECONDS_PER_HOUR / stale_hours
        trouble = (self.elo_plateau_count + self.consecutive_low_win_rate) / HISTORY_LENGTH
        score = 0.5 * min(1.0, max(0.0, stale)) + 0.5 * min(1.0, trouble)
        return self.replace(urgency_score=score, last_urgency_update=now)


def spacing_seconds(stall: StallSettings, time_scale: float) -> float:
    """Return the time whose ratings are pooled: 20 pools then cover a little more than a window."""
    return stall.window_hours * time_scale * SECONDS_PER_HOUR / SPACINGS


States = Mapping[str, FeedbackState]


def state_of(states: States, key: str) -> FeedbackState:
    """Return a configuration's state, which is empty before any event about the configuration."""
    return states.get(key) or FeedbackState(config_key=ConfigKey(key))
