"""The thresholds of the feedback controllers. Units are in the names; defaults are the design's."""

from itertools import pairwise
from typing import Self

from pydantic import Field, model_validator

from app.config.settings import MAX_TEMPERATURE, MIN_TEMPERATURE, Settings

MAX_SECONDS, MAX_HOURS = 1e8, 25_000.0
"""Longest duration, about three years: much longer ones overflow dates and microseconds."""

MAX_ELO = 10_000.0
"""Largest difference in Elo; the weaker player scores 1 in 10^25. The largest velocity is this in 36 s."""

MAX_VELOCITY = 100 * MAX_ELO
MAX_FACTOR = 100.0
"""Largest factor on amounts of work, and largest number of standard errors."""

MAX_BOOST = 10.0
"""Largest multiplier of EXPLORATION_BOOST."""


def _ascending(settings: Settings, *names: str, equal: bool = True) -> None:
    """Refuse settings of which one lies above the next, or, unless it may be, ``equal`` to it."""
    for lower, higher in pairwise(names):
        low, high = getattr(settings, lower), getattr(settings, higher)
        if low > high or (low == high and not equal):
            must = "must not lie below" if equal else "must lie above"
            raise ValueError(f"{higher} {high:g} {must} {lower} {low:g}: raise {higher}, or lower {lower}")


class StallSettings(Settings):
    """When improvement has stalled, and what is done about it."""

    check_seconds: float = Field(default=600.0, gt=0, le=MAX_SECONDS, description="period of the check")
    velocity: float = Field(
        default=5.0, ge=-MAX_VELOCITY, le=MAX_VELOCITY, description="Elo/h below which a configuration is stalling"
    )
    window_hours: float = Field(default=6.0, gt=0, le=MAX_HOURS, description="how long it must have been below")
    confidence: float = Field(
        default=2.576, gt=0, le=MAX_FACTOR, description="normal quantile of the slope's bounds: 99.5% one-sided"
    )
    margin: float = Field(
        default=1.75,
        ge=0,
        le=MAX_FACTOR,
        description="standard errors by which no slope since may come near the velocity",
    )
    precision: float = Field(
        default=5.0, gt=0, le=MAX_VELOCITY, description="Elo/h to which the slope must be certain; else look back"
    )
    boost: float = Field(default=1.5, gt=1, le=MAX_BOOST, description="factor on the sampling temperature")
    boost_cap: float = Field(default=2.25, gt=1, le=MAX_BOOST)
    boost_hours: float = Field(
        default=2.0, gt=0, le=MAX_HOURS, description="a boost's time to live, and the cooldown of the next"
    )

    @model_validator(mode="after")
    def _one_boost_is_below_the_cap(self) -> Self:
        _ascending(self, "boost", "boost_cap")
        return self


class QualitySettings(Settings):
    """Penalties for poor data."""

    penalty_below: float = Field(default=0.3, ge=0, le=1)
    lift_at: float = Field(default=0.4, ge=0, le=1)
    rate_multiplier: float = Field(default=0.5, ge=1e-6, lt=1)
    smoothing: float = Field(default=0.3, gt=0, le=1, description="weight of the newest shard in quality_score")
    parity_clear_checks: int = Field(default=3, ge=1, description="clean shards in a row that lift a parity block")

    @model_validator(mode="after")
    def _hysteresis(self) -> Self:
        _ascending(self, "penalty_below", "lift_at", equal=False)
        return self


class IntensitySettings(Settings):
    """From quality to training intensity; each level begins at its threshold."""

    hot_path: float = Field(default=0.9, ge=0, le=1)
    accelerated: float = Field(default=0.8, ge=0, le=1)
    normal: float = Field(default=0.65, ge=0, le=1)
    reduced: float = Field(default=0.5, ge=0, le=1)
    cooldown_seconds: float = Field(
        default=60.0, ge=0, le=MAX_SECONDS, description="the intensity changes no more often"
    )

    @model_validator(mode="after")
    def _better_data_train_no_less(self) -> Self:
        _ascending(self, "reduced", "normal", "accelerated", "hot_path")
        return self


