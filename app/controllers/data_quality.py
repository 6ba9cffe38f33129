"""Data quality rules for self-play and training.

The rules set the self-play rate, the training intensity and the training block.
"""

from datetime import timedelta

from flyball.app.config.feedback import FeedbackSettings, IntensitySettings, QualitySettings
from flyball.app.controllers.controller import Watched, setting
from flyball.app.controllers.state import FeedbackState
from flyball.app.core import SECOND_US
from flyball.app.events import (
    Intensity,
    Payload,
    QualityPenaltyApplied,
    Row,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)
from flyball.app.events.envelope import EPOCH


class QualityRow(Row, frozen=True):
    """State of one configuration's quality rules.

    A rule acts only when its own decision changes. So an operator's rate or intensity holds until the quality crosses a
    threshold.

    Attributes:
        penalised: the rule decided last to penalise the rate.
        intensity: the intensity that the rule decided last.
        held: an operator blocked training, and only an operator may lift the block.
        clean_checks: number of consecutive shards without a replay difference since training was blocked.
        intensity_us: when the intensity was last changed.
    """

    penalised: bool = False
    intensity: Intensity = "normal"
    held: bool = False
    clean_checks: int = 0
    intensity_us: int = 0


Change = tuple[QualityRow, tuple[Payload, ...]]


def intensity_of(quality: float | None, settings: IntensitySettings) -> Intensity:
    """Return the training intensity for a quality in [0, 1]. The intensity is normal if the quality is unknown."""
    if quality is None:
        return "normal"
    levels: tuple[tuple[float, Intensity], ...] = (
        (settings.hot_path, "hot_path"),
        (settings.accelerated, "accelerated"),
        (settings.normal, "normal"),
        (settings.reduced, "reduced"),
    )
    return next((level for threshold, level in levels if quality >= threshold), "paused")


def apply_quality(row: QualityRow, state: FeedbackState, settings: FeedbackSettings, now_us: int) -> Change:
    """Decide penalty and intensity by the smoothed quality, which must be known."""
    row, penalty = _penalty(row, state, settings.quality)
    row, intensity = _intensity(row, state, settings.intensity, now_us)
    return row, (*penalty, *intensity)


def _penalty(row: QualityRow, state: FeedbackState, settings: QualitySettings) -> Change:
    """Penalise the rate below a threshold. The penalty is lifted at a higher threshold."""
    quality = state.quality_score
    assert quality is not None
    if not row.penalised and quality < settings.penalty_below:
        rate, threshold = settings.rate_multiplier, settings.penalty_below
    elif row.penalised and quality >= settings.lift_at:
        rate, threshold = 1.0, settings.lift_at
    else:
        return row, ()
    decision = QualityPenaltyApplied(rate_multiplier=rate, quality_score=quality, threshold=threshold)
    return row.replace(penalised=rate < 1), (decision,)


def _intensity(row: QualityRow, state: FeedbackState, settings: IntensitySettings, now_us: int) -> Change:
    """Change the intensity, at most once per cooldown."""
    quality, before = state.quality_score, state.training_intensity
    assert quality is not None
    intensity = intensity_of(quality, settings)
    cooling = row.intensity_us and now_us - row.intensity_us < settings.cooldown_seconds * SECOND_US
    if intensity == row.intensity or cooling:
        return row, ()
    row = row.replace(intensity=intensity, intensity_us=now_us)
    if intensity == before:
        return row, ()
    return row, (TrainingIntensityChanged(intensity=intensity, previous=before, quality_score=quality),)


def watched_quality(row: QualityRow, state: FeedbackState, settings: FeedbackSettings) -> tuple[Watched, Watched]:
    """Return the quality with the thresholds of the penalty and of the training intensity."""
    limits, quality = settings.quality, state.quality_score
    if row.penalised:
        penalty = Watched(
            "quality of its data", quality, limits.lift_at, "above", "penalty lifted", "feedback.quality.lift_at"
        )
    else:
        effect = f"self-play rate x {limits.rate_multiplier:g}"
        penalty = Watched(
            "quality of its data", quality, limits.penalty_below, "below", effect, "feedback.quality.penalty_below"
        )
    resumes, reduced = state.training_intensity == "paused", settings.intensity.reduced
    rests = timedelta(microseconds=row.intensity_us, seconds=settings.intensity.cooldown_seconds)
    intensity = Watched(
        what="quality of its data",
        value=quality,
        threshold=reduced,
        acts="above" if resumes else "below",
        effect="training goes on" if resumes else "training pauses",
        setting="feedback.intensity.reduced",
        until=EPOCH + rests if row.intensity_us else None,
    )
    return penalty, intensity


def apply_parity(row: QualityRow, state: FeedbackState, broken: str, settings: QualitySettings) -> Change:
    """Block training at the first game that does not replay, until enough consecutive shards are clean.

    ``broken`` says why training must stop after this shard, and is empty if its games replay.
    """
    blocked = state.training_block is not None
    if broken:
        return row.replace(clean_checks=0), () if blocked else (TrainingBlockedByQuality(reason=broken),)
    if not blocked or row.held:
        return row, ()
    clean = row.clean_checks + 1
    if clean < settings.parity_clear_checks:
        return row.replace(clean_checks=clean), ()
    rule = setting("feedback.quality.parity_clear_checks", settings.parity_clear_checks)
    reason = f"{clean} consecutive shards replay without a difference {rule}"
    return row.replace(clean_checks=0), (TrainingUnblocked(reason=reason),)
