"""Rules on the quality of data: rate of self-play, intensity and block of training."""

from app.config.feedback import FeedbackSettings, IntensitySettings, QualitySettings
from app.events import (
    Intensity,
    Payload,
    QualityPenaltyApplied,
    Row,
    TrainingBlockedByQuality,
    TrainingIntensityChanged,
    TrainingUnblocked,
)

US = 1_000_000


class QualityRow(Row, frozen=True):
    """Quality's settings of one configuration; an operator's block is ``held`` until lifted."""

    penalised: bool = False
    blocked: bool = False
    held: bool = False
    clean_checks: int = 0
    intensity: Intensity = "normal"
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


def apply_quality(row: QualityRow, quality: float, settings: FeedbackSettings, now_us: int) -> Change:
    """Set penalty and intensity from the smoothed quality."""
    row, penalty = _penalty(row, quality, settings.quality)
    row, intensity = _intensity(row, quality, settings.intensity, now_us)
    return row, (*penalty, *intensity)


def _penalty(row: QualityRow, quality: float, settings: QualitySettings) -> Change:
    """Penalise below one threshold, lift the penalty at a higher one."""
    if not row.penalised and quality < settings.penalty_below:
        rate, threshold = settings.rate_multiplier, settings.penalty_below
    elif row.penalised and quality >= settings.lift_at:
        rate, threshold = 1.0, settings.lift_at
    else:
        return row, ()
    decision = QualityPenaltyApplied(rate_multiplier=rate, quality_score=quality, threshold=threshold)
    return row.replace(penalised=rate < 1), (decision,)


def _intensity(row: QualityRow, quality: float, settings: IntensitySettings, now_us: int) -> Change:
    """Change the intensity, at most once per cooldown."""
    intensity = intensity_of(quality, settings)
    if intensity == row.intensity or (row.intensity_us and now_us - row.intensity_us < settings.cooldown_seconds * US):
        return row, ()
    decision = TrainingIntensityChanged(intensity=intensity, previous=row.intensity, quality_score=quality)
    return row.replace(intensity=intensity, intensity_us=now_us), (decision,)


def adopt_block(row: QualityRow, *, blocked: bool) -> QualityRow:
    """Go on from a block that somebody else set or lifted."""
    return row.replace(blocked=blocked, held=blocked, clean_checks=0)


def apply_parity(row: QualityRow, checked: int, failures: int, settings: QualitySettings) -> Change:
    """Block training at the first game that does not replay; unblock after enough clean shards in a row."""
    if failures:
        blocked = row.replace(blocked=True, clean_checks=0)
        reason = f"{failures} of {checked} games differ from the rules"
        return blocked, () if row.blocked else (TrainingBlockedByQuality(reason=reason),)
    if not row.blocked or row.held:
        return row, ()
    clean = row.clean_checks + 1
    if clean < settings.parity_clear_checks:
        return row.replace(clean_checks=clean), ()
    unblocked = row.replace(blocked=False, clean_checks=0)
    return unblocked, (TrainingUnblocked(reason=f"{clean} shards in a row replay without a difference"),)
