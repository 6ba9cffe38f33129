"""Settings of the feedback controllers. Names or descriptions give units; shares and scores are in [0, 1]."""

from collections.abc import Sequence
from itertools import pairwise
from statistics import median
from typing import Annotated, ClassVar, Self

from pydantic import Field, model_validator

from flyball.app.config.base import FrozenModel
from flyball.app.config.settings import MAX_TEMPERATURE, MIN_TEMPERATURE
from flyball.app.core import SECONDS_PER_HOUR, backoff

MAX_SECONDS, MAX_HOURS = 1e8, 25_000.0
"""Longest duration, about three years; much longer ones overflow dates and microseconds."""

MAX_ELO = 10_000.0
"""Largest difference in Elo; the weaker player scores 1 in 10^25."""

MAX_VELOCITY = 100 * MAX_ELO
"""Largest velocity, in Elo/h."""

MAX_FACTOR = 100.0
"""Largest factor on amounts of work, and largest number of standard errors."""

MAX_BOOST = 10.0
"""Largest multiplier of EXPLORATION_BOOST."""

Share = Annotated[float, Field(ge=0, le=1)]
Seconds = Annotated[float, Field(gt=0, le=MAX_SECONDS)]
SecondsOrZero = Annotated[float, Field(ge=0, le=MAX_SECONDS)]
Hours = Annotated[float, Field(gt=0, le=MAX_HOURS)]
HoursOrZero = Annotated[float, Field(ge=0, le=MAX_HOURS)]
EloDifference = Annotated[float, Field(ge=-MAX_ELO, le=MAX_ELO)]
Velocity = Annotated[float, Field(gt=0, le=MAX_VELOCITY)]
Factor = Annotated[float, Field(gt=0, le=MAX_FACTOR)]
FactorOrZero = Annotated[float, Field(ge=0, le=MAX_FACTOR)]
Ratings = Annotated[int, Field(ge=1, description="ratings since the last change that end its cooldown sooner")]


class OrderedSettings(FrozenModel):
    """Base of settings in ascending order; neighbours may be equal, except in ``strictly_ascending``."""

    ascending: ClassVar[tuple[tuple[str, ...], ...]] = ()
    strictly_ascending: ClassVar[tuple[tuple[str, ...], ...]] = ()

    @model_validator(mode="after")
    def _check_order(self) -> Self:
        for names in (*self.ascending, *self.strictly_ascending):
            for lower, higher in pairwise(names):
                low, high = getattr(self, lower), getattr(self, higher)
                equal = names in self.ascending
                if low > high or (low == high and not equal):
                    must = "must not lie below" if equal else "must lie above"
                    raise ValueError(f"{higher} {high:g} {must} {lower} {low:g}: raise {higher}, or lower {lower}")
        return self


class StallSettings(OrderedSettings):
    """Detection of a stall, and the exploration boost that answers it."""

    ascending = (("boost", "boost_cap"),)

    check_seconds: Seconds = Field(10.0, description="period of the check for a stall")
    velocity: float = Field(
        5.0,
        ge=-MAX_VELOCITY,
        le=MAX_VELOCITY,
        description="Elo/h; times window_hours it is the gain within a window below which there is a stall",
    )
    window_hours: Hours = Field(6.0, description="longest window over which the slope of ratings is measured")
    window_ratings: int = Field(
        20, ge=0, description="ratings that a shorter window spans; 0: windows are always window_hours"
    )
    shortest_window_seconds: Seconds = Field(60.0, description="shortest window, however fast ratings come")
    confidence: Factor = Field(2.576, description="standard errors from slope to bound; 2.576: 99.5% one-sided")
    margin: FactorOrZero = Field(
        1.75, description="standard errors by which slopes over shorter times must also lie below velocity"
    )
    precision: Velocity = Field(
        5.0, description="Elo/h, as velocity; slopes are measured over longer times until their bounds are this close"
    )
    boost: float = Field(1.5, gt=1, le=MAX_BOOST, description="factor of each boost on the sampling temperature")
    boost_cap: float = Field(2.25, gt=1, le=MAX_BOOST, description="largest product of these factors")
    boost_hours: Hours = Field(
        2.0,
        description="how long a boost lasts, and least time until the next; in a shorter window less, and longer if no "
        "rating has come since",
    )

    def time_scale(self, intervals: Sequence[float]) -> float:
        """Return the window's duration as a share of ``window_hours``.

        Times of the rules are multiplied by it, so that they count ratings rather than hours of the clock.

        Args:
            intervals: seconds between successive ratings. One alone decides nothing, and their median counts, because
                the run may have been off during one of them.
        """
        if not self.window_ratings or len(intervals) < 2:
            return 1.0
        longest = self.window_hours * SECONDS_PER_HOUR
        window = max(self.shortest_window_seconds, self.window_ratings * median(intervals))
        return min(1.0, window / longest)

    def at(self, time_scale: float) -> Self:
        """Return the settings of a run in which windows are shorter by ``time_scale``.

        Boosts are shorter by it, too. The gain within a window stays the same, so the velocity is higher, and may lie
        beyond what validation admits.
        """
        scaled = {
            "window_hours": self.window_hours * time_scale,
            "boost_hours": self.boost_hours * time_scale,
            "velocity": self.velocity / time_scale,
            "precision": self.precision / time_scale,
        }
        return self.model_copy(update=scaled)


