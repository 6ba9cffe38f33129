"""FeedbackState: all that the controllers know of one configuration.

``None`` means not measured yet, never zero: a quality of 0 would block training for ever. Every method
returns a new state; those that depend on the time take it as an argument.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import Field

from app.config import RunSettings
from app.controllers.trend import SECONDS_PER_HOUR, RatingPoint, later, pooled, slope_per_hour
from app.core import RANDOM, ConfigKey, Elo, EloPerHour, ModelHash
from app.events import (
    ClockTick,
    CurriculumRebalanced,
    EvaluationCompleted,
    Event,
    ExplorationBoost,
    Intensity,
    LossAnomalyDetected,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    ParityChecked,
    Payload,
    PromotionRejected,
    QualityPenaltyApplied,
    QualityScoreUpdated,
    SelfplayComplete,
    Step,
    TrainingCompleted,
    TrainingIntensityChanged,
    Value,
)

HISTORY_LENGTH = 20
HIGH_WIN_RATE = 0.7
LOW_WIN_RATE = 0.5
PLATEAU_ELO = 5.0
"""A rating that is less than this above the one before counts towards a plateau."""

STALE_HOURS = 24.0
"""After so long without an evaluation, urgency is at its highest."""

TIER_ELO = 400.0
"""Elo a curriculum tier: beating the tier below 10 to 1."""

Unit = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]
ParityStatus = Literal["unknown", "passed", "failed"]


class CanonicalFeedbackState(Value):
    """The 22 fields that every controller may read."""

    config_key: ConfigKey

    quality_score: Unit | None = None
    data_quality_score: Unit | None = None
    parity_failure_rate: Unit | None = None
    parity_checks_total: Count = 0
    parity_status: ParityStatus = "unknown"

    training_accuracy: float | None = None
    win_rate: Unit | None = None

    elo_current: Elo | None = None
    elo_stderr: Annotated[float, Field(ge=0)] | None = None
    elo_peak: Elo | None = None
    elo_velocity: EloPerHour | None = None
    elo_history: Annotated[tuple[RatingPoint, ...], Field(max_length=HISTORY_LENGTH)] = ()

    games_played: Count = 0
    consecutive_successes: Count = 0
    consecutive_failures: Count = 0
    curriculum_weight: Annotated[float, Field(gt=0)] = 1.0
    current_model: ModelHash | None = None

    last_selfplay_time: datetime | None = None
    last_training_time: datetime | None = None
    last_evaluation_time: datetime | None = None
    last_promotion_time: datetime | None = None


class SignalFeedbackState(CanonicalFeedbackState):
    """Orchestration: 6 fields."""

    training_intensity: Intensity = "normal"
    exploration_boost: Annotated[float, Field(ge=1)] = 1.0
    data_freshness_hours: Annotated[float, Field(ge=0)] | None = None
    consecutive_anomalies: Count = 0
    quality_penalties_applied: Count = 0
    last_adjustment_time: datetime | None = None


class MonitoringFeedbackState(CanonicalFeedbackState):
    """Monitoring: 9 fields and 4 methods."""

    elo_trend: float | None = None
    elo_plateau_count: Count = 0
    win_rate_trend: float | None = None
    consecutive_high_win_rate: Count = 0
    consecutive_low_win_rate: Count = 0
    urgency_score: Unit | None = None
    last_urgency_update: datetime | None = None
    last_promotion_success: bool | None = None
    curriculum_tier: Count = 0

    def update_parity(self, checked: int, failures: int) -> Self:
        """Count ``failures`` among ``checked`` > 0 replayed games; the status tells of the latest check."""
        before = (self.parity_failure_rate or 0.0) * self.parity_checks_total
        total = self.parity_checks_total + checked
        return self.replace(
            parity_checks_total=total,
            parity_failure_rate=min(1.0, (before + failures) / total),
            parity_status="failed" if failures else "passed",
        )

    def update_elo(self, elo: Elo, stderr: float, now: datetime, spacing_seconds: float = 0.0) -> Self:
        """Take in a rating: history, velocity, peak, trend since the last one, plateau count.

        Ratings within ``spacing_seconds`` are pooled, so that 20 points of history reach back far enough.
        """
        trend = None if self.elo_current is None else elo - self.elo_current
        flat = trend is not None and trend < PLATEAU_ELO
        history = pooled(self.elo_history, RatingPoint(time=now, elo=elo, stderr=stderr), spacing_seconds)
        history = history[-HISTORY_LENGTH:]
        slope = slope_per_hour(history)
        return self.replace(
            elo_current=elo,
            elo_stderr=stderr,
            elo_peak=elo if self.elo_peak is None else max(self.elo_peak, elo),
            elo_velocity=slope and slope.velocity,
            elo_history=history,
            elo_trend=trend,
            elo_plateau_count=self.elo_plateau_count + 1 if flat else 0,
            curriculum_tier=max(0, int(elo // TIER_ELO)),
            last_evaluation_time=now,
        )

    def update_win_rate(self, win_rate: float) -> Self:
        """Take in a win rate against the random bot: trend, runs of high (> 0.7) and low (< 0.5) ones."""
        high, low = win_rate > HIGH_WIN_RATE, win_rate < LOW_WIN_RATE
        return self.replace(
            win_rate=win_rate,
            win_rate_trend=None if self.win_rate is None else win_rate - self.win_rate,
            consecutive_high_win_rate=self.consecutive_high_win_rate + 1 if high else 0,
            consecutive_low_win_rate=self.consecutive_low_win_rate + 1 if low else 0,
        )

    def compute_urgency(self, now: datetime) -> Self:
        """Rate how much the configuration needs attention, in [0, 1]: half staleness, half plateau and low wins.

        Staleness is the time since the last evaluation over 24 hours; one never evaluated is as stale as can be.
        """
        last = self.last_evaluation_time
        stale = 1.0 if last is None else (now - last).total_seconds() / SECONDS_PER_HOUR / STALE_HOURS
        trouble = (self.elo_plateau_count + self.consecutive_low_win_rate) / HISTORY_LENGTH
        score = 0.5 * min(1.0, max(0.0, stale)) + 0.5 * min(1.0, trouble)
        return self.replace(urgency_score=score, last_urgency_update=now)


class FeedbackState(SignalFeedbackState, MonitoringFeedbackState):
    """One configuration's state, whole: 22 + 6 + 9 fields. Lossless as JSON."""


