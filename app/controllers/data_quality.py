"""Data quality rules: the score sets self-play rate and intensity; a game that breaks the rules blocks training."""

from app.config.feedback import FeedbackSettings, IntensitySettings, QualitySettings
from app.controllers.state import FeedbackState
from app.controllers.trend import US
from app.events import (
    Intensity,
    Payload,
    QualityPenaltyApplied,
    Row,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)


class QualityRow(Row, frozen=True):
    """Working memory of the rules.

    Attributes:
        held: an operator blocked training, and only an operator lifts the block.
        clean_checks: shards in a row that replay without a difference, since training was blocked.
        intensity_us: when the intensity was last changed.
    """

    held: bool = False
    clean_checks: int = 0
    intensity_us: int = 0


Change = tuple[QualityRow, tuple[Payload, ...]]


def intensity_of(quality: float | None, settings: IntensitySettings) -> Intensity:
    """Return the training intensity for a quality in [0, 1]; unknown quality trains normally."""
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
    """Set penalty and intensity from the smoothed quality, which is known."""
    row, changed = _intensity(row, state, settings.intensity, now_us)
    return row, (*_penalty(state, settings.quality), *changed)


def _penalty(state: FeedbackState, settings: QualitySettings) -> tuple[Payload, ...]:
    """Penalise below one threshold, lift the penalty at a higher one."""
    quality, penalised = state.quality_score, state.selfplay_rate < 1
    assert quality is not None
    if not penalised and quality < settings.penalty_below:
        rate, threshold = settings.rate_multiplier, settings.penalty_below
    elif penalised and quality >= settings.lift_at:
        rate, threshold = 1.0, settings.lift_at
    else:
        return ()
    return (QualityPenaltyApplied(rate_multiplier=rate, quality_score=quality, threshold=threshold),)


def _intensity(row: QualityRow, state: FeedbackState, settings: IntensitySettings, now_us: int) -> Change:
    """Change the intensity, at most once per cooldown."""
    quality, before = state.quality_score, state.training_intensity
    assert quality is not None
    intensity = intensity_of(quality, settings)
    if intensity == before or (row.intensity_us and now_us - row.intensity_us < settings.cooldown_seconds * US):
        return row, ()
    decision = TrainingIntensityChanged(intensity=intensity, previous=before, quality_score=quality)
    return row.replace(intensity_us=now_us), (decision,)


def apply_parity(
    row: QualityRow, state: FeedbackState, checked: int, failures: int, settings: QualitySettings
) -> Change:
    """Block training at the first game that does not replay; unblock after enough clean shards in a row."""
    blocked = state.training_block is not None
    if failures:
        reason = f"{failures} of {checked} games differ from the rules"
        return row.replace(clean_checks=0), () if blocked else (TrainingBlockedByQuality(reason=reason),)
    if not blocked or row.held:
        return row, ()
    clean = row.clean_checks + 1
    if clean < settings.parity_clear_checks:
        return row.replace(clean_checks=clean), ()
    reason = f"{clean} shards in a row replay without a difference"
    return row.replace(clean_checks=0), (TrainingUnblocked(reason=reason),)