class QualitySettings(OrderedSettings):
    """Penalties for bad data, and the block after a failed parity check."""

    strictly_ascending = (("penalty_below", "lift_at"),)  # hysteresis

    penalty_below: Share = Field(0.3, description="quality score below which self-play is penalised")
    lift_at: Share = Field(0.4, description="quality score from which on the penalty is lifted")
    rate_multiplier: float = Field(0.5, ge=1e-6, lt=1, description="factor on the rate of self-play under a penalty")
    smoothing: float = Field(0.3, gt=0, le=1, description="weight of the newest shard in the moving average")
    parity_clear_checks: int = Field(3, ge=1, description="shards without a failure in a row that lift a parity block")


class IntensitySettings(OrderedSettings):
    """Training intensity by quality score; below ``reduced`` training pauses."""

    ascending = (("reduced", "normal", "accelerated", "hot_path"),)

    hot_path: Share = Field(0.9, description="lowest quality score of this intensity")
    accelerated: Share = Field(0.8, description="lowest quality score of this intensity")
    normal: Share = Field(0.65, description="lowest quality score of this intensity")
    reduced: Share = Field(0.5, description="lowest quality score of this intensity")
    cooldown_seconds: SecondsOrZero = Field(60.0, description="least time between two changes of the intensity")


class GauntletSettings(FrozenModel):
    """Adaptation of hyperparameters to the results of a gauntlet."""

    strong_win_rate: Share = Field(0.8, description="against heuristic; above it temperature falls, threshold rises")
    weak_win_rate: Share = Field(0.7, description="against random; certainly below it epochs, games rise if that helps")
    least_trainings: int = Field(10, ge=0, description="trainings of a model that is judged; younger ones are all weak")
    cooldown_hours: HoursOrZero = Field(1.0, description="least time between two changes")
    cooldown_ratings: Ratings = 5
    temperature_factor: float = Field(0.8, gt=0, lt=1, description="factor on the base temperature")
    min_temperature: float = Field(0.5, ge=MIN_TEMPERATURE, le=MAX_TEMPERATURE, description="lowest base temperature")
    quality_threshold_step: float = Field(0.05, gt=0, le=1, description="added to the quality threshold")
    max_quality_threshold: Share = Field(
        0.5, description="highest quality threshold; at most intensity.reduced, below which training pauses"
    )
    work_factor: float = Field(1.5, gt=1, le=MAX_FACTOR, description="factor on epochs and games per iteration")
    max_epochs: int = Field(8, ge=1, le=1000, description="most epochs of a training")
    max_games_factor: float = Field(4.0, ge=1, le=MAX_FACTOR, description="most games per iteration / configured games")