class GauntletSettings(Settings):
    """Hyperparameters after a gauntlet."""

    strong_win_rate: float = Field(default=0.8, ge=0, le=1, description="above it against the heuristic: less noise")
    weak_win_rate: float = Field(default=0.7, ge=0, le=1, description="certainly below it against random: more work")
    cooldown_hours: float = Field(default=1.0, ge=0, le=MAX_HOURS)
    temperature_factor: float = Field(default=0.8, gt=0, lt=1)
    min_temperature: float = Field(default=0.5, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE)
    quality_threshold_step: float = Field(default=0.05, gt=0, le=1)
    max_quality_threshold: float = Field(
        default=0.5, ge=0, le=1, description="never above intensity.reduced, below which training pauses"
    )
    work_factor: float = Field(default=1.5, gt=1, le=MAX_FACTOR)
    max_epochs: int = Field(default=8, ge=1, le=1000)
    max_games_factor: float = Field(
        default=4.0, ge=1, le=MAX_FACTOR, description="times the configured games per iteration"
    )


class LearningRateSettings(Settings):
    """The learning rate follows the gain in rating."""

    evaluations: int = Field(default=5, ge=2, description="averaged differences")
    raise_at_elo: float = Field(default=10.0, ge=-MAX_ELO, le=MAX_ELO)
    lower_at_elo: float = Field(default=-10.0, ge=-MAX_ELO, le=MAX_ELO)
    confidence: float = Field(
        default=3.0, ge=0, le=MAX_FACTOR, description="standard errors that a difference must exceed"
    )
    raise_factor: float = Field(default=1.1, gt=1, le=MAX_FACTOR)
    lower_factor: float = Field(default=0.8, gt=0, lt=1)
    anomalies: int = Field(default=2, ge=1, description="trainings in a row with a loss anomaly that lower it")
    minimum: float = Field(default=1e-6, ge=1e-12, le=1)
    maximum: float = Field(default=1e-3, ge=1e-12, le=1)
    cooldown_hours: float = Field(default=1.0, ge=0, le=MAX_HOURS)

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        _ascending(self, "minimum", "maximum")
        _ascending(self, "lower_at_elo", "raise_at_elo", equal=False)
        return self


class AnomalySettings(Settings):
    """When a training's figures are unusual."""

    weight: float = Field(default=0.1, gt=0, lt=1, description="of the newest training in mean and variance")
    warm_up: int = Field(default=10, ge=2, description="trainings before anything is unusual")
    deviations: float = Field(default=6.0, gt=0, le=MAX_FACTOR, description="standard deviations above the mean")


class CurriculumSettings(Settings):
    """How much self-play each configuration gets."""

    rebalance_seconds: float = Field(default=600.0, gt=0, le=MAX_SECONDS)
    minimum: float = Field(default=0.5, ge=1 / MAX_FACTOR, le=1, description="of the weights, whose mean is 1")
    maximum: float = Field(default=2.0, ge=1, le=MAX_FACTOR)
    least_velocity: float = Field(
        default=5.0, gt=0, le=MAX_VELOCITY, description="Elo/h; a lower mean is no measure of what is fast"
    )
    min_change: float = Field(default=0.05, ge=0, description="a smaller change is not worth a decision")


class WatchdogSettings(Settings):
    """The sequential test for regressions: a Bernoulli CUSUM against one opponent that stays the same."""

    design_drop_elo: float = Field(
        default=100.0, gt=0, le=MAX_ELO, description="the alternative that the test looks for"
    )
    threshold: float = Field(
        default=2.6, gt=0, le=MAX_FACTOR, description="h; larger: slower detection, fewer false alarms"
    )
    drift_elo: float = Field(
        default=15.0, ge=0, le=MAX_ELO, description="standard deviation by which good models differ from those before"
    )
    suspicion: float = Field(
        default=0.5, gt=0, le=1, description="share of the threshold from which on a model is retested"
    )
    retest_games: int = Field(
        default=20,
        ge=2,
        le=10_000,
        description="of one match that looks into a suspicion: few, as more may follow",
    )
    most_matches: int = Field(default=20, ge=1, description="of one model, its rating included, until it is left alone")
    severity_elo: tuple[float, float, float, float] = (20.0, 35.0, 50.0, 75.0)
    clear_games: int = Field(default=100, ge=1, description="rated games without evidence that clear an alarm")

    @model_validator(mode="after")
    def _severities(self) -> Self:
        if any(low >= high for low, high in pairwise(self.severity_elo)):
            raise ValueError(f"severity_elo {self.severity_elo} must ascend from minor to critical: put them in order")
        return self


