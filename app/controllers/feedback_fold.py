"""Fold of every configuration's FeedbackState from events."""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, ClassVar

from flyball.app.config import PARAMETERS, Parameter, RunSettings
from flyball.app.controllers.knobs import bounded, is_turned
from flyball.app.controllers.state import FeedbackState, States, state_of
from flyball.app.controllers.trend import later
from flyball.app.core import RANDOM, SECONDS_PER_HOUR, is_observer
from flyball.app.events import (
    AdaptiveParamsChanged,
    ClockTick,
    CurriculumRebalanced,
    EloUpdated,
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    ExplorationBoost,
    HandlerReducer,
    HyperparameterUpdated,
    LossAnomalyDetected,
    MatchmakingUpdated,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    ParityChecked,
    Payload,
    PlateauDetected,
    PromotionRejected,
    QualityPenaltyApplied,
    QualityScoreUpdated,
    RunConfigured,
    SelfplayComplete,
    Step,
    TrainingBlockedByQuality,
    TrainingCompleted,
    TrainingFailed,
    TrainingIntensityChanged,
    TrainingRequested,
    TrainingUnblocked,
    handles,
)
from flyball.app.events.envelope import EPOCH

WHOLE: frozenset[Parameter] = frozenset({"epochs", "games_per_iteration"})
"""Parameters that are whole numbers."""


def longest_between_sweeps(settings: RunSettings) -> timedelta:
    """Return the longest time between two sweeps of a running loop.

    A sweep checks all configurations, at the first tick after each check period. The result is twice that time: a
    longer gap means that the run was off.
    """
    return timedelta(seconds=2 * (settings.feedback.stall.check_seconds + settings.tick_seconds))