class LearningRateSettings(OrderedSettings):
    """Adaptation of the learning rate to the gain in rating."""

    ascending = (("minimum", "maximum"),)
    strictly_ascending = (("lower_at_elo", "raise_at_elo"),)

    evaluations: int = Field(5, ge=2, description="latest rating differences that are averaged, 19 at most")
    raise_at_elo: EloDifference = Field(10.0, description="mean difference from which on the learning rate rises")
    lower_at_elo: EloDifference = Field(-10.0, description="mean difference up to which the learning rate falls")
    confidence: FactorOrZero = Field(3.0, description="standard errors that the mean difference must exceed")
    raise_factor: float = Field(1.1, gt=1, le=MAX_FACTOR, description="factor on the learning rate when it rises")
    lower_factor: float = Field(0.8, gt=0, lt=1, description="factor on the learning rate when it falls")
    anomalies: int = Field(2, ge=1, description="trainings in a row with a loss anomaly that lower the learning rate")
    rejections: int = Field(3, ge=1, description="candidates rejected in a row that lower the learning rate")
    rejections_factor: float = Field(
        0.5, gt=0, lt=1, description="factor on the learning rate after so many rejections"
    )
    minimum: float = Field(1e-6, ge=1e-12, le=1, description="lowest learning rate")
    maximum: float = Field(1e-3, ge=1e-12, le=1, description="highest learning rate")
    cooldown_hours: HoursOrZero = Field(1.0, description="least time between two changes")
    cooldown_ratings: Ratings = 5


class AnomalySettings(FrozenModel):
    """Detection of loss anomalies."""

    metrics: tuple[str, ...] = Field(
        ("value_loss", "approx_kl"), description="metrics of trainings that are watched; a training may lack some"
    )
    weight: float = Field(0.1, gt=0, lt=1, description="weight of the newest training in the moving mean and variance")
    warm_up: int = Field(10, ge=2, description="trainings before the first anomaly can be detected")
    deviations: Factor = Field(6.0, description="standard deviations above the mean that make an anomaly")


class CurriculumSettings(FrozenModel):
    """Shares of worker time of the configurations.

    The mean of all weights is 1.
    """

    rebalance_seconds: Seconds = Field(
        600.0, description="least time between two changes; in a run with shorter stall windows less"
    )
    minimum: float = Field(0.2, ge=1 / MAX_FACTOR, le=1, description="lowest weight")
    maximum: float = Field(3.0, ge=1, le=MAX_FACTOR, description="highest weight")
    optimism: FactorOrZero = Field(1.0, description="standard errors that are added to a gain that is little known")
    min_change: float = Field(0.2, ge=0, description="smallest change of a weight that is worth a decision")


class WatchdogSettings(FrozenModel):
    """The sequential test for regressions: a Bernoulli CUSUM against one fixed opponent."""

    design_drop_elo: float = Field(100.0, gt=0, le=MAX_ELO, description="drop in strength that the test should detect")
    threshold: Factor = Field(2.6, description="sum that raises an alarm; larger: slower detection, fewer false alarms")
    drift_elo: float = Field(15.0, ge=0, le=MAX_ELO, description="standard deviation between successive good models")
    suspicion: float = Field(0.5, gt=0, le=1, description="share of the threshold that prompts a retest")
    retest_games: int = Field(20, ge=2, le=10_000, description="games of one retest; few, because others may follow")
    most_matches: int = Field(20, ge=1, description="most matches of one model, its rating included")
    severity_elo: tuple[float, float, float, float] = Field(
        (20.0, 35.0, 50.0, 75.0), description="smallest drops that are minor, moderate, severe and critical"
    )
    clear_games: int = Field(100, ge=1, description="rated games without evidence of a drop that clear an alarm")

    @model_validator(mode="after")
    def _check_severities(self) -> Self:
        if any(low >= high for low, high in pairwise(self.severity_elo)):
            raise ValueError(f"severity_elo {self.severity_elo} must ascend from minor to critical: put them in order")
        return self