def state_of(states: Mapping[str, FeedbackState], key: str) -> FeedbackState:
    """Return a configuration's state; before any event about it, one in which nothing is known."""
    return states.get(key) or FeedbackState(config_key=ConfigKey(key))


SPACINGS = 18
"""Parts of the stall window that one point of the rating history stands for: 20 points cover it and a little more."""


def longest_between_sweeps(settings: RunSettings) -> timedelta:
    """Return the longest time between two sweeps of a running loop.

    Sweeps come at the first tick after each check period. After twice as long without a sweep, the run
    was off since the check period after the last one.
    """
    return timedelta(seconds=2 * (settings.feedback.stall.check_seconds + settings.tick_seconds))


@dataclass(frozen=True)
class FeedbackFold:
    """Folds every configuration's FeedbackState."""

    settings: RunSettings
    name: ClassVar[str] = "FeedbackState"
    row: ClassVar[type[FeedbackState]] = FeedbackState
    reads: ClassVar[frozenset[type[Payload]]] = frozenset(
        {
            ClockTick,
            CurriculumRebalanced,
            EvaluationCompleted,
            ExplorationBoost,
            LossAnomalyDetected,
            ModelDistributed,
            ModelPromoted,
            ModelRolledBack,
            ParityChecked,
            PromotionRejected,
            QualityPenaltyApplied,
            QualityScoreUpdated,
            SelfplayComplete,
            TrainingCompleted,
            TrainingIntensityChanged,
        }
    )
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    def step(self, rows: Mapping[str, FeedbackState], event: Event[Payload]) -> Step[FeedbackState]:
        """Fold one event."""
        data, key = event.data, event.subject
        if type(data) is ClockTick:
            return Step(self._looked_at(rows, event.recordedtime))
        if type(data) is CurriculumRebalanced:
            return Step(
                {key: state_of(rows, key).replace(curriculum_weight=weight) for key, weight in data.weights.items()}
            )
        state = state_of(rows, key)
        after = self._after(state, data, event.recordedtime)
        return Step() if after is state else Step({key: after})

    def _looked_at(self, rows: Mapping[str, FeedbackState], now: datetime) -> Mapping[str, FeedbackState]:
        """Update urgency once per check period, because it grows with time alone."""
        period = timedelta(seconds=self.settings.feedback.stall.check_seconds)
        known = [rows[config.key] for config in self.settings.configs if config.key in rows]
        due = [one for one in known if one.last_urgency_update is None or now - one.last_urgency_update >= period]
        return {one.config_key: self._resumed(one, now).compute_urgency(now) for one in due}

    def _resumed(self, state: FeedbackState, now: datetime) -> FeedbackState:
        """Move the rating history on by the time in which the run was off: nothing could be learned in it."""
        last = state.last_urgency_update
        if last is None or now - last <= longest_between_sweeps(self.settings):
            return state
        return state.replace(elo_history=later(state.elo_history, now - last))

    def _after(self, state: FeedbackState, data: Payload, now: datetime) -> FeedbackState:
        match data:
            case EvaluationCompleted(purpose=purpose):
                return self._evaluated(state, data, now) if purpose == "rating" else state
            case ParityChecked(checked=checked, failures=failures):
                return state.update_parity(checked, failures)
            case QualityScoreUpdated(score=score):
                return self._scored(state, score)
        changes = _changes(state, data, now)
        return state.replace(**changes) if changes else state

    def _evaluated(self, state: FeedbackState, data: EvaluationCompleted, now: datetime) -> FeedbackState:
        spacing = self.settings.feedback.stall.window_hours * SECONDS_PER_HOUR / SPACINGS
        rated = self._resumed(state, now).update_elo(data.elo, data.elo_stderr, now, spacing)
        against_random = next((m.score.mean for m in data.results if m.opponent == RANDOM), None)
        known = rated if against_random is None else rated.update_win_rate(against_random)
        return known.compute_urgency(now)

    def _scored(self, state: FeedbackState, score: float) -> FeedbackState:
        """``data_quality_score`` is the latest shard's, ``quality_score`` smooths them."""
        weight, before = self.settings.feedback.quality.smoothing, state.quality_score
        smoothed = score if before is None else before + weight * (score - before)
        return state.replace(data_quality_score=score, quality_score=smoothed)