class LifecycleSettings(Settings):
    """Promotion by GSPRT, rollback on severe regressions."""

    elo0: float = Field(default=-40.0, ge=-MAX_ELO, le=MAX_ELO, description="so much weaker a candidate is kept out")
    elo1: float = Field(
        default=0.0, ge=-MAX_ELO, le=MAX_ELO, description="an equal one is let in: it holds what it has learned"
    )
    alpha: float = Field(default=0.05, ge=1e-9, lt=0.5)
    beta: float = Field(default=0.05, ge=1e-9, lt=0.5)
    max_games: int = Field(default=2000, ge=2, description="undecided after so many: the candidate is kept out")
    rollback_at: str = Field(default="severe", pattern="^(moderate|severe|critical)$")

    @model_validator(mode="after")
    def _hypotheses(self) -> Self:
        _ascending(self, "elo0", "elo1", equal=False)
        return self


class SchedulerSettings(Settings):
    """Priorities of self-play."""

    staleness_hours: float = Field(default=1.0, gt=0, le=MAX_HOURS)
    starvation_floor: float = Field(
        default=0.25,
        ge=1 / MAX_FACTOR,
        le=1,
        description="least worker time of a configuration, as a share of an equal share",
    )
    waiting_seconds: float = Field(
        default=10.0, ge=0, le=MAX_SECONDS, description="of a request; a longer one does not wait for a busy worker"
    )
    idle_seconds: float = Field(
        default=60.0,
        gt=0,
        le=MAX_SECONDS,
        description="between requests while training is blocked or paused",
    )
    lease_seconds: float = Field(
        default=600.0,
        gt=0,
        le=MAX_SECONDS,
        description="a request is repeated after so long without a result or a heartbeat that names it",
    )
    node_silent_seconds: float = Field(default=30.0, gt=0, le=MAX_SECONDS)


class NodeSettings(Settings):
    """Pauses and quarantine of workers (ADR-019)."""

    failures: int = Field(default=3, ge=1, description="failed requests in a row that pause a worker")
    pause_seconds: float = Field(default=30.0, gt=0, le=1e6, description="the first pause; doubled with each failure")
    longest_pause_seconds: float = Field(default=1800.0, gt=0, le=1e6)
    far_below: float = Field(
        default=0.2, gt=0, le=1, description="a bad shard scores this far below all that others delivered"
    )
    bad_shards: int = Field(default=3, ge=1, description="bad shards in a row that put a worker into quarantine")
    quarantine_seconds: float = Field(
        default=600.0, gt=0, le=1e6, description="until a quarantine's first probe; doubled with each bad probe"
    )
    longest_quarantine_seconds: float = Field(default=21_600.0, gt=0, le=1e6)
    good_probes: int = Field(default=3, ge=1, description="good probes in a row that end a quarantine")

    @model_validator(mode="after")
    def _ascending_times(self) -> Self:
        _ascending(self, "pause_seconds", "longest_pause_seconds")
        _ascending(self, "quarantine_seconds", "longest_quarantine_seconds")
        return self


class TriggerSettings(Settings):
    """When to train.

    Good data does not make a training sooner by default: only rows of the current model are trained on, so those played
    during a training and its evaluations are lost, and many small trainings lose more of them (measured, ADR-012).
    """

    cooldown_seconds: float = Field(default=0.0, ge=0, le=MAX_SECONDS)
    hot_path: float = Field(default=1.0, gt=0, le=MAX_FACTOR, description="share of rows_per_training that is enough")
    accelerated: float = Field(default=1.0, gt=0, le=MAX_FACTOR)
    normal: float = Field(default=1.0, gt=0, le=MAX_FACTOR)
    reduced: float = Field(default=2.0, gt=0, le=MAX_FACTOR)

    @model_validator(mode="after")
    def _better_data_train_no_later(self) -> Self:
        _ascending(self, "hot_path", "accelerated", "normal", "reduced")
        return self


class FeedbackSettings(Settings):
    """All thresholds of all controllers."""

    stall: StallSettings = StallSettings()
    quality: QualitySettings = QualitySettings()
    intensity: IntensitySettings = IntensitySettings()
    gauntlet: GauntletSettings = GauntletSettings()
    learning_rate: LearningRateSettings = LearningRateSettings()
    anomaly: AnomalySettings = AnomalySettings()
    curriculum: CurriculumSettings = CurriculumSettings()
    watchdog: WatchdogSettings = WatchdogSettings()
    lifecycle: LifecycleSettings = LifecycleSettings()
    scheduler: SchedulerSettings = SchedulerSettings()
    nodes: NodeSettings = NodeSettings()
    trigger: TriggerSettings = TriggerSettings()
