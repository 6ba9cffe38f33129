"""FeedbackState folded from events: one reducer, the same in every host."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from app.config import RunSettings
from app.core import RANDOM
from app.events import (
    ClockTick,
    CurriculumRebalanced,
    EvaluationCompleted,
    Event,
    ExplorationBoost,
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
)
from app.feedback.state import FeedbackState, state_of
from app.feedback.trend import SECONDS_PER_HOUR, later

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
                {
                    key: state_of(rows, key).model_copy(update={"curriculum_weight": weight})
                    for key, weight in data.weights.items()
                }
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
        return state.model_copy(update={"elo_history": later(state.elo_history, now - last)})

    def _after(self, state: FeedbackState, data: Payload, now: datetime) -> FeedbackState:
        match data:
            case EvaluationCompleted(purpose=purpose):
                return self._evaluated(state, data, now) if purpose == "rating" else state
            case ParityChecked(checked=checked, failures=failures):
                return state.update_parity(checked, failures)
            case QualityScoreUpdated(score=score):
                return self._scored(state, score)
        changes = _changes(state, data, now)
        return state.model_copy(update=changes) if changes else state

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
        return state.model_copy(update={"data_quality_score": score, "quality_score": smoothed})


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
