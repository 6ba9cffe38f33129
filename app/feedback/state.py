"""FeedbackState: all that the controllers know of one configuration.

``None`` means not measured yet, never zero: a quality of 0 would block training for ever. Every method
returns a new state; those that depend on the time take it as an argument.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Literal, Self

from pydantic import Field

from app.core import ConfigKey, Elo, EloPerHour, ModelHash
from app.events import Intensity, Value
from app.feedback.trend import SECONDS_PER_HOUR, RatingPoint, pooled, slope_per_hour

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
        return self.model_copy(
            update={
                "parity_checks_total": total,
                "parity_failure_rate": min(1.0, (before + failures) / total),
                "parity_status": "failed" if failures else "passed",
            }
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
        return self.model_copy(
            update={
                "elo_current": elo,
                "elo_stderr": stderr,
                "elo_peak": elo if self.elo_peak is None else max(self.elo_peak, elo),
                "elo_velocity": slope and slope.velocity,
                "elo_history": history,
                "elo_trend": trend,
                "elo_plateau_count": self.elo_plateau_count + 1 if flat else 0,
                "curriculum_tier": max(0, int(elo // TIER_ELO)),
                "last_evaluation_time": now,
            }
        )

    def update_win_rate(self, win_rate: float) -> Self:
        """Take in a win rate against the random bot: trend, runs of high (> 0.7) and low (< 0.5) ones."""
        high, low = win_rate > HIGH_WIN_RATE, win_rate < LOW_WIN_RATE
        return self.model_copy(
            update={
                "win_rate": win_rate,
                "win_rate_trend": None if self.win_rate is None else win_rate - self.win_rate,
                "consecutive_high_win_rate": self.consecutive_high_win_rate + 1 if high else 0,
                "consecutive_low_win_rate": self.consecutive_low_win_rate + 1 if low else 0,
            }
        )

    def compute_urgency(self, now: datetime) -> Self:
        """Rate how much the configuration needs attention, in [0, 1]: half staleness, half plateau and low wins.

        Staleness is the time since the last evaluation over 24 hours; one never evaluated is as stale as can be.
        """
        last = self.last_evaluation_time
        stale = 1.0 if last is None else (now - last).total_seconds() / SECONDS_PER_HOUR / STALE_HOURS
        trouble = (self.elo_plateau_count + self.consecutive_low_win_rate) / HISTORY_LENGTH
        score = 0.5 * min(1.0, max(0.0, stale)) + 0.5 * min(1.0, trouble)
        return self.model_copy(update={"urgency_score": score, "last_urgency_update": now})


class FeedbackState(SignalFeedbackState, MonitoringFeedbackState):
    """One configuration's state, whole: 22 + 6 + 9 fields. Lossless as JSON."""


def state_of(states: Mapping[str, FeedbackState], key: str) -> FeedbackState:
    """Return a configuration's state; before any event about it, one in which nothing is known."""
    return states.get(key) or FeedbackState(config_key=ConfigKey(key))