class LifecycleSettings(OrderedSettings):
    """Promotion by GSPRT, rollback on severe regressions."""

    strictly_ascending = (("elo0", "elo1"),)

    elo0: EloDifference = Field(-80.0, description="strength relative to the champion that is rejected")
    elo1: EloDifference = Field(
        0.0, description="strength relative to the champion that is promoted; an equal model has learned more"
    )
    alpha: float = Field(0.05, ge=1e-9, lt=0.5, description="probability of promoting a candidate of strength elo0")
    beta: float = Field(0.05, ge=1e-9, lt=0.5, description="probability of rejecting a candidate of strength elo1")
    max_games: int = Field(2000, ge=2, description="games after which an undecided candidate is rejected")
    evaluation_share: Share = Field(
        0.1,
        description="share of a configuration's worker time, or of the mean of all if that is more, that evaluations "
        "take before most are gates alone",
    )
    rollback_at: str = Field(
        "severe",
        pattern="^(moderate|severe|critical)$",
        description="least severity that rolls the champion back; critical is the highest, then severe, moderate",
    )


class SchedulerSettings(FrozenModel):
    """Allocation of self-play to configurations and workers."""

    starvation_floor: float = Field(
        0.15, ge=1 / MAX_FACTOR, le=1, description="lowest weight that counts, whoever sets it; 1 is an equal share"
    )
    waiting_seconds: SecondsOrZero = Field(
        10.0, description="longest usual duration of a request that may wait for a busy worker"
    )
    idle_seconds: Seconds = Field(60.0, description="pause between requests while training is blocked or paused")
    lease_seconds: Seconds = Field(
        600.0, description="time without a verdict on a request's shard, after which the request is repeated"
    )


class NodeSettings(OrderedSettings):
    """Pauses and quarantine of workers (ADR-010)."""

    ascending = (("pause_seconds", "longest_pause_seconds"), ("quarantine_seconds", "longest_quarantine_seconds"))

    failures: int = Field(3, ge=1, description="failed requests in a row that pause a worker")
    pause_seconds: float = Field(30.0, gt=0, le=1e6, description="the first pause; doubled with each further failure")
    longest_pause_seconds: float = Field(1800.0, gt=0, le=1e6, description="the longest pause")
    far_below: float = Field(0.2, gt=0, le=1, description="a shard this far below all other workers' scores is bad")
    bad_shards: int = Field(3, ge=1, description="bad shards in a row that quarantine a worker")
    quarantine_seconds: float = Field(
        600.0, gt=0, le=1e6, description="until the first probe; doubled with each bad one"
    )
    longest_quarantine_seconds: float = Field(21_600.0, gt=0, le=1e6, description="longest time between two probes")
    good_probes: int = Field(3, ge=1, description="good probes in a row that end a quarantine")


class TriggerSettings(OrderedSettings):
    """Rows that start a training, as multiples of ``rows_per_training``, by intensity.

    By default good data does not start a training sooner, because many small trainings lose more time to evaluations
    (measured, ADR-020).
    """

    ascending = (("hot_path", "accelerated", "normal", "reduced"), ("pause_seconds", "longest_pause_seconds"))

    cooldown_seconds: SecondsOrZero = Field(0.0, description="least time between two trainings")
    pause_seconds: Seconds = Field(
        10.0,
        description="pause after a second failed training or evaluation in a row; it doubles with each further one",
    )
    longest_pause_seconds: Seconds = Field(300.0, description="longest pause after failures in a row")
    hot_path: Factor = Field(1.0, description="rows at this intensity / rows_per_training")
    accelerated: Factor = Field(1.0, description="rows at this intensity / rows_per_training")
    normal: Factor = Field(1.0, description="rows at this intensity / rows_per_training")
    reduced: Factor = Field(2.0, description="rows at this intensity / rows_per_training")
    most_rows_factor: Factor = Field(4.0, description="most rows of a training / rows_per_training")
    staleness: int = Field(
        1,
        ge=0,
        le=16,
        description="PPO also trains on rows of so many champions before the current one; where nodes would idle, they "
        "play during trainings and verdicts",
    )

    def pause_after(self, failures: int) -> float:
        """Return the seconds to wait after consecutive failures: 0 after the first, then a doubling pause."""
        return backoff(self.pause_seconds, self.longest_pause_seconds, failures - 2) if failures > 1 else 0.0


class FeedbackSettings(FrozenModel):
    """Settings of all feedback controllers."""

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