def _changes(state: FeedbackState, data: Payload, now: datetime) -> dict[str, Any]:
    """Return the fields that an event sets."""
    match data:
        case SelfplayComplete(shard=shard):
            return {"games_played": state.games_played + shard.games, "last_selfplay_time": now}
        case TrainingCompleted(metrics=metrics):
            freshness = state.last_selfplay_time and (now - state.last_selfplay_time).total_seconds() / SECONDS_PER_HOUR
            accuracy = metrics.explained_variance if metrics else state.training_accuracy
            return {
                "last_training_time": now,
                "data_freshness_hours": freshness,
                "training_accuracy": accuracy,
                "consecutive_anomalies": 0,  # until what follows from this training says otherwise
            }
        case LossAnomalyDetected(consecutive=consecutive):
            return {"consecutive_anomalies": consecutive}
        case _:
            return _decided(state, data, now)


def _decided(state: FeedbackState, data: Payload, now: datetime) -> dict[str, Any]:
    """Return the fields that a decision, or the distribution that follows one, sets."""
    match data:
        case ModelPromoted():
            return {
                "consecutive_successes": state.consecutive_successes + 1,
                "consecutive_failures": 0,
                "last_promotion_time": now,
                "last_promotion_success": True,
            }
        case PromotionRejected():
            failures = state.consecutive_failures + 1
            return {"consecutive_successes": 0, "consecutive_failures": failures, "last_promotion_success": False}
        case ModelDistributed(model=model):
            return {"current_model": model}
        case ModelRolledBack(to_model=model):
            return {"current_model": model, "elo_history": (), "elo_velocity": None, "last_adjustment_time": now}
        case ExplorationBoost(multiplier=multiplier):
            return {"exploration_boost": multiplier, "last_adjustment_time": now}
        case QualityPenaltyApplied(rate_multiplier=rate):
            penalties = state.quality_penalties_applied + (rate < 1)
            return {"quality_penalties_applied": penalties, "last_adjustment_time": now}
        case TrainingIntensityChanged(intensity=intensity):
            return {"training_intensity": intensity, "last_adjustment_time": now}
    return {}
