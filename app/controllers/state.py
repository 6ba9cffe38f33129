"""FeedbackState: a configuration's signals, parameters and lineage, folded from events.

Controllers read this state instead of keeping parts of it in their rows. ``None`` means not measured or not decided. It
never stands for zero, because a quality of 0 would block training for ever. Every method returns a new
state; those that depend on the time take it as an argument.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Annotated, Any, ClassVar, Literal, Self

from msgspec import Meta

from app.config import PARAMETERS, Parameter, RunSettings
from app.controllers.knobs import bounded, configured, is_turned
from app.controllers.lineage import Lineage
from app.controllers.trend import SECONDS_PER_HOUR, RatingPoint, RatingPool, connected, later, pooled, slope_per_hour
from app.core import RANDOM, ConfigKey, Elo, EloPerHour, ModelHash
from app.events import (
    AdaptiveParamsChanged,
    Cause,
    ClockTick,
    CurriculumRebalanced,
    EloUpdated,
    EvaluationCompleted,
    EvaluationFailed,
    Event,
    ExplorationBoost,
    HandlerReducer,
    HyperparameterUpdated,
    Intensity,
    LossAnomalyDetected,
    MatchmakingUpdated,
    ModelDistributed,
    ModelPromoted,
    ModelRolledBack,
    ParityChecked,
    Payload,
    PromotionRejected,
    QualityPenaltyApplied,
    QualityScoreUpdated,
    Row,
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

HISTORY_LENGTH = 20
HIGH_WIN_RATE = 0.7
LOW_WIN_RATE = 0.5
PLATEAU_ELO = 5.0
"""Gain over the previous rating, in Elo, below which a rating counts towards a plateau."""

STALE_HOURS = 24.0
"""Hours without an evaluation at which the staleness part of urgency is highest."""

TIER_ELO = 400.0
"""Elo per curriculum tier; a model beats one a tier below it 10 to 1."""

SPACINGS = 18
"""Pools of ratings per stall window, so that the 20 pools kept cover a little more than the window."""

Unit = Annotated[float, Meta(ge=0, le=1)]
Count = Annotated[int, Meta(ge=0)]
ParityStatus = Literal["unknown", "passed", "failed"]


class FeedbackState(Row, frozen=True):
    """One configuration's state. Lossless as JSON."""

    config_key: ConfigKey

    # Canonical: 22 fields, config_key included.
    quality_score: Unit | None = None
    data_quality_score: Unit | None = None
    parity_failure_rate: Unit | None = None
    parity_checks_total: Count = 0
    parity_status: ParityStatus = "unknown"
    training_accuracy: float | None = None
    win_rate: Unit | None = None
    elo_current: Elo | None = None
    elo_stderr: float | None = None
    elo_peak: Elo | None = None
    elo_velocity: EloPerHour | None = None
    elo_history: Annotated[tuple[RatingPoint, ...], Meta(max_length=HISTORY_LENGTH)] = ()
    games_played: Count = 0
    consecutive_successes: Count = 0
    consecutive_failures: Count = 0
    curriculum_weight: float = 1.0
    current_model: ModelHash | None = None
    last_selfplay_time: datetime | None = None
    last_training_time: datetime | None = None
    last_evaluation_time: datetime | None = None
    last_promotion_time: datetime | None = None

    # Signals to the orchestration: 6 fields.
    training_intensity: Intensity = "normal"
    exploration_boost: Annotated[float, Meta(ge=1)] = 1.0
    data_freshness_hours: float | None = None
    consecutive_anomalies: Count = 0
    quality_penalties_applied: Count = 0
    last_adjustment_time: datetime | None = None

    # Monitoring: 9 fields.
    elo_trend: float | None = None
    elo_plateau_count: Count = 0
    win_rate_trend: float | None = None
    consecutive_high_win_rate: Count = 0
    consecutive_low_win_rate: Count = 0
    urgency_score: Unit | None = None
    last_urgency_update: datetime | None = None
    last_promotion_success: bool | None = None
    curriculum_tier: Count = 0

    # Knobs, beside training_intensity, exploration_boost and curriculum_weight. None: as configured, or not set.
    training_block: str | None = None
    selfplay_rate: float = 1.0
    boost_lasts_seconds: float = 0.0
    boost_set_by: Cause | None = None
    learning_rate: float | None = None
    epochs: int | None = None
    games_per_iteration: int | None = None
    quality_threshold: float | None = None
    base_temperature: float | None = None
    matchmaking: MatchmakingUpdated | None = None

    lineage: Lineage = Lineage()

    # Ratings pooled over time, of which velocity and stall are computed: 20 ratings may take minutes.
    elo_pools: Annotated[tuple[RatingPool, ...], Meta(max_length=HISTORY_LENGTH)] = ()

    def parameter(self, name: Parameter, settings: RunSettings) -> float:
        """Return the value of a parameter: as decided, otherwise as configured."""
        decided: float | None = getattr(self, name)
        return configured(name, settings, self.config_key) if decided is None else decided

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

    def update_elo(
        self, elo: Elo, stderr: float, now: datetime, spacing_seconds: float = 0.0, model: ModelHash | None = None
    ) -> Self:
        """Add a trained model's rating to the history.

        Velocity, peak, trend and plateau count are updated. For the velocity, ratings within ``spacing_seconds`` are
        pooled, so that 20 pools reach back far enough. It starts again after an operator's model.
        """
        new = RatingPoint(time=now, elo=elo, stderr=stderr, model=model, base=self.lineage.current_model)
        before = self.elo_history[-1] if self.elo_history and new.follows(self.elo_history[-1]) else None
        trend = None if before is None else elo - before.elo
        flat = trend is not None and trend < PLATEAU_ELO
        pools = pooled(self.elo_pools if before else (), new, spacing_seconds)[-HISTORY_LENGTH:]
        slope = slope_per_hour(pools)
        return self.replace(
            elo_current=elo,
            elo_stderr=stderr,
            elo_peak=elo if self.elo_peak is None else max(self.elo_peak, elo),
            elo_velocity=slope and slope.velocity,
            elo_history=(*self.elo_history, new)[-HISTORY_LENGTH:],
            elo_pools=pools,
            elo_trend=trend,
            elo_plateau_count=self.elo_plateau_count + 1 if flat else 0,
            curriculum_tier=max(0, int(elo // TIER_ELO)),
            last_evaluation_time=now,
        )

    def without(self, removed: Collection[ModelHash], spacing_seconds: float) -> Self:
        """Drop the ratings of removed champions, and of models trained from them.

        The velocity is that of the ratings before them.
        """
        history = tuple(one for one in self.elo_history if not {one.model, one.base} & {*removed})
        dropped = [one.time for one in self.elo_history if one not in history]
        pools = tuple(pool for pool in self.elo_pools if not dropped or pool.last < dropped[0])
        if not pools:  # they began at a removed model
            for one in connected(history):
                pools = pooled(pools, one, spacing_seconds)
        slope = slope_per_hour(pools)
        return self.replace(elo_history=history, elo_pools=pools, elo_velocity=slope and slope.velocity)

    def update_win_rate(self, win_rate: float) -> Self:
        """Set the win rate against the random bot.

        High (> 0.7) and low (< 0.5) rates in a row are counted.
        """
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
        divided by 24 hours, at most 1; without an evaluation it is 1.
        """
        last = self.last_evaluation_time
        stale = 1.0 if last is None else (now - last).total_seconds() / SECONDS_PER_HOUR / STALE_HOURS
        trouble = (self.elo_plateau_count + self.consecutive_low_win_rate) / HISTORY_LENGTH
        score = 0.5 * min(1.0, max(0.0, stale)) + 0.5 * min(1.0, trouble)
        return self.replace(urgency_score=score, last_urgency_update=now)


States = Mapping[str, FeedbackState]

WHOLE: frozenset[Parameter] = frozenset({"epochs", "games_per_iteration"})
"""Parameters that are whole numbers."""


def state_of(states: States, key: str) -> FeedbackState:
    """Return a configuration's state.

    The state is empty before any event about the configuration.
    """
    return states.get(key) or FeedbackState(config_key=ConfigKey(key))


def longest_between_sweeps(settings: RunSettings) -> timedelta:
    """Return the longest time between two sweeps of a running loop.

    A sweep checks all configurations, at the first tick after each check period. The result is twice that time: a
    longer gap means that the run was off.
    """
    return timedelta(seconds=2 * (settings.feedback.stall.check_seconds + settings.tick_seconds))


@dataclass(frozen=True)
class FeedbackFold(HandlerReducer):
    """Folds every configuration's FeedbackState.

    There is one handler for each event type. The reducer emits nothing.
    """

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
        known = [rows[config.key] for config in self.settings.configs if config.key in rows]
        due = [one for one in known if one.last_urgency_update is None or now - one.last_urgency_update >= period]
        return Step({one.config_key: self._resumed(one, now).compute_urgency(now) for one in due})

    @handles(CurriculumRebalanced)
    def rebalanced(self, rows: States, event: Event[CurriculumRebalanced]) -> Step[FeedbackState]:
        """Set the weights of all configurations."""
        weights = event.data.weights.items()
        return Step({key: state_of(rows, key).replace(curriculum_weight=weight) for key, weight in weights})

    @handles(EvaluationCompleted)
    def evaluated(self, rows: States, event: Event[EvaluationCompleted]) -> Step[FeedbackState]:
        """Take in a rating evaluation.

        The rating, the win rate against the random bot and the urgency are updated. A model that an operator or a
        rollback made current says nothing about training, so that its rating only becomes the current one.
        """
        data, now = event.data, event.recordedtime
        if data.purpose != "rating":
            return Step()
        state = self._resumed(state_of(rows, event.subject), now)
        if not state.lineage.is_trial(data.model):
            state = state.replace(elo_current=data.elo, elo_stderr=data.elo_stderr, last_evaluation_time=now)
            return Step({event.subject: state.compute_urgency(now)})
        state = state.update_elo(data.elo, data.elo_stderr, now, self._spacing_seconds, data.model)
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
        score, state = event.data.score, state_of(rows, event.subject)
        weight, before = self.settings.feedback.quality.smoothing, state.quality_score
        smoothed = score if before is None else before + weight * (score - before)
        return _changed(rows, event, data_quality_score=score, quality_score=smoothed)

    @handles(SelfplayComplete)
    def played(self, rows: States, event: Event[SelfplayComplete]) -> Step[FeedbackState]:
        """Count the games of a shard."""
        games = state_of(rows, event.subject).games_played + event.data.shard.games
        return _changed(rows, event, games_played=games, last_selfplay_time=event.recordedtime)

    @handles(TrainingCompleted)
    def trained(self, rows: States, event: Event[TrainingCompleted]) -> Step[FeedbackState]:
        """Record a training: the age of its data and the critic's accuracy."""
        state, now, metrics = state_of(rows, event.subject), event.recordedtime, event.data.metrics
        played = state.last_selfplay_time
        return _changed(
            rows,
            event,
            last_training_time=now,
            data_freshness_hours=played and (now - played).total_seconds() / SECONDS_PER_HOUR,
            training_accuracy=metrics.get("explained_variance") if metrics else state.training_accuracy,
            consecutive_anomalies=0,  # until a LossAnomalyDetected of this training sets it
            lineage=state.lineage.after(event),
        )

    @handles(TrainingRequested, TrainingFailed, EvaluationFailed, ModelDistributed, EloUpdated)
    def models_changed(self, rows: States, event: Event[Any]) -> Step[FeedbackState]:
        """Update the lineage."""
        return _changed(rows, event, lineage=state_of(rows, event.subject).lineage.after(event))

    @handles(LossAnomalyDetected)
    def loss_was_unusual(self, rows: States, event: Event[LossAnomalyDetected]) -> Step[FeedbackState]:
        """Count trainings in a row with an anomaly."""
        return _changed(rows, event, consecutive_anomalies=event.data.consecutive)

    @handles(ModelPromoted)
    def promoted(self, rows: States, event: Event[ModelPromoted]) -> Step[FeedbackState]:
        """Make a model current, and count candidates' promotions in a row."""
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
            **(counted if state.lineage.is_trial(event.data.model) else {}),
        )

    @handles(PromotionRejected)
    def rejected(self, rows: States, event: Event[PromotionRejected]) -> Step[FeedbackState]:
        """Count rejections in a row."""
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
        removed = {one.model for one in state.lineage.champions} - {one.model for one in lineage.champions}
        state = state.without(removed, self._spacing_seconds).replace(
            lineage=lineage, current_model=event.data.to_model, last_adjustment_time=event.recordedtime
        )
        return Step({event.subject: state})

    @handles(ExplorationBoost)
    def boosted(self, rows: States, event: Event[ExplorationBoost]) -> Step[FeedbackState]:
        """Set the exploration boost."""
        return _changed(
            rows,
            event,
            exploration_boost=event.data.multiplier,
            boost_lasts_seconds=event.data.lasts_seconds,
            boost_set_by=event.cause,
            last_adjustment_time=event.recordedtime,
        )

    @handles(QualityPenaltyApplied)
    def penalised(self, rows: States, event: Event[QualityPenaltyApplied]) -> Step[FeedbackState]:
        """Set the rate of self-play.

        An event with rate 1 ends a penalty. Only events with a rate below 1 are counted.
        """
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

    @property
    def _spacing_seconds(self) -> float:
        return self.settings.feedback.stall.window_hours * SECONDS_PER_HOUR / SPACINGS

    def _resumed(self, state: FeedbackState, now: datetime) -> FeedbackState:
        """Shift the pools of ratings past the time without a run.

        Nothing was learned while the run was off.
        """
        last = state.last_urgency_update
        if last is None or now - last <= longest_between_sweeps(self.settings):
            return state
        return state.replace(elo_pools=later(state.elo_pools, now - last))


def _changed(rows: States, event: Event[Any], **changes: Any) -> Step[FeedbackState]:
    """Return the step that sets fields of a configuration's state.

    The configuration is that of the event.
    """
    return Step({event.subject: state_of(rows, event.subject).replace(**changes)})