@dataclass(frozen=True)
class FeedbackFold(HandlerReducer):
    """Folds every configuration's FeedbackState: a handler for each event type, and no emissions."""

    settings: RunSettings
    name: ClassVar[str] = "FeedbackState"
    row: ClassVar[type[FeedbackState]] = FeedbackState
    emits: ClassVar[frozenset[type[Payload]]] = frozenset()

    @handles(RunConfigured)
    def run_configured(self, rows: States, event: Event[RunConfigured]) -> Step[FeedbackState]:
        """Keep decided parameters within the bounds that the run's settings set now."""
        return Step({key: self._bounded(state) for key, state in rows.items() if key in self.settings})

    @handles(ClockTick)
    def ticked(self, rows: States, event: Event[ClockTick]) -> Step[FeedbackState]:
        """Update urgency once per check period, because it grows with time alone."""
        now, period = event.recordedtime, timedelta(seconds=self.settings.feedback.stall.check_seconds)
        states = [rows[config.key] for config in self.settings.configs if config.key in rows]
        due = [
            state for state in states if state.last_urgency_update is None or now - state.last_urgency_update >= period
        ]
        return Step({state.config_key: self._resumed(state, now).compute_urgency(now) for state in due})

    @handles(CurriculumRebalanced)
    def rebalanced(self, rows: States, event: Event[CurriculumRebalanced]) -> Step[FeedbackState]:
        """Set the weights of all configurations, and which of them are plateaued. One that wakes has no stalls."""
        changed, data = dict[str, FeedbackState | None](), event.data
        for key, weight in data.weights.items():
            state, done = state_of(rows, key), key in data.plateaued
            stalls = 0 if state.plateaued and not done else state.stalls
            changed[key] = state.replace(curriculum_weight=weight, plateaued=done, stalls=stalls)
        return Step(changed)

    @handles(PlateauDetected)
    def stalled(self, rows: States, event: Event[PlateauDetected]) -> Step[FeedbackState]:
        """Count a stall."""
        return _changed(rows, event, stalls=state_of(rows, event.subject).stalls + 1)

    @handles(EvaluationCompleted)
    def evaluated(self, rows: States, event: Event[EvaluationCompleted]) -> Step[FeedbackState]:
        """Take in a rating evaluation.

        The rating, the win rate against the random bot and the urgency are updated. A model that an operator or a
        rollback made current says nothing about training, so that its rating only becomes the current one. A loop
        elsewhere may promote its models before it rates them, so that each rating of an observer counts. It is taken to
        work all the time, because its worker time is unknown.
        """
        data, now = event.data, event.recordedtime
        state = state_of(rows, event.subject).with_worker_time(evaluation=data.seconds)
        if data.purpose != "rating":
            return Step({event.subject: state})
        state = self._resumed(state, now)
        observed = is_observer(event.source)
        if not (state.lineage.is_trial(data.model) or observed):
            state = state.replace(elo_current=data.elo, elo_stderr=data.elo_stderr, last_evaluation_time=now)
            return Step({event.subject: state.compute_urgency(now)})
        spent = (now - EPOCH).total_seconds() if observed else None
        stall = self.settings.feedback.stall
        state = state.update_elo(data.elo, data.elo_stderr, now, stall, data.model, spent=spent)
        against_random = next((match.score.mean for match in data.results if match.opponent == RANDOM), None)
        if against_random is not None:
            state = state.update_win_rate(against_random)
        return Step({event.subject: state.compute_urgency(now)})

    @handles(ParityChecked)
    def parity_checked(self, rows: States, event: Event[ParityChecked]) -> Step[FeedbackState]:
        """Count replayed games and those that differ."""
        state = state_of(rows, event.subject)
        return Step({event.subject: state.update_parity(event.data.checked, event.data.failures)})

    @handles(QualityScoreUpdated)
    def scored(self, rows: States, event: Event[QualityScoreUpdated]) -> Step[FeedbackState]:
        """Take in a shard's quality; ``quality_score`` smooths the scores of successive shards."""
        score, state = event.data.score, state_of(rows, event.subject).with_worker_time(inspection=event.data.seconds)
        weight, before = self.settings.feedback.quality.smoothing, state.quality_score
        smoothed = score if before is None else before + weight * (score - before)
        return Step({event.subject: state.replace(data_quality_score=score, quality_score=smoothed)})

    @handles(SelfplayComplete)
    def played(self, rows: States, event: Event[SelfplayComplete]) -> Step[FeedbackState]:
        """Count the games of a shard."""
        state = state_of(rows, event.subject).with_worker_time(selfplay=event.data.seconds)
        games = state.games_played + event.data.shard.games
        return Step({event.subject: state.replace(games_played=games, last_selfplay_time=event.recordedtime)})

    @handles(TrainingCompleted)
    def trained(self, rows: States, event: Event[TrainingCompleted]) -> Step[FeedbackState]:
        """Record a training: the age of its data and the critic's accuracy."""
        data, now, metrics = event.data, event.recordedtime, event.data.metrics or {}
        seconds = metrics.get("seconds") if data.seconds is None else data.seconds  # recorded before they were measured
        state = state_of(rows, event.subject).with_worker_time(training=seconds)
        played = state.last_selfplay_time
        state = state.replace(
            last_training_time=now,
            data_freshness_hours=played and (now - played).total_seconds() / SECONDS_PER_HOUR,
            training_accuracy=metrics.get("explained_variance") if metrics else state.training_accuracy,
            consecutive_anomalies=0,  # until a LossAnomalyDetected of this training sets it
            lineage=state.lineage.after(event),
        )
        return Step({event.subject: state})

    @handles(TrainingRequested, TrainingFailed, EvaluationFailed, ModelDistributed, EloUpdated)
    def models_changed(self, rows: States, event: Event[Any]) -> Step[FeedbackState]:
        """Update the lineage."""
        return _changed(rows, event, lineage=state_of(rows, event.subject).lineage.after(event))

    @handles(LossAnomalyDetected)
    def loss_was_unusual(self, rows: States, event: Event[LossAnomalyDetected]) -> Step[FeedbackState]:
        """Count consecutive trainings with an anomaly."""
        return _changed(rows, event, consecutive_anomalies=event.data.consecutive)

    @handles(ModelPromoted)
    def promoted(self, rows: States, event: Event[ModelPromoted]) -> Step[FeedbackState]:
        """Make a model current, and count consecutive promotions of candidates."""
        state = state_of(rows, event.subject)
        if not state.lineage.changes_current(event.data):
            return Step()
        counted: dict[str, Any] = {
            "consecutive_successes": state.consecutive_successes + 1,
            "consecutive_failures": 0,
            "last_promotion_success": True,
        }
        return _changed(
            rows,
            event,
            lineage=state.lineage.after(event),
            current_model=event.data.model,
            last_promotion_time=event.recordedtime,
            **(counted if state.lineage.is_trial(event.data.model) or is_observer(event.source) else {}),
        )

    @handles(PromotionRejected)
    def rejected(self, rows: States, event: Event[PromotionRejected]) -> Step[FeedbackState]:
        """Count consecutive rejections."""
        state = state_of(rows, event.subject)
        return _changed(
            rows,
            event,
            lineage=state.lineage.after(event),
            consecutive_successes=0,
            consecutive_failures=state.consecutive_failures + 1,
            last_promotion_success=False,
        )

    @handles(ModelRolledBack)
    def rolled_back(self, rows: States, event: Event[ModelRolledBack]) -> Step[FeedbackState]:
        """Restore a model, and drop the ratings that the rollback undoes."""
        state = state_of(rows, event.subject)
        if not state.lineage.changes_current(event.data):
            return Step()
        lineage = state.lineage.after(event)
        removed = {champion.model for champion in state.lineage.champions} - {
            champion.model for champion in lineage.champions
        }
        state = state.without(removed, self.settings.feedback.stall).replace(
            lineage=lineage, current_model=event.data.to_model, last_adjustment_time=event.recordedtime
        )
        return Step({event.subject: state})

    @handles(ExplorationBoost)
    def boosted(self, rows: States, event: Event[ExplorationBoost]) -> Step[FeedbackState]:
        """Set the exploration boost; one that falls ends the stalls."""
        state, multiplier = state_of(rows, event.subject), event.data.multiplier
        falls = multiplier < state.exploration_boost and not state.plateaued
        return _changed(
            rows,
            event,
            stalls=0 if falls else state.stalls,
            exploration_boost=multiplier,
            boost_lasts_seconds=event.data.lasts_seconds,
            boost_set_by=event.cause,
            last_adjustment_time=event.recordedtime,
        )

    @handles(QualityPenaltyApplied)
    def penalised(self, rows: States, event: Event[QualityPenaltyApplied]) -> Step[FeedbackState]:
        """Set the rate of self-play; rate 1 ends a penalty, and only rates below 1 are counted."""
        rate = event.data.rate_multiplier
        penalties = state_of(rows, event.subject).quality_penalties_applied + (rate < 1)
        return _changed(
            rows,
            event,
            selfplay_rate=rate,
            quality_penalties_applied=penalties,
            last_adjustment_time=event.recordedtime,
        )

    @handles(TrainingIntensityChanged)
    def intensity_changed(self, rows: States, event: Event[TrainingIntensityChanged]) -> Step[FeedbackState]:
        """Set the training intensity."""
        return _changed(rows, event, training_intensity=event.data.intensity, last_adjustment_time=event.recordedtime)

    @handles(TrainingBlockedByQuality)
    def blocked(self, rows: States, event: Event[TrainingBlockedByQuality]) -> Step[FeedbackState]:
        """Block training."""
        return _changed(rows, event, training_block=event.data.reason, last_adjustment_time=event.recordedtime)

    @handles(TrainingUnblocked)
    def unblocked(self, rows: States, event: Event[TrainingUnblocked]) -> Step[FeedbackState]:
        """Lift the block of training."""
        return _changed(rows, event, training_block=None, last_adjustment_time=event.recordedtime)

    @handles(AdaptiveParamsChanged)
    def params_changed(self, rows: States, event: Event[AdaptiveParamsChanged]) -> Step[FeedbackState]:
        """Set the parameters of coming trainings."""
        data = event.data
        return self._set(
            rows,
            event,
            learning_rate=data.learning_rate,
            epochs=data.epochs,
            games_per_iteration=data.games_per_iteration,
        )

    @handles(HyperparameterUpdated)
    def parameter_set(self, rows: States, event: Event[HyperparameterUpdated]) -> Step[FeedbackState]:
        """Set a parameter."""
        value: float = int(event.data.value) if event.data.parameter in WHOLE else event.data.value
        return self._set(rows, event, **{event.data.parameter: value})

    @handles(MatchmakingUpdated)
    def matched(self, rows: States, event: Event[MatchmakingUpdated]) -> Step[FeedbackState]:
        """Set the current model's opponents."""
        return _changed(rows, event, matchmaking=event.data)

    def _set(self, rows: States, event: Event[Any], **parameters: Any) -> Step[FeedbackState]:
        """Set parameters, within their bounds."""
        state = state_of(rows, event.subject).replace(**parameters, last_adjustment_time=event.recordedtime)
        return Step({event.subject: self._bounded(state)})

    def _bounded(self, state: FeedbackState) -> FeedbackState:
        """Return the state with parameters within their bounds.

        Parameters that decisions do not change stay as configured.
        """
        settings, key = self.settings, state.config_key
        changes = {
            name: type(value)(bounded(name, value, settings, key)) if is_turned(name, settings, key) else None
            for name in PARAMETERS
            if (value := getattr(state, name)) is not None
        }
        return state.replace(**changes) if changes else state

    def _resumed(self, state: FeedbackState, now: datetime) -> FeedbackState:
        """Shift the pools of ratings past the time without a run. Nothing was learned while the run was off."""
        last = state.last_urgency_update
        if last is None or now - last <= longest_between_sweeps(self.settings):
            return state
        return state.replace(elo_pools=later(state.elo_pools, now - last))


def _changed(rows: States, event: Event[Any], **changes: Any) -> Step[FeedbackState]:
    """Return the step that sets fields of a configuration's state. The configuration is that of the event."""
    return Step({event.subject: state_of(rows, event.subject).replace(**changes)})
